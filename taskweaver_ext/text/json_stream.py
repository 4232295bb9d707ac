"""The strings at chosen places of a JSON text, as they arrive, in linear time.

A model that answers in JSON writes its code as one long string; people want
to watch that string grow. `JsonStringStream` is the simple door (one path,
text out), `JsonStringScanner` watches several paths and keeps their order.

Rules:

- A path names keys: `"files.content"`. Arrays are transparent: it finds the
  contents of `{"files": [{"content": "a"}, {"content": "b"}]}`, one after the other.
- Every string at the path is streamed in turn, duplicate keys included. A
  value there that is no string, or no value at all, is not an error.
- Escapes, and surrogate pairs of escapes, may be cut anywhere. Half a
  surrogate pair becomes U+FFFD, because no output could encode it.
- Raw control characters inside strings are kept, though the standard forbids
  them: writing line breaks unescaped is a frequent slip of models.
- Everything else that is not JSON is a `ProtocolError`. Text before the
  mistake is handed over first: when a chunk holds both, the next call raises.
- Memory is bounded: nesting deeper than 1,000 and numbers longer than 1,000
  characters are refused; strings and keys are never collected.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field

from taskweaver_ext.errors import ProtocolError
from taskweaver_ext.text.json_strings import (
    CUT_ESCAPE,
    ESCAPE_LENGTH,
    WRONG_ESCAPE,
    end_of_body,
    ends_with_high_surrogate,
    unescaped,
)

MAX_DEPTH = 1000
MAX_NUMBER_LENGTH = 1000

_SPACE = re.compile(r"[ \t\n\r]*")
_WORD = re.compile(r'[^ \t\n\r,:"\[\]{}]*')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LITERALS = frozenset({"true", "false", "null"})


@dataclass(frozen=True, slots=True)
class JsonStringPiece:
    """Some more of a string at one of the watched paths."""

    path: str
    text: str
    completed: bool
    """True for the last piece of one string."""


class JsonStringScanner:
    """Read JSON piece by piece and report the strings at several paths, in order."""

    def __init__(self, *paths: str) -> None:
        self._root = _Place()
        for path in paths:
            _add_path(self._root, path)
        self._expected = _Expected.VALUE
        self._place: _Place | None = self._root  # of the value that comes next
        self._containers: list[_Container] = []
        self._word = ""
        self._held = ""  # an escape, or half a surrogate pair, that was cut
        self._key: _KeyText | None = None  # set while the string being read is a key
        self._characters_before = 0
        self._error: ProtocolError | None = None

    @property
    def finished(self) -> bool:
        """Whether the JSON text came to its end."""
        return self._expected is _Expected.NOTHING

    def feed(self, chunk: str) -> list[JsonStringPiece]:
        """Take the next piece of JSON and return what it added to the watched strings.

        Raises:
            ProtocolError: this, or text before it, is not JSON.
        """
        if self._error is not None:
            raise self._error
        pieces: list[JsonStringPiece] = []
        data = self._held + chunk if self._held else chunk
        self._characters_before -= len(self._held)
        self._held = ""
        try:
            self._scan(data, pieces)
        except ProtocolError as error:
            self._error = error
            if not pieces:
                raise
        self._characters_before += len(data)
        return pieces

    def close(self) -> None:
        """Say that no more comes.

        Raises:
            ProtocolError: the JSON text was wrong, or is not complete.
        """
        if self._error is not None:
            raise self._error
        if self._expected is _Expected.REST_OF_WORD and not self._containers:
            self._finish_word(self._characters_before)
        if not self.finished:
            message = (
                f"The JSON text ends after {self._characters_before} characters "
                f"where {self._expected.value} should follow; what came before is kept."
            )
            self._error = ProtocolError(message)
            raise self._error

    def _scan(self, data: str, pieces: list[JsonStringPiece]) -> None:
        at = 0
        while at < len(data):
            if self._expected is _Expected.REST_OF_STRING:
                at = self._read_string(data, at, pieces)
            elif self._expected is _Expected.REST_OF_WORD:
                at = self._read_word(data, at)
            else:
                at = _end(_SPACE, data, at)
                if at < len(data):
                    at = self._read_sign(data, at)

    def _read_sign(self, data: str, at: int) -> int:
        """Take one character of JSON's own, and return where to go on."""
        sign = data[at]
        expected = self._expected
        if expected in _VALUE_MAY_COME:
            if sign == '"':
                self._expected = _Expected.REST_OF_STRING
                return at + 1
            if sign in "{[":
                self._open(sign, at)
                return at + 1
            if sign in "-0123456789tfn":
                self._expected = _Expected.REST_OF_WORD
                return at
        if expected in _KEY_MAY_COME and sign == '"':
            self._key = _KeyText(limit=self._containers[-1].longest_key)
            self._expected = _Expected.REST_OF_STRING
        elif expected is _Expected.COLON and sign == ":":
            self._expected = _Expected.VALUE
        elif expected is _Expected.COMMA_OR_END and sign == ",":
            container = self._containers[-1]
            self._expected = _Expected.KEY if container.is_object else _Expected.VALUE
            self._place = container.place
        elif expected in _END_MAY_COME and sign == self._containers[-1].end:
            self._containers.pop()
            self._value_ended()
        else:
            raise self._invalid(at, f"{expected.value} should stand where {sign!r} is")
        return at + 1

    def _open(self, sign: str, at: int) -> None:
        if len(self._containers) >= MAX_DEPTH:
            raise self._invalid(at, f"nested more than {MAX_DEPTH} deep")
        self._containers.append(_Container(is_object=sign == "{", place=self._place))
        self._expected = _Expected.FIRST_KEY if sign == "{" else _Expected.FIRST_VALUE

    def _value_ended(self) -> None:
        self._expected = _Expected.COMMA_OR_END if self._containers else _Expected.NOTHING

    def _read_string(self, data: str, at: int, pieces: list[JsonStringPiece]) -> int:
        end = end_of_body(data, at)
        if end == len(data) or CUT_ESCAPE.match(data, end):
            decided = end
            if ends_with_high_surrogate(data, at, end):
                decided -= ESCAPE_LENGTH
            self._held = data[decided:]
            self._say(data[at:decided], pieces, completed=False)
            return len(data)
        if data[end] != '"':
            self._say(data[at:end], pieces, completed=False)
            wrong = data[end : _end(WRONG_ESCAPE, data, end)]
            raise self._invalid(end, f"no such escape: {wrong!r}")
        self._say(data[at:end], pieces, completed=True)
        if self._key is None:
            self._value_ended()
        else:
            self._place = self._containers[-1].place_of(self._key.text)
            self._key = None
            self._expected = _Expected.COLON
        return end + 1

    def _say(self, raw: str, pieces: list[JsonStringPiece], *, completed: bool) -> None:
        if self._key is not None:
            self._key.add(raw)
        elif self._place is not None and self._place.path and (raw or completed):
            pieces.append(JsonStringPiece(self._place.path, unescaped(raw), completed))

    def _read_word(self, data: str, at: int) -> int:
        end = _end(_WORD, data, at)
        room = MAX_NUMBER_LENGTH - len(self._word)
        if end - at > room:
            message = f"a number of more than {MAX_NUMBER_LENGTH} characters"
            raise self._invalid(at + room, message)
        self._word += data[at:end]
        if end < len(data):
            self._finish_word(end)
        return end

    def _finish_word(self, at: int) -> None:
        word, self._word = self._word, ""
        if word not in _LITERALS and not _NUMBER.fullmatch(word):
            raise self._invalid(at, f"{word[:40]!r} is no JSON value")
        self._value_ended()

    def _invalid(self, at: int, what: str) -> ProtocolError:
        place = self._characters_before + at + 1
        return ProtocolError(
            f"The text is not valid JSON at character {place}: {what}; what came before is kept."
        )


class JsonStringStream:
    """Stream the string (or strings, in turn) at one dotted path out of JSON."""

    def __init__(self, path: str) -> None:
        self._scanner = JsonStringScanner(path)
        self._is_inside_value = False
        self.value_count = 0
        """How many strings at the path have begun so far."""

    @property
    def finished(self) -> bool:
        """Whether the JSON text came to its end."""
        return self._scanner.finished

    def feed(self, chunk: str) -> str:
        """Take the next piece of JSON and return what it added to the string, possibly nothing.

        Raises:
            ProtocolError: this, or text before it, is not JSON.
        """
        pieces = self._scanner.feed(chunk)
        for piece in pieces:
            if not self._is_inside_value:
                self.value_count += 1
            self._is_inside_value = not piece.completed
        return "".join(piece.text for piece in pieces)

    def close(self) -> None:
        """Say that no more comes.

        Raises:
            ProtocolError: the JSON text was wrong, or is not complete.
        """
        self._scanner.close()


class _Expected(enum.Enum):
    """What may come next; the values are the words for it in messages."""

    VALUE = "a value"
    FIRST_VALUE = "a value or ']'"
    KEY = "a key in quotes"
    FIRST_KEY = "a key in quotes or '}'"
    COLON = "':'"
    COMMA_OR_END = "',' or the end of the list or object"
    REST_OF_STRING = "the rest of a string"
    REST_OF_WORD = "the rest of a value"
    NOTHING = "nothing more"


# Tuples, not sets: looking for an enum member by identity is much faster than hashing it.
_VALUE_MAY_COME = (_Expected.VALUE, _Expected.FIRST_VALUE)
_KEY_MAY_COME = (_Expected.KEY, _Expected.FIRST_KEY)
_END_MAY_COME = (_Expected.COMMA_OR_END, _Expected.FIRST_VALUE, _Expected.FIRST_KEY)


@dataclass(slots=True)
class _Place:
    """Where in the tree of watched paths a value stands."""

    path: str = ""
    """The watched path that ends here; empty when none does."""
    children: dict[str, _Place] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Container:
    """An object or a list that is still open."""

    is_object: bool
    place: _Place | None
    """None when no watched path leads through it."""

    @property
    def end(self) -> str:
        return "}" if self.is_object else "]"

    @property
    def longest_key(self) -> int:
        return max(map(len, self.place.children), default=0) if self.place else 0

    def place_of(self, key: str) -> _Place | None:
        return self.place.children.get(key) if self.place else None


class _KeyText:
    """A key as far as it can matter: one character more than the longest that is watched for."""

    def __init__(self, *, limit: int) -> None:
        self.text = ""
        self._limit = limit

    def add(self, raw: str) -> None:
        room = self._limit + 1 - len(self.text)
        if room > 0:
            # Twelve characters (a surrogate pair) make at least one: more than that cannot fit.
            can_fit = len(raw) <= room * 2 * ESCAPE_LENGTH
            self.text += (unescaped(raw) if can_fit else raw)[:room]


def _add_path(root: _Place, path: str) -> None:
    place = root
    for key in path.split("."):
        if not key:
            raise ValueError(
                f"A path is keys joined by dots, such as 'files.content', not {path!r}"
            )
        place = place.children.setdefault(key, _Place())
    place.path = path


def _end(pattern: re.Pattern[str], data: str, at: int) -> int:
    """Return where a pattern ends, which is where it begins when it does not match."""
    match = pattern.match(data, at)
    return at if match is None else match.end()
