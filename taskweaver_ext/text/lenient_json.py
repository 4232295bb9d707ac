"""Read one JSON value while it arrives, and forgive what models get wrong in it.

Linear in time, whatever the chunks. What is forgiven: raw control characters in
strings, unknown escapes (the backslash is kept), backslashes between values, trailing
commas, Python's names for literals, brackets that are missing inside of others or at the
end, and a bracket of the wrong kind at the end. A string that was cut is not
completed: what it would have said is unknown.
"""

from __future__ import annotations

import enum
import json
import re
from dataclasses import dataclass, field
from typing import Literal

from taskweaver_ext.text.json_strings import (
    CUT_ESCAPE,
    ESCAPE_LENGTH,
    end_of_body,
    ends_with_high_surrogate,
    unescaped,
)

MAX_DEPTH = 100
MAX_WORD_LENGTH = 1000

_SPACE = re.compile(r"[ \t\n\r\\]*")
_WORD = re.compile(r'[^ \t\n\r\\,:"\[\]{}]*')
_NUMBER = re.compile(
    r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|Infinity)|NaN", re.ASCII
)
_LITERALS = {"true": True, "false": False, "null": None} | {
    "True": True,
    "False": False,
    "None": None,
}


@dataclass(frozen=True, slots=True)
class JsonEvent:
    """A value begins, goes on (strings only), or ends."""

    kind: Literal["begin", "text", "end"]
    path: tuple[str, ...]
    """The keys that lead to it; lists add nothing to it."""
    is_item: bool
    """Whether it stands in a list, rather than right behind its key."""
    text: str = ""
    """The next piece of a string; of a value that begins, its first character."""
    value: object = None
    """The whole value, when it ends."""


class LenientJsonReader:
    """Turn the pieces of one JSON value into events."""

    def __init__(self) -> None:
        self.problem = ""
        """Why it cannot be read; empty when it can."""
        self.rest = ""
        """What came in the last piece behind the value's end, or from the problem on."""
        self._expected = _Expected.VALUE
        self._containers: list[_Container] = []
        self._held = ""  # an escape, or half a surrogate pair, that was cut
        self._string: list[str] = []
        self._is_key = False
        self._word = ""

    @property
    def is_over(self) -> bool:
        """Whether it has come to its end, or to a problem."""
        return self._expected is _Expected.NOTHING

    def feed(self, chunk: str) -> list[JsonEvent]:
        """Take the next piece and return what it says, in order."""
        events: list[JsonEvent] = []
        data, self._held = self._held + chunk, ""
        at = 0
        while at < len(data) and not self.is_over:
            if self._expected is _Expected.REST_OF_STRING:
                at = self._read_string(data, at, events)
            elif self._expected is _Expected.REST_OF_WORD:
                at = self._read_word(data, at, events)
            else:
                at = _end(_SPACE, data, at)
                if at < len(data):
                    at += self._read_sign(data[at], events)
        self.rest = data[at:]
        return events

    def close(self) -> list[JsonEvent]:
        """Say that no more comes, and return what that completes."""
        events: list[JsonEvent] = []
        if self._expected is _Expected.REST_OF_WORD:
            self._finish_word(events)
        if self._expected in _MUST_GO_ON:
            self._fail(f"it ends where {self._expected.value} should follow")
        while self._containers and not self.is_over:
            self._pop(events)
        return events

    def _read_sign(self, sign: str, events: list[JsonEvent]) -> int:
        """Take one character of JSON's own, and return how many were taken."""
        expected = self._expected
        if sign in "}]" and expected in _END_MAY_COME:
            self._close_container(sign, events)
        elif expected in _VALUE_MAY_COME and sign not in ",:}]":
            return self._begin_value(sign, events)
        elif expected is _Expected.KEY and sign == '"':
            self._is_key = True
            self._expected = _Expected.REST_OF_STRING
        elif expected is _Expected.COLON and sign == ":":
            self._expected = _Expected.VALUE
        elif expected is _Expected.COMMA_OR_END and sign == ",":
            is_object = self._containers[-1].is_object
            self._expected = _Expected.KEY if is_object else _Expected.ITEM
        else:
            self._fail(f"{expected.value} should stand where {sign!r} is")
        return 0 if self.problem else 1

    def _begin_value(self, sign: str, events: list[JsonEvent]) -> int:
        """Begin the value whose first character comes now; a word is read by the next step."""
        events.append(JsonEvent("begin", self._path(), self._is_item(), sign))
        if sign == '"':
            self._expected = _Expected.REST_OF_STRING
        elif sign not in "{[":
            self._expected = _Expected.REST_OF_WORD
            return 0
        elif len(self._containers) >= MAX_DEPTH:
            self._fail(f"nested more than {MAX_DEPTH} deep")
        else:
            self._containers.append(_Container(sign == "{", self._path()))
            self._expected = _Expected.KEY if sign == "{" else _Expected.ITEM
        return 1

    def _close_container(self, sign: str, events: list[JsonEvent]) -> None:
        """Close the container that the sign is for, and those that were forgotten inside of it."""
        is_last = False
        while self._containers and not is_last:
            is_last = self._containers[-1].end == sign
            self._pop(events)

    def _pop(self, events: list[JsonEvent]) -> None:
        self._end_value(self._containers.pop().value, events)

    def _end_value(self, value: object, events: list[JsonEvent]) -> None:
        events.append(JsonEvent("end", self._path(), self._is_item(), value=value))
        if self._containers:
            self._containers[-1].add(value)
            self._expected = _Expected.COMMA_OR_END
        else:
            self._expected = _Expected.NOTHING

    def _read_string(self, data: str, at: int, events: list[JsonEvent]) -> int:
        end = end_of_body(data, at)
        if end == len(data) or CUT_ESCAPE.match(data, end):
            decided = end
            if ends_with_high_surrogate(data, at, end):
                decided -= ESCAPE_LENGTH
            self._held = data[decided:]
            self._add_text(unescaped(data[at:decided]), events)
            return len(data)
        text = unescaped(data[at:end])
        if data[end] == '"':
            self._add_text(text, events)
            self._end_string(events)
        else:
            self._add_text(text + "\\", events)
        return end + 1

    def _add_text(self, text: str, events: list[JsonEvent]) -> None:
        if text:
            self._string.append(text)
            if not self._is_key:
                events.append(JsonEvent("text", self._path(), self._is_item(), text))

    def _end_string(self, events: list[JsonEvent]) -> None:
        text = "".join(self._string)
        self._string.clear()
        if self._is_key:
            self._is_key = False
            self._containers[-1].key = text
            self._expected = _Expected.COLON
        else:
            self._end_value(text, events)

    def _read_word(self, data: str, at: int, events: list[JsonEvent]) -> int:
        end = _end(_WORD, data, at)
        self._word += data[at : min(end, at + MAX_WORD_LENGTH)]
        if len(self._word) >= MAX_WORD_LENGTH:
            self._fail(f"a value of more than {MAX_WORD_LENGTH} characters")
        elif end < len(data):
            self._finish_word(events)
        return end

    def _finish_word(self, events: list[JsonEvent]) -> None:
        word, self._word = self._word, ""
        if word in _LITERALS:
            self._end_value(_LITERALS[word], events)
        elif _NUMBER.fullmatch(word):
            self._end_value(json.loads(word), events)
        else:
            self._fail(f"{word[:40]!r} is no value")

    def _path(self) -> tuple[str, ...]:
        return self._containers[-1].path_inside if self._containers else ()

    def _is_item(self) -> bool:
        return bool(self._containers) and not self._containers[-1].is_object

    def _fail(self, what: str) -> None:
        self.problem = f"The text is not JSON: {what}."
        self._expected = _Expected.NOTHING


class _Expected(enum.Enum):
    """What may come next; the values are the words for it in messages."""

    VALUE = "a value"
    ITEM = "a value or the end of the list"
    KEY = "a key in quotes"
    COLON = "':'"
    COMMA_OR_END = "',' or the end of the list or object"
    REST_OF_STRING = "the rest of a string"
    REST_OF_WORD = "the rest of a value"
    NOTHING = "nothing more"


_VALUE_MAY_COME = (_Expected.VALUE, _Expected.ITEM)
_END_MAY_COME = (_Expected.ITEM, _Expected.KEY, _Expected.COMMA_OR_END)
_MUST_GO_ON = (_Expected.VALUE, _Expected.COLON, _Expected.REST_OF_STRING)


@dataclass(slots=True)
class _Container:
    """An object or a list that is still open."""

    is_object: bool
    path: tuple[str, ...]
    key: str = ""
    items: list[object] = field(default_factory=list)
    members: dict[str, object] = field(default_factory=dict)

    @property
    def end(self) -> str:
        return "}" if self.is_object else "]"

    @property
    def path_inside(self) -> tuple[str, ...]:
        return (*self.path, self.key) if self.is_object else self.path

    @property
    def value(self) -> object:
        return self.members if self.is_object else self.items

    def add(self, value: object) -> None:
        if self.is_object:
            self.members[self.key] = value
        else:
            self.items.append(value)


def _end(pattern: re.Pattern[str], data: str, at: int) -> int:
    match = pattern.match(data, at)
    return at if match is None else match.end()
