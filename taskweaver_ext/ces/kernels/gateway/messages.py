"""Jupyter's messages as a gateway's websocket carries them, in both of its protocols."""

from __future__ import annotations

import itertools
import json
import struct
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from taskweaver_ext.ces.execution.results import StreamName
from taskweaver_ext.ces.inside.kernel import iopub_sender
from taskweaver_ext.ces.kernels.client.checked_fields import CheckedFields
from taskweaver_ext.ces.kernels.client.jupyter_messages import MessageHeaders
from taskweaver_ext.errors import ProtocolError

SUBPROTOCOL = "v1.kernel.websocket.jupyter.org"
"""Messages as their parts and where each begins: ten times as fast as the older form."""

_MAX_ERROR_CHARACTERS = 1000
_SENDER = "The gateway"

Channel: TypeAlias = Literal["shell", "control", "stdin"]


@dataclass(frozen=True, slots=True)
class FramesPiece:
    """A piece of what our runtime in the kernel says; `received_frames.py` puts them together."""

    start: int
    """Where in the stream of frames it belongs."""
    data: bytes
    wants_receipt: bool = False
    answers: str = ""
    """Which request for the missing this is the end of."""
    ending: dict[str, int] | None = None
    """How the kernel says that it might end now."""


@dataclass(frozen=True, slots=True)
class KernelStatus:
    """A kernel is busy, idle, starting or dead."""

    state: str
    parent_id: str


@dataclass(frozen=True, slots=True)
class StreamText:
    """Text that was written past our runtime."""

    stream: StreamName
    text: str


@dataclass(frozen=True, slots=True)
class ExecuteReply:
    """The end of a request that ran code, by the kernel's own account."""

    parent_id: str
    status: str
    error: str
    """Its name and its words, if it failed."""


@dataclass(frozen=True, slots=True)
class ShutdownReply:
    """The kernel was told to end."""


GatewayMessage: TypeAlias = FramesPiece | KernelStatus | StreamText | ExecuteReply | ShutdownReply


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

    def unpack(self, data: bytes, *, is_text: bool) -> GatewayMessage | None:
        """Read a websocket message; None for one of which nothing is wanted.

        The only place that looks at what a gateway sends: behind it everything is of its type.

        Raises:
            ProtocolError: It is not as Jupyter's messages are, or not as our kernel's.
        """
        try:
            parts = self._parts(data, is_text=is_text)
        except (ValueError, KeyError, IndexError, RecursionError, struct.error) as error:
            raise ProtocolError("The gateway sent a message that is not Jupyter's.") from error
        return _checked(parts)

    def _parts(self, data: bytes, *, is_text: bool) -> _Parts:
        if is_text:
            return _from_object(json.loads(data), b"")
        return self._unpack_old(data) if self.is_old_protocol else _unpack_parts(data)

    def _unpack_old(self, data: bytes) -> _Parts:
        (count,) = struct.unpack_from("!I", data)
        offsets = [*struct.unpack_from(f"!{count}I", data, 4), len(data)]
        buffer = data[offsets[1] : offsets[2]] if count > 1 else b""
        return _from_object(json.loads(data[offsets[0] : offsets[1]]), buffer)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a message is made of, of whatever type each part is."""

    header: Any
    parent_header: Any
    content: Any
    buffer: bytes
    """The first, if there is any."""


def _unpack_parts(data: bytes) -> _Parts:
    (count,) = struct.unpack_from("<Q", data)
    offsets = struct.unpack_from(f"<{count}Q", data, 8)
    if any(start > end for start, end in itertools.pairwise(offsets)):
        raise ValueError("parts that overlap")
    pieces = [data[start:end] for start, end in itertools.pairwise(offsets[:7])]
    header, parent_header, content = (json.loads(pieces[number]) for number in (1, 2, 4))
    return _Parts(header, parent_header, content, pieces[5] if len(pieces) > 5 else b"")


def _from_object(message: Any, buffer: bytes) -> _Parts:  # noqa: ANN401 - whatever JSON it is
    if not isinstance(message, dict):
        raise ValueError("not an object")
    parent_header = message.get("parent_header", {})
    return _Parts(message["header"], parent_header, message.get("content", {}), buffer)


def _checked(parts: _Parts) -> GatewayMessage | None:
    content = CheckedFields(parts.content, _SENDER)
    match CheckedFields(parts.header, _SENDER).text("msg_type"):
        case iopub_sender.FRAMES:
            return FramesPiece(
                start=content.count("start"),
                data=parts.buffer,
                wants_receipt=content.value("wants_receipt", False) is True,
                answers=content.text("answers", ""),
                ending=_ending(content.value("ending", None)),
            )
        case "status":
            parent_id = CheckedFields(parts.parent_header, _SENDER).text("msg_id", "")
            return KernelStatus(content.text("execution_state"), parent_id)
        case "stream":
            is_error = content.value("name", "") == "stderr"
            return StreamText("stderr" if is_error else "stdout", content.text("text"))
        case "execute_reply":
            parent_id = CheckedFields(parts.parent_header, _SENDER).text("msg_id", "")
            error = f"{content.text('ename', '')}: {content.text('evalue', '')}"
            return ExecuteReply(parent_id, content.text("status"), error[:_MAX_ERROR_CHARACTERS])
        case "shutdown_reply":
            return ShutdownReply()
    return None


def _ending(value: object) -> dict[str, int] | None:
    """What code has said of how it ends: it may call `os._exit` with anything."""
    if not isinstance(value, dict):
        return None
    return {name: number for name, number in value.items() if type(number) is int}
