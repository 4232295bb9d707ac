"""Read the fields of messages whose sender may lie: each is of its type, or named in an error."""

from __future__ import annotations

from typing import Any

from taskweaver_ext.errors import ProtocolError

_MOST = 1 << 63


class CheckedFields:
    """One JSON object, read field by field; raises ProtocolError for the wrong type."""

    def __init__(self, part: object, sender: str) -> None:
        """Read an object.

        Args:
            sender: Who sent it, as an error begins: "A kernel".
        """
        if not isinstance(part, dict):
            raise ProtocolError(f"{sender} sent a message with a part that is no object.")
        self._part = part
        self._sender = sender

    def value(self, name: str, default: object = None) -> object:
        """Whatever a field holds."""
        return self._part.get(name, default)

    def text(self, name: str, default: str | None = None) -> str:
        """The text in a field."""
        value = self._part.get(name, default)
        if not isinstance(value, str):
            raise self._wrong(name, "no text")
        return value

    def texts(self, name: str) -> list[str]:
        """The list of texts in a field, empty without one."""
        value = self._part.get(name, [])
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise self._wrong(name, "no list of texts")
        return value

    def fields(self, name: str) -> CheckedFields:
        """The object in a field, empty without one."""
        return CheckedFields(self.mapping(name), self._sender)

    def mapping(self, name: str) -> dict[str, Any]:
        """The object in a field as it is, empty without one."""
        value = self._part.get(name, {})
        if not isinstance(value, dict):
            raise self._wrong(name, "no object")
        return value

    def count(self, name: str) -> int:
        """The number in a field: one that counts something."""
        value = self._part.get(name)
        if type(value) is not int or not 0 <= value < _MOST:
            raise self._wrong(name, "no number of bytes")
        return value

    def whole_number(self, name: str) -> int | None:
        """The whole number in a field; None without one."""
        value = self._part.get(name)
        if value is None:
            return None
        if type(value) is not int or not -_MOST <= value < _MOST:
            raise self._wrong(name, "no whole number of ordinary size")
        return value

    def amount(self, name: str) -> float | None:
        """The number in a field, which measures something; None without one."""
        value = self._part.get(name)
        if value is None:
            return None
        if type(value) not in (int, float) or not 0 <= value < _MOST:  # NaN is neither
            raise self._wrong(name, "no measure")
        return float(value)

    def _wrong(self, name: str, what: str) -> ProtocolError:
        return ProtocolError(f"{self._sender} sent a message in which {name!r} is {what}.")
