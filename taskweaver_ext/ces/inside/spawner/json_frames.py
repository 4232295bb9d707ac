"""Frames of JSON: what a container's spawner and its client outside say to each other."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

FRAME = struct.Struct("!I")
"""What comes before each message: how long it is."""
LONGEST_FRAME = (1 << 32) - 1


def pack_frame(message: Mapping[str, Any]) -> bytes:
    """A message as it is sent."""
    content = json.dumps(message).encode()
    return FRAME.pack(len(content)) + content


def read_frames(unread: bytearray, max_bytes: int = LONGEST_FRAME) -> list[dict[str, Any]]:
    """Remove and return the messages that are whole; raises ValueError for what none of ours is."""
    found = []
    while len(unread) >= FRAME.size:
        (size,) = FRAME.unpack_from(unread)
        if size > max_bytes:
            raise ValueError("too long")
        if len(unread) < FRAME.size + size:
            break
        message = json.loads(bytes(unread[FRAME.size : FRAME.size + size]))
        if not isinstance(message, dict):
            raise ValueError("not a message")
        found.append(message)
        del unread[: FRAME.size + size]
    return found
