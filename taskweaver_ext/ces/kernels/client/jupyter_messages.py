"""Jupyter's messages to a kernel: headers, and signed frames, with no more work than needed."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import uuid
from datetime import UTC, datetime
from typing import Any

_DELIMITER = b"<IDS|MSG>"
_PROTOCOL_VERSION = "5.3"

ALIVE = {"taskweaver": {"alive": True}}
"""The metadata of a request that only asks whether the kernel's runtime still works."""


def execute_content(
    code: str, *, silent: bool = False, allow_stdin: bool = False
) -> dict[str, object]:
    """What a request to run code says."""
    return {
        "code": code,
        "silent": silent,
        "store_history": not silent,
        "user_expressions": {},
        "allow_stdin": allow_stdin,
        "stop_on_error": False,
    }


class MessageHeaders:
    """Begin the messages of one client session."""

    def __init__(self) -> None:
        self.session_id = uuid.uuid4().hex
        self._numbers = itertools.count(1)

    def header(self, message_type: str) -> dict[str, str]:
        """Begin a message; its `msg_id` is what replies will name."""
        return {
            "msg_id": f"{self.session_id}_{next(self._numbers)}",
            "username": "taskweaver",
            "session": self.session_id,
            "date": datetime.now(UTC).isoformat(),
            "msg_type": message_type,
            "version": _PROTOCOL_VERSION,
        }


class MessageFormat(MessageHeaders):
    """Make the messages that go over ZeroMQ."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self._signer = hmac.new(key.encode(), digestmod=hashlib.sha256)

    def pack(
        self, message_type: str, content: dict[str, Any], metadata: dict[str, Any] | None = None
    ) -> list[bytes]:
        """Make the frames of a message."""
        header = self.header(message_type)
        parts = [json.dumps(part).encode() for part in (header, {}, metadata or {}, content)]
        signer = self._signer.copy()
        for part in parts:
            signer.update(part)
        return [_DELIMITER, signer.hexdigest().encode(), *parts]
