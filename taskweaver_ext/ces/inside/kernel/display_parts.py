"""Large parts of displays leave the kernel in pieces, before the message that they belong to.

A message is read whole by the client, so it has to be small; pieces are written to a file there
as they come. Pictures travel as the bytes that they are, other values as their text or JSON.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
from collections.abc import Callable
from typing import Any

from .message_cost import MAX_COST, message_cost, sendable

MAX_DISPLAY_BYTES = 64 << 20
"""Of all large parts of one display, as files; what is larger is left out, and said to be."""
PIECE_BYTES = 1 << 20
BASE64, TEXT, JSON = FORMS = ("base64", "text", "json")
"""What the value in the bundle is of which a file has the bytes: those bytes encoded, ..."""
DISPLAYS = frozenset(("display_data", "execute_result", "update_display_data"))

_SMALL_BYTES = 1 << 16
_OURS = "application/vnd.taskweaver."
_ENCODED = ("image/", "application/pdf", "audio/", "video/")
"""What bundles hold in base64; SVG, which is text, does not decode and stays text."""
_numbers = itertools.count(1)

SayPiece = Callable[[bytes], None]


def send_large_parts(content: bytes, say_piece: SayPiece) -> bytes:
    """Send the large parts of a display; return the message that names them in their place."""
    if len(content) <= PIECE_BYTES and message_cost(content) <= MAX_COST:
        return content
    message = json.loads(content)
    bundle = message.get("data")
    if not isinstance(bundle, dict):
        return content
    parts, left_out = {}, []
    room = MAX_DISPLAY_BYTES
    for kind, form, data in sorted(_large_parts(bundle), key=lambda part: len(part[2])):
        if len(data) > room:
            left_out.append({"kind": kind, "size": len(data)})
            if form == TEXT and kind.startswith("text/"):
                bundle[kind] = sendable(bundle[kind])
            else:
                del bundle[kind]  # it makes no sense when it is cut
            continue
        room -= len(data)
        parts[kind] = {"number": _send(form, data, say_piece), "form": form, "size": len(data)}
        del bundle[kind]
    return json.dumps({**message, "parts": parts, "left_out": left_out}).encode()


def _large_parts(bundle: dict[str, Any]) -> list[tuple[str, str, bytes]]:
    return [
        (kind, form, data)
        for kind, value in bundle.items()
        if not kind.startswith(_OURS)
        for form, data in (_as_file(kind, value),)
        if len(data) > _SMALL_BYTES
    ]


def _as_file(kind: str, value: Any) -> tuple[str, bytes]:
    """What a file of this part holds, and in which form the value is made of it again."""
    if not isinstance(value, str):
        return JSON, json.dumps(value).encode()
    if kind.startswith(_ENCODED):
        try:
            return BASE64, base64.b64decode("".join(value.split()), validate=True)
        except (binascii.Error, ValueError):
            pass  # it is text after all
    return TEXT, value.encode("utf-8", "backslashreplace")


def _send(form: str, data: bytes, say_piece: SayPiece) -> int:
    number = next(_numbers)
    for start in range(0, len(data), PIECE_BYTES):
        say_piece(f"{number} {form}\n".encode() + data[start : start + PIECE_BYTES])
    return number
