"""Keep the head and the tail of what is too long, and say honestly what is missing.

Pure: text in, text out. No cut splits a UTF-8 character, and a cut falls between two
lines wherever a line ends close to it.
"""

from __future__ import annotations

from typing import AnyStr, Literal

_SHORTEST_MARKER = "[...]"
_LONGEST_UTF8_CHARACTER = 4


def shorten_middle(
    text: str,
    max_chars: int,
    *,
    where: str = "",
    missing_chars: int = 0,
    missing_lines: int = 0,
) -> str:
    """Return `text` in at most `max_chars` characters, by leaving out its middle.

    Args:
        max_chars: The budget, in which the marker is included.
        where: The place of the whole text, named in the marker unless that took half the budget.
        missing_chars: How much of a longer text's middle, `missing_lines` lines, is not in `text`.
    """
    max_chars = max(0, max_chars)
    if len(text) <= max_chars:
        return text
    length, newlines = len(text) + missing_chars, text.count("\n") + missing_lines
    place = _fitting_place(length, newlines, where, max_chars // 2)
    room = max_chars - len(f"\n{_marker(length, newlines, place)}\n")
    if room < 2:  # not even one character on either side
        return _SHORTEST_MARKER[:max_chars]

    head_end = _last_line_end(text, "\n", room - room // 2)
    tail_start = _first_line_start(text, "\n", len(text) - (room - head_end))
    omitted = text[head_end:tail_start]
    is_line_cut = text[head_end - 1] != "\n"
    omitted_lines = max(0, omitted.count("\n") - is_line_cut)  # whole ones only
    marker = _marker(len(omitted) + missing_chars, omitted_lines + missing_lines, place)
    line_end = "\n" if is_line_cut else ""
    return f"{text[:head_end]}{line_end}{marker}\n{text[tail_start:]}"


def left_out_marker(
    count: int,
    lines: int = 0,
    *,
    unit: Literal["character", "byte"] = "character",
    where: str = "",
) -> str:
    """Return the line that stands for what was left out: how much, and where the whole is."""
    amount = _counted(count, unit)
    if lines:
        amount = f"{_counted(lines, 'line')} ({amount})"
    place = f"; whole output: {where}" if where else ""
    return f"[... {amount} left out{place} ...]"


def cut_head(data: bytes, limit: int) -> bytes:
    """Return the longest start of at most `limit` bytes that ends well.

    It ends after a newline if there is one in its second half, else between characters.
    """
    limit = max(0, limit)
    if len(data) <= limit:
        return data
    end = _last_line_end(data, b"\n", limit)
    if data[end - 1 : end] == b"\n":
        return data[:end]
    for boundary in range(end, max(-1, end - _LONGEST_UTF8_CHARACTER), -1):
        if not _is_continuation(data[boundary]):
            return data[:boundary]
    return data[:end]  # not UTF-8 at all


def cut_tail(data: bytes, limit: int) -> bytes:
    """Return the longest end of at most `limit` bytes that begins well.

    It begins after a newline if there is one in its first half, else between characters.
    """
    limit = max(0, limit)
    if len(data) <= limit:
        return data
    start = _first_line_start(data, b"\n", len(data) - limit)
    for boundary in range(start, start + _LONGEST_UTF8_CHARACTER):
        if boundary == len(data) or not _is_continuation(data[boundary]):
            return data[boundary:]
    return data[start:]  # not UTF-8 at all


def incomplete_bytes(data: bytes) -> int:
    """How many bytes at the end are the beginning of a character that goes on after them."""
    for length in range(1, min(_LONGEST_UTF8_CHARACTER, len(data)) + 1):
        byte = data[-length]
        if not _is_continuation(byte):  # the first byte of a character
            needed = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return length if needed > length else 0
    return 0


def _last_line_end(text: AnyStr, newline: AnyStr, limit: int) -> int:
    """The last place at or before `limit` where a line ends, or `limit` if that is far away."""
    found = text.rfind(newline, limit // 2, limit)
    return found + 1 if found >= 0 else limit


def _first_line_start(text: AnyStr, newline: AnyStr, start: int) -> int:
    """The first place at or after `start` where a line begins, or `start` if that is far away."""
    if text[start - 1 : start] == newline:
        return start
    found = text.find(newline, start, start + (len(text) - start) // 2)
    return found + 1 if found >= 0 else start


def _is_continuation(byte: int) -> bool:
    return byte & 0xC0 == 0x80


def _fitting_place(chars: int, lines: int, where: str, max_chars: int) -> str | None:
    """`where`, or nothing, or None if no marker that says anything fits."""
    places = (where, "")
    return next((p for p in places if len(_marker(chars, lines, p)) <= max_chars), None)


def _marker(chars: int, lines: int, place: str | None) -> str:
    return _SHORTEST_MARKER if place is None else left_out_marker(chars, lines, where=place)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
