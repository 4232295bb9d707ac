"""What a message costs the client that reads it; what costs too much is not sent whole.

Both sides count alike: a kernel cuts what is too large, and a client takes a larger message for
a forgery. Counting takes no longer than copying the message would.
"""

from __future__ import annotations

import json
import re
from typing import Any

MAX_COST = 48 << 20
"""In bytes of memory, while a message is read."""
MAX_MESSAGE_BYTES = MAX_COST // 4
"""One that is longer costs too much whatever it says."""

_VALUE_COST = 80
"""Of a list, an object, a text or a number, beside its characters."""
_FOUR_BYTES_WIDE = re.compile(rb"[\xf0-\xff]|\\u[dD][89abAB]")

_MAX_CUT_CHARACTERS = 1 << 20
_MAX_CUT_PARTS = 1000
_SHORT = 1000


def message_cost(message: bytes, limit: int = MAX_COST) -> int:
    """Return how much memory it takes at most to hold this JSON, its text and its values.

    Args:
        limit: What is certain to cost more is not counted to its end.
    """
    texts = 2 * len(message) * (1 + _character_bytes(message))
    cost = texts + _VALUE_COST * (message.count(b'"') + _values_in(message))
    if cost <= limit:
        return cost
    plain = message.replace(b"\\\\", b"").replace(b'\\"', b"")
    cost = texts + _VALUE_COST * plain.count(b'"')
    if cost > limit:
        return cost
    between_texts = b"".join(plain.split(b'"')[::2])
    return cost + _VALUE_COST * _values_in(between_texts)


def _values_in(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _character_bytes(message: bytes) -> int:
    """How many bytes Python takes for each character, if they are all in one text."""
    if message.isascii() and b"\\u" not in message:
        return 1
    return 4 if _FOUR_BYTES_WIDE.search(message) else 2


def fitting(message: bytes) -> bytes:
    """Return a message as it is, or what of it does not cost too much."""
    if message_cost(message) <= MAX_COST:
        return message
    content = json.loads(message)
    if "data" in content:
        cut = {"kind": "a message", "size": len(message)}
        content["left_out"] = [*content.get("left_out", ()), cut]
    smaller = json.dumps(sendable(content)).encode()
    if message_cost(smaller) <= MAX_COST:
        return smaller
    return json.dumps(_only_what_is_short(content, len(message))).encode()


def _only_what_is_short(content: dict[str, Any], size: int) -> dict[str, Any]:
    short = {name: part for name, part in content.items() if len(json.dumps(part)) <= _SHORT}
    if "data" in content:
        short["data"] = {"text/plain": _left_out("a display", size)}
    if "evalue" in content:
        short["evalue"] = str(content["evalue"])[:_SHORT]
    return short


def _left_out(what: str, size: int) -> str:
    return f"[{what} of {size:,} characters is left out: it is too large to be sent]"


def sendable(value: Any) -> Any:
    """Give a message that can be sent: long texts cut, halves of characters written out."""
    if isinstance(value, dict):
        return {key: sendable(part) for key, part in value.items()}
    if isinstance(value, list):
        kept = [sendable(part) for part in value[:_MAX_CUT_PARTS]]
        if left_out := len(value) - len(kept):
            kept.append(f"[... {left_out:,} more are left out]")
        return kept
    if isinstance(value, str):
        left_out = len(value) - _MAX_CUT_CHARACTERS
        if left_out > 0:
            value = value[:_MAX_CUT_CHARACTERS]
            value += f"\n[... {left_out:,} more characters are left out]"
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    return value
