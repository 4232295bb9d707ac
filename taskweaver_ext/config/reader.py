"""Settings from several sources, the strongest first, checked together.

What may be set is said by frozen dataclasses, one per section: the types of their
fields are the types of the settings. Every mistake is kept, so that all of them can
be told at once.
"""

from __future__ import annotations

import difflib
import enum
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from taskweaver_ext.config.data_files import parse_json, read_json
from taskweaver_ext.errors import ConfigError

_Section = TypeVar("_Section")

_log = logging.getLogger("taskweaver_ext.config.settings")  # whose warnings are always shown


@dataclass(frozen=True, slots=True)
class Given:
    """A value, and where it came from for messages about it."""

    value: object
    origin: str
    rank: int
    """Of its source; 1 is the strongest."""


class SettingsReader:
    """Collect values from their sources, strongest first, and every mistake in them."""

    def __init__(
        self, folder: Path, known: Mapping[str, str], without_effect: Mapping[str, str]
    ) -> None:
        """Begin without any value.

        Args:
            folder: What relative paths are relative to.
            known: The names of all settings, with the variable that sets one besides that of its
                own name, if there is such a variable.
            without_effect: Names of settings that are understood and not followed, with the
                reason, which is logged when one is set.
        """
        self.mistakes: list[str] = []
        self.named: list[Mapping[str, object]] = []
        """What each source has given by name: what is not known, and what a stronger one has
        replaced, too."""
        self._folder = folder
        self._known = known
        self._without_effect = without_effect
        self._given: dict[str, Given] = {}
        self._source_count = 0

    def add_named(self, origin: str, values: Mapping[str, object]) -> None:
        """Add values by setting name; those that change nothing get a warning each."""
        self._source_count += 1
        self.named.append(values)
        for name, value in values.items():
            if name in self._without_effect:
                if value not in _UNSET:
                    reason = self._without_effect[name]
                    _log.warning("the setting %r (%s) has no effect: %s", name, origin, reason)
            elif name not in self._known:
                similar = difflib.get_close_matches(name, self._known, 1)
                advice = f"; did you mean {similar[0]!r}?" if similar else ""
                _log.warning("the setting %r (%s) is not known and ignored%s", name, origin, advice)
            elif value is not None:
                self._add(name, value, origin)

    def add_environment(self, environ: Mapping[str, str]) -> None:
        """Add the variables that set something; one that is named after its setting wins."""
        self._source_count += 1
        for name, other_variable in self._known.items():
            for variable in (name.upper().replace(".", "_"), other_variable):
                if value := environ.get(variable):
                    self._add(name, value, f"environment variable {variable}")

    def add_file(self, path: Path, *, is_needed: bool) -> None:
        """Add the values of the configuration file."""
        try:
            values = read_json(path)
        except FileNotFoundError:
            if is_needed and not path.parent.is_dir():
                self.mistakes.append(f"There is no folder {path.parent}.")
            return
        except OSError as error:
            self.mistakes.append(f"{path} cannot be read: {error.strerror}.")
            return
        except ValueError as error:
            self.mistakes.append(f"{path} is not valid JSON: {error}.")
            return
        if isinstance(values, dict):
            self.add_named(str(path), values)
        else:
            self.mistakes.append(f"{path} must hold one JSON object.")

    def raise_mistakes(self) -> None:
        """Raise a ConfigError that names every mistake, if there are any."""
        if self.mistakes:
            raise ConfigError("Some settings cannot be used. " + " ".join(self.mistakes))

    def given(self, setting: str) -> Given | None:
        """Return the strongest value of a setting; None when there is none."""
        return self._given.get(setting)

    def given_below(self, prefix: str) -> dict[str, object]:
        """Return the values whose names begin so, by whole name, without empty ones."""
        return {
            name: given.value
            for name, given in self._given.items()
            if name.startswith(prefix) and given.value != ""
        }

    def section(self, name: str, kind: type[_Section]) -> _Section:
        """Make a section of what was given."""
        hints = get_type_hints(kind)
        values: dict[str, Any] = {}
        for entry in fields(kind):  # type: ignore[arg-type]  # sections are dataclasses
            given = self._given.get(f"{name}.{entry.name}")
            owner = self._given.get(f"{name}.{entry.metadata.get('belongs_to')}")
            if given is None or (owner is not None and owner.rank < given.rank):
                if isinstance(entry.default, Path):
                    values[entry.name] = self._folder / entry.default
                continue
            try:
                values[entry.name] = self._parse(hints[entry.name], given.value)
                least = entry.metadata.get("at_least")
                if least is not None and values[entry.name] < least:
                    raise ValueError(f"at least {least}")
                if check := entry.metadata.get("check"):
                    check(values[entry.name])
            except ValueError as expected:
                self.mistakes.append(
                    f"{name}.{entry.name} is {given.value!r} ({given.origin}); it must be"
                    f" {expected}."
                )
        try:
            return kind(**values)
        except ConfigError as error:
            self.mistakes.append(str(error))
            return kind()

    def _add(self, name: str, value: object, origin: str) -> None:
        self._given.setdefault(name, Given(value, origin, self._source_count))

    def _parse(self, kind: object, value: object) -> object:
        """Give `value` as `kind`; a ValueError says what it must be instead."""
        if get_origin(kind) is UnionType:
            [kind] = (part for part in get_args(kind) if part is not NoneType)
        if kind is Path:
            return self._path(_text(value))
        if isinstance(kind, type) and issubclass(kind, enum.StrEnum):
            return kind(_one_of([*kind], value))
        if get_origin(kind) is Literal:
            return _one_of(get_args(kind), value)
        return _PARSERS[kind](value)

    def _path(self, text: str) -> Path:
        text = text.replace("${AppBaseDir}", str(self._folder))
        text = text.replace("${ModuleBaseDir}", str(Path(__file__).parent.parent))
        return self._folder / Path(text).expanduser()


def _text(value: object) -> str:
    if isinstance(value, str | Path):
        return str(value)
    raise ValueError("text")


def _one_of(choices: Sequence[str], value: object) -> str:
    if value in choices:
        return str(value)
    raise ValueError(f"{', '.join(choices[:-1])} or {choices[-1]}")


def _truth(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "yes", "on", "1"):
        return True
    if isinstance(value, str) and value.lower() in ("false", "no", "off", "0"):
        return False
    raise ValueError("true or false")


def _whole_number(value: object) -> int:
    if isinstance(value, int | str) and not isinstance(value, bool):
        try:
            return int(value)
        except ValueError:
            pass
    raise ValueError("a whole number")


def _number(value: object) -> float:
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
        if math.isfinite(number):
            return number
    raise ValueError("a number")


def _texts(value: object) -> tuple[str, ...]:
    """A list; in an environment variable as JSON or with commas."""
    if isinstance(value, str):
        try:
            value = parse_json(value) if value.startswith("[") else value.split(",")
        except ValueError:
            value = None
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return tuple(item.strip() for item in value if item.strip())
    raise ValueError("a list of texts")


def _mappings(value: object) -> dict[str, dict[str, object]]:
    """An object that holds objects; in an environment variable as JSON."""
    if isinstance(value, str):
        try:
            value = parse_json(value)
        except ValueError:
            value = None
    if isinstance(value, dict) and all(isinstance(item, dict) for item in value.values()):
        return value
    raise ValueError("an object that holds objects")


_PARSERS: dict[object, Callable[[object], object]] = {
    str: _text,
    bool: _truth,
    int: _whole_number,
    float: _number,
    tuple[str, ...]: _texts,
    Mapping[str, Mapping[str, Any]]: _mappings,
}
_UNSET = (None, False, "", "false", "False")
"""Values that ask for nothing."""
