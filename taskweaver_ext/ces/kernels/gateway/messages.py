"""Jupyter's messages as a gateway's websocket carries them, in both of its protocols."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from taskweaver_ext.ces.kernels.client.jupyter_messages import MessageHeaders
from taskweaver_ext.errors import ProtocolError

SUBPROTOCOL = "v1.kernel.websocket.jupyter.org"
"""Messages as their parts and where each begins: ten times as fast as the older form."""

Channel: TypeAlias = Literal["shell", "control", "stdin"]


@dataclass(frozen=True, slots=True)
class GatewayMessage:
    """A message that was received."""

    channel: str
    message_type: str
    parent_id: str
    content: dict[str, Any]
    buffer: bytes
    """Its first buffer, if it has any."""


class GatewayMessages(MessageHeaders):
    """Make and read the messages of one client."""

    def __init__(self) -> None:
        super().__init__()
        self.is_old_protocol = False
        """True where the gateway does not speak `SUBPROTOCOL`."""

    def pack(
        self,
        channel: Channel,
        header: dict[str, str],
        content: dict[str, Any],
        metadata: dict[str, Any],
    ) -> bytes:
        """Make the payload of a websocket frame: binary, or text in the old protocol."""
        if self.is_old_protocol:
            message: dict[str, Any] = {
                "channel": channel,
                "header": header,
                "parent_header": {},
                "metadata": metadata,
                "content": content,
                "buffers": [],
            }
            return json.dumps(message).encode()
        parts = [channel.encode()]
        parts += (json.dumps(part).encode() for part in (header, {}, metadata, content))
        offsets = [8 * (len(parts) + 2)]
        for part in parts:
            offsets.append(offsets[-1] + len(part))
        start = struct.pack(f"<{len(offsets) + 1}Q", len(offsets), *offsets)
        return b"".join((start, *parts))

    def unpack(self, data: bytes, *, is_text: bool) -> GatewayMessage:
        """Read the payload of a websocket frame."""
        try:
            if is_text:
                return _from_object(json.loads(data), b"")
            return self._unpack_old(data) if self.is_old_protocol else _unpack_parts(data)
        except (ValueError, KeyError, IndexError, struct.error) as error:
            raise ProtocolError("The gateway sent a message that is not Jupyter's.") from error

    def _unpack_old(self, data: bytes) -> GatewayMessage:
        (count,) = struct.unpack_from("!I", data)
        offsets = [*struct.unpack_from(f"!{count}I", data, 4), len(data)]
        buffer = data[offsets[1] : offsets[2]] if count > 1 else b""
        return _from_object(json.loads(data[offsets[0] : offsets[1]]), buffer)


def _unpack_parts(data: bytes) -> GatewayMessage:
    (count,) = struct.unpack_from("<Q", data)
    offsets = struct.unpack_from(f"<{count}Q", data, 8)
    header = json.loads(data[offsets[1] : offsets[2]])
    parent = json.loads(data[offsets[2] : offsets[3]])
    content = json.loads(data[offsets[4] : offsets[5]])
    has_buffer = len(offsets) > 6
    return GatewayMessage(
        data[offsets[0] : offsets[1]].decode(),
        header["msg_type"],
        parent.get("msg_id", ""),
        content,
        data[offsets[5] : offsets[6]] if has_buffer else b"",
    )


def _from_object(message: dict[str, Any], buffer: bytes) -> GatewayMessage:
    return GatewayMessage(
        message.get("channel") or "",
        message["header"]["msg_type"],
        message.get("parent_header", {}).get("msg_id", ""),
        message.get("content", {}),
        buffer,
    )
