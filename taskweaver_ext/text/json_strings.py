"""The characters of a JSON string, which may be cut anywhere.

Escapes, and surrogate pairs of escapes, are read whole. Half a surrogate pair becomes
U+FFFD, because no output could encode it.
"""

from __future__ import annotations

import re

# Whole characters of a string: not all at once, because each turn of a repeated group is
# remembered, and not possessive, because groups that are lose text before Python 3.11.5.
_STRING_BODY = re.compile(r'(?:[^"\\]+|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})){0,1000}')
CUT_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
WRONG_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?.", re.DOTALL)
_HIGH_SURROGATE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}")
_ESCAPE = re.compile(
    r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|\\u(.{4})|\\(.)"
)
ESCAPE_LENGTH = len("\\uXXXX")
_SHORT_ESCAPES = {
    '"': '"',
    "\\": "\\",
    "/": "/",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
}
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def end_of_body(data: str, at: int) -> int:
    """Return where the whole characters of a string end."""
    while (body := _STRING_BODY.match(data, at)) and body.end() > at:
        at = body.end()
    return at


def ends_with_high_surrogate(data: str, start: int, end: int) -> bool:
    """Say whether the last character is one half of a pair, whose other half may follow."""
    escape = end - ESCAPE_LENGTH
    if escape < start or not _HIGH_SURROGATE.fullmatch(data, escape, end):
        return False
    before = data[start:escape]
    # After an odd number of backslashes the last one is escaped: the rest is plain text.
    return (len(before) - len(before.rstrip("\\"))) % 2 == 0


def unescaped(raw: str) -> str:
    """Return what whole characters of a string stand for."""
    return _ESCAPE.sub(_character_of, raw) if "\\" in raw else raw


def _character_of(escape: re.Match[str]) -> str:
    high, low, single, short = escape.groups()
    if high:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
    if single:
        code = int(single, 16)
        return _REPLACEMENT if 0xD800 <= code <= 0xDFFF else chr(code)
    return _SHORT_ESCAPES[short]
