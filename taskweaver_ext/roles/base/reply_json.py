"""Read the fields of a reply that is one JSON object, while it arrives.

There is no second reading: what was reported, with what was taken back, is what the
reply says in the end. Linear in time, whatever the chunks.

- Prose and fences around the object are skipped. What a model thinks aloud (`<think>`)
  is no reply: an object behind `</think>` takes the place of one before it.
- The fields may stand in a `response`, or in the text of one, or without it.
- A field that is given twice counts the second time. A list of texts reads as lines;
  what is no text becomes JSON text; null says nothing.
- What is not quite JSON is forgiven as in `text.lenient_json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass

from taskweaver_ext.text.lenient_json import JsonEvent, LenientJsonReader

WRAPPER = "response"

_MAX_STARTS = 50
"""How many opening braces are tried: prose has a few, and junk must not take for ever."""
_MARK = re.compile(r"\{|<(?P<slash>/?)think(?:ing)?>", re.IGNORECASE | re.ASCII)
_LAST_THINKING = re.compile(r".*</think(?:ing)?>", re.IGNORECASE | re.ASCII | re.DOTALL)
_CUT_TAG = re.compile(r"<[/a-z]{0,9}\Z", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class FieldPiece:
    """Some more text of one field of a reply."""

    name: str
    """Which field; empty, with `restarts`: all of them."""
    text: str = ""
    restarts: bool = False
    """What was said of the field before counts no more; the text is the first of the new one."""
    completed: bool = False
    """True for the last piece of a field, which has no text."""


class ReplyFieldReader:
    """Report the fields of a reply as they arrive."""

    def __init__(self, fields: Collection[str], *, reads_thinking: bool = False) -> None:
        """Read some fields.

        Args:
            fields: Their names, or the keys that lead to them, joined by dots.
            reads_thinking: Whether what a model thinks aloud is read, too.
        """
        self._fields = tuple(fields)
        self._reads_thinking = reads_thinking
        self._text: list[str] = []
        self._is_thinking = False
        self._may_begin = True
        self._held = ""  # what may become a tag
        self._starts = 0
        self._candidate: _ReplyObject | None = None
        self._kept: list[str] = []  # of a candidate, until it is known to be the reply
        self._found: _ReplyObject | None = None

    @property
    def has_begun(self) -> bool:
        """Whether an object with at least one of the fields was found."""
        return self._found is not None

    @property
    def is_complete(self) -> bool:
        """Whether the object came to its end."""
        return self._found is not None and self._found.is_over and not self._found.problem

    @property
    def problem(self) -> str:
        """Why the object cannot be read; empty when it can, or when there is none."""
        return self._found.problem if self._found else ""

    @property
    def texts(self) -> dict[str, str] | None:
        """The fields as they were reported; None without any, or when they cannot be read."""
        if self._found is None or self._found.problem:
            return None
        return self._found.texts() or None

    def value(self, name: str) -> object:
        """Return what stands at the place of a field, which may be no text; None when nothing does.

        This is for short values: they are kept.
        """
        return self._found.values.get(name) if self._found else None

    def feed(self, text: str) -> list[FieldPiece]:
        """Take the next piece of the reply, and return what it adds to the fields."""
        pieces: list[FieldPiece] = []
        self._text.append(text)
        self._read(text, pieces)
        return pieces

    def close(self) -> list[FieldPiece]:
        """Say that no more comes, and return what that adds."""
        pieces: list[FieldPiece] = []
        while (candidate := self._candidate) is not None:
            pieces += candidate.close()
            if candidate is self._found:
                break
            self._candidate = None  # whatever it was, it has no field
            self._read(self._take_kept()[1:], pieces)
        if not self.is_complete and not self._reads_thinking:
            self._read_last_words(pieces)
        return pieces

    def _read(self, text: str, pieces: list[FieldPiece]) -> None:
        while text:
            if self._candidate is None:
                text = self._seek(text)
            else:
                text = self._follow(self._candidate, text, pieces)

    def _seek(self, text: str) -> str:
        """Look for the brace at which the object begins, and return the text from there on."""
        data, self._held = self._held + text, ""
        at = 0
        while mark := _MARK.search(data, at):
            at = mark.end()
            if mark["slash"] is not None:
                self._is_thinking = not mark["slash"] and not self._reads_thinking
                self._may_begin = self._may_begin or bool(mark["slash"])
            elif self._may_begin and not self._is_thinking and self._starts < _MAX_STARTS:
                self._starts += 1
                self._candidate = _ReplyObject(self._fields)
                return data[mark.start() :]
        if cut := _CUT_TAG.search(data, at):
            self._held = cut[0]
        return ""

    def _follow(self, candidate: _ReplyObject, text: str, pieces: list[FieldPiece]) -> str:
        """Read on in an object, and return what comes after it."""
        found = candidate.feed(text)
        if candidate is not self._found:
            self._kept.append(text)
            if candidate.has_begun:
                if self._found is not None:
                    pieces.append(FieldPiece("", restarts=True))
                self._found, self._may_begin = candidate, False
                self._kept.clear()
        pieces += found
        if not candidate.is_over:
            return ""
        self._candidate = None
        if candidate is self._found:
            self._may_begin = bool(candidate.problem)
            return candidate.rest
        kept = self._take_kept()
        return kept[1:] if candidate.problem else candidate.rest

    def _take_kept(self) -> str:
        kept = "".join(self._kept)
        self._kept.clear()
        return kept

    def _read_last_words(self, pieces: list[FieldPiece]) -> None:
        """Look behind the last thought, or in one that never ended, for what was not found."""
        text = "".join(self._text)
        thinking = _LAST_THINKING.match(text)
        if thinking is None and not self._is_thinking:
            return
        again = ReplyFieldReader(self._fields, reads_thinking=True)
        found = again.feed(text[thinking.end() if thinking else 0 :]) + again.close()
        if again.texts is not None:
            pieces += [FieldPiece("", restarts=True), *found]
            self._found = again._found


class _ReplyObject:
    """One object that may be the reply: the fields in it."""

    def __init__(self, fields: Collection[str]) -> None:
        self._names = tuple(fields)
        self._fields = {tuple(name.split(".")): name for name in fields}
        self._first_keys = {path[0] for path in self._fields}
        self._reader = LenientJsonReader()
        self._is_wrapped = False
        self._is_wrapper_closed = False
        self._inner: ReplyFieldReader | None = None  # of a wrapper that is text
        self._shown: dict[str, list[str]] = {}
        self._item_counts: dict[str, int] = {}
        self.has_begun = False
        """Whether one of the fields has begun: this is the reply, whatever follows."""
        self.values: dict[str, object] = {}

    @property
    def is_over(self) -> bool:
        return self._reader.is_over

    @property
    def problem(self) -> str:
        # What follows the fields, such as a fence where a bracket is missing, does not matter.
        return "" if self._is_wrapper_closed else self._reader.problem

    @property
    def rest(self) -> str:
        return self._reader.rest

    def texts(self) -> dict[str, str]:
        """The fields that are complete, in the order in which they were asked for."""
        if self._inner is not None:
            return self._inner.texts or {}
        return {name: "".join(self._shown[name]) for name in self._names if name in self.values}

    def feed(self, text: str) -> list[FieldPiece]:
        return self._receive_all(self._reader.feed(text))

    def close(self) -> list[FieldPiece]:
        return self._receive_all(self._reader.close())

    def _receive_all(self, events: list[JsonEvent]) -> list[FieldPiece]:
        pieces: list[FieldPiece] = []
        for event in events:
            if event.path == (WRAPPER,):
                self._receive_wrapper(event, pieces)
            elif self._inner is None and self._is_wrapped == (event.path[:1] == (WRAPPER,)):
                path = event.path[1:] if self._is_wrapped else event.path
                self.has_begun = self.has_begun or path[:1] != () and path[0] in self._first_keys
                if path in self._fields:
                    pieces += self._receive_field(self._fields[path], event)
        return pieces

    def _receive_wrapper(self, event: JsonEvent, pieces: list[FieldPiece]) -> None:
        if event.is_item:
            return
        has_fields = self._is_wrapped or self._inner is not None
        self._is_wrapper_closed = has_fields and event.kind == "end"
        if event.kind == "begin" and event.text in '{"':
            if self._shown or self._inner is not None:
                pieces.append(FieldPiece("", restarts=True))
            self._shown.clear()
            self.values.clear()
            self._is_wrapped = event.text == "{"
            self._inner = None if self._is_wrapped else ReplyFieldReader(self._names)
        elif self._inner is not None:
            is_text = event.kind == "text"
            pieces += self._inner.feed(event.text) if is_text else self._inner.close()
            self.has_begun = self.has_begun or self._inner.has_begun
            if event.kind == "end":
                self.values = {name: self._inner.value(name) for name in self._names}

    def _receive_field(self, name: str, event: JsonEvent) -> list[FieldPiece]:
        match event.kind:
            case "text":
                return self._add(name, event.text)
            case "begin" if not event.is_item:
                was_shown = name in self._shown
                self._shown[name], self._item_counts[name] = [], 0
                self.values.pop(name, None)
                return [FieldPiece(name, restarts=True)] if was_shown else []
            case "begin" if event.text == '"':
                self._item_counts[name] += 1
                return self._add(name, "\n" if self._item_counts[name] > 1 else "")
            case "end" if not event.is_item:
                return self._end(name, event.value)
        return []

    def _add(self, name: str, text: str) -> list[FieldPiece]:
        self._shown[name].append(text)
        return [FieldPiece(name, text)] if text else []

    def _end(self, name: str, value: object) -> list[FieldPiece]:
        pieces: list[FieldPiece] = []
        is_lines = isinstance(value, list) and all(isinstance(item, str) for item in value)
        if not is_lines and not isinstance(value, str):
            if self._shown[name]:
                pieces.append(FieldPiece(name, restarts=True))
            self._shown[name] = []
            if value is None:
                return pieces
            pieces += self._add(name, json.dumps(value, ensure_ascii=False))
        self.values[name] = value
        return [*pieces, FieldPiece(name, completed=True)]
