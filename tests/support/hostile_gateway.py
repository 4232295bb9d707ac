"""A gateway that does as gateways do, up to the place at which it attacks.

    with HostileGateway("kernelspecs", page_of_1_gb) as gateway:
        ...                                 # have a client start a kernel at gateway.url

Its kernel is none: on its channel it says hello as our runtime does, and nothing more.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from typing import Any, Literal, TypeAlias

from taskweaver_ext.ces.inside.kernel.iopub_sender import FRAMES
from taskweaver_ext.ces.inside.kernel.wire import HEADER, HELLO
from tests.support.executions import LIMIT_SECONDS
from tests.support.hostile_server import Attack, HostileServer, Request, Send

Place: TypeAlias = Literal["kernelspecs", "start", "handshake", "hello", "kernel", "end"]
"""What is attacked: a request by HTTP, a channel that opens, or is open, or a kernel in use."""

KERNEL_ID = "f1b8a0de-0000-0000-0000-000000000000"

_HELLO = json.dumps({"key": "", "pid": 1, "pid_namespace": "elsewhere"}).encode()
HELLO_FRAME = HEADER.pack(HELLO, 0, len(_HELLO)) + _HELLO
"""What its kernel says first."""

_MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KERNELSPECS = {"default": "python3", "kernelspecs": {"python3": {"name": "python3"}}}


class HostileGateway(HostileServer):
    """Serve one attack at one place, and honest answers at all others."""

    def __init__(self, place: Place, attack: Attack) -> None:
        super().__init__(attack)
        self._place = place
        self.is_in_use = threading.Event()
        """When an attack on a kernel in use begins."""

    def answer(self, request: Request, send: Send) -> None:
        if "/channels" in request.line:
            self._open_channel(request, send)
        elif request.line.startswith("POST"):
            self._attack_or("start", send, json_answer({"id": KERNEL_ID}, "201 Created"))
        elif request.line.startswith("DELETE"):
            self._attack_or("end", send, b"HTTP/1.1 204 No Content\r\n\r\n")
        elif "/kernelspecs" in request.line:
            self._attack_or("kernelspecs", send, json_answer(_KERNELSPECS))
        else:
            send(json_answer({"id": KERNEL_ID}))

    def _attack_or(self, place: Place, send: Send, answer: bytes) -> None:
        if place == self._place:
            self.attack(send)
        else:
            send(answer)

    def _open_channel(self, request: Request, send: Send) -> None:
        if self._place == "handshake":
            self.attack(send)
            return
        proof = hashlib.sha1((request.headers["sec-websocket-key"] + _MAGIC).encode()).digest()
        send(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: %s\r\n\r\n" % base64.b64encode(proof)
        )
        if self._place == "hello":
            self.attack(send)
            return
        send(binary_message(FRAMES, {"start": 0}, HELLO_FRAME))
        self.is_in_use.wait(LIMIT_SECONDS)
        self.attack(send)
        self.stopped.wait(LIMIT_SECONDS)


def json_answer(content: object, status: str = "200 OK") -> bytes:
    """A whole HTTP answer."""
    body = json.dumps(content).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def websocket_frame(opcode: int, payload: bytes, *, announced: int | None = None) -> bytes:
    """A frame as servers send it, perhaps with another length than it has."""
    length = len(payload) if announced is None else announced
    return bytes((0x80 | opcode, 127)) + length.to_bytes(8, "big") + payload


def text_message(message_type: object, content: object) -> bytes:
    """A message of the older protocol, which all clients understand, as a frame."""
    message = {"header": {"msg_type": message_type}, "parent_header": {}, "content": content}
    return websocket_frame(1, json.dumps(message).encode())


def binary_message(message_type: str, content: dict[str, Any], buffer: bytes) -> bytes:
    """A message of the older protocol with a buffer, as a frame."""
    message = {"header": {"msg_type": message_type}, "parent_header": {}, "content": content}
    text = json.dumps(message).encode()
    offsets = (2, 12, 12 + len(text))
    head = b"".join(number.to_bytes(4, "big") for number in offsets)
    return websocket_frame(2, head + text + buffer)
