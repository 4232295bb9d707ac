"""Jupyter's message format: signed multipart messages, with no more work than needed."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from taskweaver_ext.errors import ProtocolError

_DELIMITER = b"<IDS|MSG>"
_PROTOCOL_VERSION = "5.3"


@dataclass(frozen=True, slots=True)
class Message:
    """A message that was received, its signature checked."""

    message_type: str
    parent_id: str
    content: dict[str, Any]


class MessageFormat:
    """Make and read the messages of one client session."""

    def __init__(self, key: str) -> None:
        self.session_id = uuid.uuid4().hex
        self._signer = hmac.new(key.encode(), digestmod=hashlib.sha256)
        self._numbers = itertools.count(1)

    def pack(
        self,
        message_type: str,
        content: dict[str, Any],
        *,
        message_id: str = "",
        metadata: dict[str, Any] | None = None,
    ) -> list[bytes]:
        """Make the frames of a message."""
        header = {
            "msg_id": message_id or f"{self.session_id}_{next(self._numbers)}",
            "username": "taskweaver",
            "session": self.session_id,
            "date": datetime.now(UTC).isoformat(),
            "msg_type": message_type,
            "version": _PROTOCOL_VERSION,
        }
        parts = [json.dumps(part).encode() for part in (header, {}, metadata or {}, content)]
        return [_DELIMITER, self._signature(parts), *parts]

    def unpack(self, frames: Sequence[bytes]) -> Message:
        """Check and read the frames of a message."""
        try:
            start = frames.index(_DELIMITER) + 1
            signature, header, parent, _metadata, content = frames[start : start + 5]
        except ValueError as error:
            raise ProtocolError("The kernel sent a message that is not Jupyter's.") from error
        if not hmac.compare_digest(signature, self._signature(frames[start + 1 : start + 5])):
            raise ProtocolError("A message with a wrong signature came from the kernel's address.")
        return Message(
            json.loads(header)["msg_type"],
            json.loads(parent).get("msg_id", ""),
            json.loads(content),
        )

    def _signature(self, parts: Sequence[bytes]) -> bytes:
        signer = self._signer.copy()
        for part in parts:
            signer.update(part)
        return signer.hexdigest().encode()
