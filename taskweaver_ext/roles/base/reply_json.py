"""Read the JSON of a model's reply, also where it is not quite JSON.

`parse_reply` reads a whole reply and forgives what models get wrong: prose and
fences around the object, a missing `response` around the fields, trailing commas,
unknown escapes, missing brackets at the end. A string that was cut is not
completed: what it would have said is unknown. `ReplyFieldStream` reports the
fields while the reply arrives.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from taskweaver_ext.errors import ProtocolError
from taskweaver_ext.text.json_stream import JsonStringPiece, JsonStringScanner

WRAPPER = "response"

_MAX_STARTS = 50
"""How many opening braces are tried: prose has a few, and junk must not take for ever."""
_SIGN = re.compile(r'[{}\[\]",]|\\|\b(?:True|False|None)\b')
_LITERALS = {"True": "true", "False": "false", "None": "null"}
_END_AFTER_COMMA = re.compile(r"\s*([}\]]|\Z)")
_STRING_PART = re.compile(r'[^"\\]+|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\|"')


@dataclass(frozen=True, slots=True)
class FieldPiece:
    """Some more text of one field of a reply."""

    name: str
    text: str


class ReplyFieldStream:
    """Report the texts of a reply's fields as they arrive; prose around the JSON is skipped.

    What is not JSON ends the reports; `parse_reply` may still make sense of it.
    """

    def __init__(self, fields: Collection[str]) -> None:
        self._fields = tuple(fields)
        self._kept: list[str] = []
        """From the brace on that may be where the JSON begins, until that is certain."""
        self._starts_tried = 0
        self._scanner: JsonStringScanner | None = None
        self._has_reported = False
        self._is_over = False
        self._completed: set[str] = set()

    def feed(self, text: str) -> list[FieldPiece]:
        """Take the next piece of the reply, and return what it adds to the fields."""
        if self._is_over:
            return []
        if self._scanner is None:
            return self._begin(text)
        if not self._has_reported:
            self._kept.append(text)
        pieces = self._scan(self._scanner, text)
        return self._begin("".join(self._kept)[1:]) if pieces is None else pieces

    def _begin(self, text: str) -> list[FieldPiece]:
        """Look for the brace at which the JSON begins."""
        while self._starts_tried < _MAX_STARTS:
            brace = text.find("{")
            if brace < 0:
                self._scanner = None
                return []
            text = text[brace:]
            self._kept = [text]
            self._starts_tried += 1
            wrapped = (f"{WRAPPER}.{name}" for name in self._fields)
            self._scanner = JsonStringScanner(*wrapped, *self._fields)
            pieces = self._scan(self._scanner, text)
            if pieces is not None:
                return pieces
            text = text[1:]
        self._is_over = True
        return []

    def _scan(self, scanner: JsonStringScanner, text: str) -> list[FieldPiece] | None:
        """Return what the text adds; None where it was prose with a brace in it."""
        try:
            found = scanner.feed(text)
        except ProtocolError:
            if not self._has_reported and not scanner.finished:
                return None
            self._is_over = True
            return []
        if found and not self._has_reported:
            self._has_reported = True
            self._kept.clear()
        return [self._piece(piece) for piece in found]

    def _piece(self, piece: JsonStringPiece) -> FieldPiece:
        name = piece.path.removeprefix(f"{WRAPPER}.")
        # A list of texts, such as the steps of a plan, reads as lines.
        separator = "\n" if name in self._completed else ""
        self._completed.discard(name)
        if piece.completed:
            self._completed.add(name)
        return FieldPiece(name, separator + piece.text)


def parse_reply(text: str, fields: Collection[str]) -> dict[str, str] | None:
    """Return the known fields of a reply as texts, or None when it has none of them."""
    _, tag, after_thinking = text.rpartition("</think>")
    if tag and (found := parse_reply(after_thinking, fields)):
        return found  # what a model thinks aloud may hold drafts
    for value in _objects(text):
        if found := _known_fields(value, fields):
            return found
    repaired = _repaired(text)
    for value in _objects(repaired) if repaired else ():
        if found := _known_fields(value, fields):
            return found
    return None


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in a text, in order."""
    decoder = json.JSONDecoder(strict=False)
    start = text.find("{")
    for _ in range(_MAX_STARTS):
        if start < 0:
            return
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            if isinstance(value, dict):
                yield value
        start = text.find("{", end)


def _known_fields(value: Mapping[str, Any], fields: Collection[str]) -> dict[str, str]:
    inner = value.get(WRAPPER)
    if isinstance(inner, str):  # wrapped once too often
        inner = next(_objects(inner), None)
    content = inner if isinstance(inner, dict) else value
    return {name: _as_text(content[name]) for name in fields if content.get(name) is not None}


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()  # JSON lets half surrogate pairs through
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "\n".join(value)
    return json.dumps(value, ensure_ascii=False)


def _repaired(text: str) -> str | None:
    """Return the text from its first brace on as proper JSON; None when a string was cut."""
    start = text.find("{")
    if start < 0:
        return None
    parts: list[str] = []
    closers: list[str] = []
    at = start
    while sign := _SIGN.search(text, at):
        parts.append(text[at : sign.start()])
        at = sign.end()
        mark = sign[0]
        if mark == '"':
            end = _copy_string(text, at, parts)
            if end is None:
                return None
            at = end
        elif mark in "{[":
            closers.append("}" if mark == "{" else "]")
            parts.append(mark)
        elif mark in "}]":
            if not closers:
                break
            # Brackets that were forgotten inside are closed where the outer one is.
            while closers and (closer := closers.pop()) != mark:
                parts.append(closer)
            parts.append(mark)
            if not closers:
                return "".join(parts)
        elif mark == ",":
            if not _END_AFTER_COMMA.match(text, at):
                parts.append(mark)
        else:
            parts.append(_LITERALS.get(mark, ""))
    return "".join((*parts, *reversed(closers)))


def _copy_string(text: str, at: int, parts: list[str]) -> int | None:
    """Copy a string that was opened before `at`, and return its end; None when it has none."""
    parts.append('"')
    while part := _STRING_PART.match(text, at):
        at = part.end()
        parts.append("\\\\" if part[0] == "\\" else part[0])
        if part[0] == '"':
            return at
    return None
