"""The spellings that programs print a secret in.

As it is, in JSON, in Python's `repr` of text and bytes, in URLs and HTML, and in Base64 (also in
the middle of other encoded data, such as the header of a basic authentication). Longer lines of a
secret are words of their own, because programs indent and wrap what has several.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

SHORTEST_SECRET = 6
"""Shorter values are ordinary words and numbers; masking them would garble everything."""

SHORTEST_LINE = 16
"""Shorter lines of a secret with several are not masked without the others."""

_LONGEST_WORD = 256
"""A longer spelling is masked in pieces of this length, so that less has to be held back."""


def words_of(secret: str) -> Iterator[str]:
    """Yield what is searched for to find a secret, in pieces that are not too long."""
    for spelling in _spellings(secret):
        if len(spelling) < SHORTEST_SECRET:
            continue
        for start in range(0, len(spelling) - _LONGEST_WORD, _LONGEST_WORD):
            yield spelling[start : start + _LONGEST_WORD]
        yield spelling[-_LONGEST_WORD:]


def _spellings(secret: str) -> set[str]:
    secret = secret.strip()
    if len(secret) < SHORTEST_SECRET:
        return set()
    lines = {line for line in map(str.strip, secret.splitlines()) if len(line) >= SHORTEST_LINE}
    found: set[str] = set()
    for value in {secret} | lines:
        content = _encoded(value)
        found |= {value, content.decode("utf-8", "replace")}
        found |= {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
        escaped = {ascii(value)[1:-1], repr(value)[1:-1], repr(content)[2:-1]}
        found |= escaped | {text.replace("'", "\\'") for text in escaped if "\\'" not in text}
        found |= {quote_plus(content)} | {quote(content, safe) for safe in ("", "/", "!'()*")}
        found |= {html.escape(value), html.escape(value, quote=False)}
        found.update(_in_base64(content))
    return found


def _encoded(value: str) -> bytes:
    """The bytes of a value, which may stand for some that are no text, as variables can."""
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")


def _in_base64(content: bytes) -> Iterator[str]:
    """Yield what the content is in encoded data, wherever in it the content begins.

    Characters that also depend on what stands before or behind are left out, except where the
    content is all there is.
    """
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + content).decode().rstrip("=")
        whole = (before + len(content)) * 8 // 6
        core = encoded[-(-before * 8 // 6) : whole]
        yield from (core, core.translate(_URL_SAFE))
    encoded = base64.b64encode(content).decode()
    yield from (encoded, encoded.translate(_URL_SAFE))


_URL_SAFE = str.maketrans("+/", "-_")
