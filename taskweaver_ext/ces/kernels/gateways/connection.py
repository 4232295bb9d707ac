"""The line to a kernel behind a gateway: complete and in order, also across broken websockets.

What the kernel says is one stream of bytes (`kernel_runtime/published.py` is
its other end). We tell how far we have received; after a break, or when the
gateway has dropped something, the kernel sends again what is missing, and we
send again what may not have arrived there.
"""

from __future__ import annotations

import logging
import re
import select
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from taskweaver_ext.ces.kernel_runtime.published import END, FRAMES, RECEIVED, RESEND
from taskweaver_ext.ces.kernels.frames import FrameReader
from taskweaver_ext.ces.kernels.gateways.line import (
    GatewayLine,
    LineRefusedError,
    NobodyListensError,
)
from taskweaver_ext.ces.kernels.gateways.messages import Channel, GatewayMessage, GatewayMessages
from taskweaver_ext.ces.kernels.host import (
    ExecuteRequest,
    ExecutionEnded,
    HostNotice,
    KernelGone,
    MessageReceived,
    OutputReceived,
    Received,
)
from taskweaver_ext.ces.kernels.wire import Waker

OpenLine = Callable[[GatewayMessages, float], GatewayLine]

_RATE_LIMIT = re.compile(r"IOPub (message|data) rate exceeded")
_PAUSE_SECONDS = 0.01
"""Between two messages of a kernel whose gateway has dropped some: 100 in a second."""
_LINE_SECONDS = 5.0
_RETRY_SECONDS = (0.05, 0.2, 0.5, 1.0)
_RETURN_SECONDS = 2.0
"""How long a gateway of this machine may be gone: its kernels have ended with it."""
_LOOK_SECONDS = (1.0, 10.0)
"""When a silent kernel is first looked for on the gateway, and how long the pauses get."""
_MESSAGES_AT_ONCE = 64
_ASK_AGAIN_SECONDS = 2.0
_MAX_CODE_CHARACTERS = 8_000_000
"""A gateway closes the websocket on a message of more than 10 MB."""
_DEAD_STATES = frozenset(("restarting", "dead"))

_log = logging.getLogger(__name__)


class GatewayConnection:
    """A `KernelConnection` over websockets.

    Threads:
        Belongs to one thread at a time, except `wake`, `end_kernel` and `mark_gone`.
        `_line` is replaced by the owner only; sending on one that was just
        closed is a ConnectionError like any other.
    """

    def __init__(
        self,
        open_line: OpenLine,
        *,
        request_end: Callable[[], None],
        is_known: Callable[[], bool],
        reconnect_seconds: float,
    ) -> None:
        """Belong to a kernel.

        Args:
            open_line: Called for the first line and after each break.
            request_end: Has the gateway end the kernel, without waiting for it.
            is_known: Whether the gateway still has the kernel.
            reconnect_seconds: How long the gateway may be out of reach.
        """
        self._open_line = open_line
        self._request_end = request_end
        self._is_known = is_known
        self._reconnect_seconds = reconnect_seconds
        self._messages = GatewayMessages()
        self._line: GatewayLine | None = None
        self._waker = Waker()
        self._frames = FrameReader()
        self._received = 0
        self._request: ExecuteRequest | None = None
        self._too_long: ExecuteRequest | None = None
        self._answer: str | None = None
        self._is_interrupted = False
        self._has_started = False
        self._latest_ordinal = 0
        self._resend_id = ""
        self._asked_at = 0.0
        self._is_rate_limited = False
        self._lost_at = 0.0
        self._heard_at = 0.0
        self._failures = 0
        self._look_at = 0.0
        self._look_pause = 0.0
        self._is_gone = threading.Event()
        self._has_said_so = False
        self.replies: dict[str, dict[str, Any]] = {}
        """What shell requests other than executions were answered, by message id."""
        self.ending: dict[str, int] = {}
        """How the kernel said that it might end, if that was its last word."""
        self.loss = ""
        """Why the kernel counts as gone, in words."""

    def open(self, seconds: float) -> None:
        """Open the first line; raises ConnectionError."""
        self._line = self._open_line(self._messages, seconds)

    def execute(self, request: ExecuteRequest) -> None:
        """Send a request, now or as soon as there is a line again."""
        self._latest_ordinal = request.ordinal
        if len(request.code) > _MAX_CODE_CHARACTERS:
            self._too_long = request
            self.wake()
            return
        self._request = request
        self._is_interrupted = self._has_started = False
        self._look_later(_LOOK_SECONDS[0])
        self._send_request(request)

    def _send_request(self, request: ExecuteRequest) -> None:
        self.run(
            request.code,
            silent=False,
            allow_stdin=request.allow_stdin,
            metadata={"taskweaver": {"ordinal": request.ordinal, **request.metadata}},
        )

    def run(
        self,
        code: str,
        *,
        silent: bool = True,
        allow_stdin: bool = False,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        """Send code to be run; returns the message's id."""
        content = {
            "code": code,
            "silent": silent,
            "store_history": not silent,
            "user_expressions": {},
            "allow_stdin": allow_stdin,
            "stop_on_error": False,
        }
        return self._send("shell", "execute_request", content, metadata)

    def answer(self, text: str) -> None:
        """Answer a question."""
        self._answer = text
        self._send("stdin", "input_reply", {"value": text})

    def interrupt(self) -> None:
        """Interrupt what runs; what ends meanwhile, and what runs then, is not hit by it."""
        self._is_interrupted = True
        self._send_interrupt()

    def _send_interrupt(self) -> None:
        metadata = {"taskweaver": {"ordinal": self._latest_ordinal}}
        self._send("control", "interrupt_request", {}, metadata)

    def request_shutdown(self) -> None:
        """Let the gateway end the kernel: one that ended by itself would be started again."""
        self._request_end()

    def end_kernel(self) -> None:
        """Tell the kernel to kill itself and its children, from any thread."""
        self._send("control", END, {})

    def mark_gone(self, why: str) -> None:
        """The kernel is no more, from any thread."""
        self.loss = self.loss or why
        self._is_gone.set()
        self.wake()

    def wake(self) -> None:
        """Make `receive` return."""
        self._waker.wake()

    def close(self) -> None:
        """Close the line."""
        if self._line is not None:
            self._line.close()
        self._waker.close()

    def _send(
        self,
        channel: Channel,
        message_type: str,
        content: dict[str, Any],
        metadata: dict[str, Any] | None = None,
    ) -> str:
        """Send if there is a line; one that is broken is noticed by whoever reads it."""
        header = self._messages.header(message_type)
        line = self._line
        if line is not None:
            try:
                line.send(channel, header, content, metadata)
            except ConnectionError as error:
                _log.debug("could not send %s: %s", message_type, error)
        return header["msg_id"]

    def receive(self, timeout: float | None) -> Iterator[Received]:
        """Wait until something arrives and give it."""
        if self._has_said_so:
            return
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._too_long is not None:
            yield self._refuse(self._too_long)
            self._too_long = None
        try:
            if self._line is None:
                yield from self._try_to_reconnect(deadline)
            elif self._wait(self._line, deadline):
                yield from self._read(self._line)
            else:
                self._look_if_silent()
        except ConnectionError as error:
            self._lose_line(error)
        if self._is_gone.is_set():
            yield from self._receive_the_last()

    def _refuse(self, request: ExecuteRequest) -> ExecutionEnded:
        why = (
            f"The code has {len(request.code):,} characters; gateways take messages of at most"
            " 10 MB. Put the data into a file and read it."
        )
        return ExecutionEnded(request.ordinal, {"status": "error", "evalue": why})

    def _wait(self, line: GatewayLine, deadline: float | None) -> bool:
        """Wait for the line; False when something else ended the wait."""
        if line.has_more_than_the_socket_shows():
            return True
        line.acknowledge_quickly()
        if ready := self._poll(0.0, line):
            return line.fileno() in ready
        next_ping = line.keep_alive()
        self._ask_again_if_unanswered()
        wait_until = next_ping if deadline is None else min(next_ping, deadline)
        return line.fileno() in self._poll(wait_until - time.monotonic(), line)

    def _look_if_silent(self) -> None:
        """Silence may mean that code takes its time, or that somebody else has ended the kernel,
        or that what was said has been lost without a sign."""
        if self._request is None or time.monotonic() < self._look_at:
            return
        self._look_later(min(2 * self._look_pause, _LOOK_SECONDS[1]))
        if not self._is_known():
            self.mark_gone("the gateway does not know it any more")
            return
        self._ask_for_the_missing()
        if not self._has_started:
            self._send_request(self._request)  # one that it has already is not run twice

    def _look_later(self, pause: float) -> None:
        self._look_pause = pause
        self._look_at = time.monotonic() + pause

    def _poll(self, seconds: float, line: GatewayLine | None) -> set[int]:
        poller = select.poll()
        poller.register(self._waker, select.POLLIN)
        if line is not None:
            poller.register(line, select.POLLIN)
        ready = {descriptor for descriptor, _ in poller.poll(max(0.0, seconds * 1000))}
        if self._waker.fileno() in ready:
            self._waker.clear()
        return ready

    def _read(self, line: GatewayLine) -> Iterator[Received]:
        for _ in range(_MESSAGES_AT_ONCE):
            if message := line.read():
                yield from self._take(message)
            line.acknowledge_quickly()
            if not line.has_more_than_the_socket_shows() and not self._is_readable(line):
                return

    def _is_readable(self, line: GatewayLine) -> bool:
        poller = select.poll()
        poller.register(line, select.POLLIN)
        return bool(poller.poll(0))

    def _take(self, message: GatewayMessage) -> Iterator[Received]:
        content = message.content
        if message.message_type == FRAMES:
            yield from self._take_frames(content, message.buffer)
        elif message.message_type == "status":
            self._take_status(content.get("execution_state", ""), message.parent_id)
        elif message.message_type == "stream":
            yield from self._take_stream(content)
        elif message.message_type == "execute_reply" and self._latest_ordinal == 0:
            self.replies[message.parent_id] = content
        elif message.message_type == "shutdown_reply":
            self.mark_gone("it was ended on the gateway, not by us")

    def _take_frames(self, content: dict[str, Any], data: bytes) -> Iterator[Received]:
        missing = int(content["start"]) - self._received
        if missing > 0:
            self._ask_for_the_missing()
            return
        if content.get("answers") == self._resend_id:
            self._resend_id = ""
        fresh = data[-missing:] if missing else data
        self._received += len(fresh)
        if fresh:
            self._answer = None
            self._look_later(_LOOK_SECONDS[0])
        self.ending = content.get("ending", {} if fresh else self.ending)
        for received in self._frames.feed(fresh):
            self._note(received)
            yield received
        if content.get("wants_receipt"):
            # After what it brought was taken in, so that a slow reader slows the kernel down.
            self._send("control", RECEIVED, {"received": self._received})

    def _note(self, received: Received) -> None:
        match received:
            case ExecutionEnded(ordinal=self._latest_ordinal):
                self._request = None
            case MessageReceived(ordinal=self._latest_ordinal, message_type="started"):
                self._has_started = True
                if self._is_interrupted:
                    self._send_interrupt()  # the one before came too early to be heeded

    def _take_status(self, state: str, parent_id: str) -> None:
        has_died = state in _DEAD_STATES or (state == "starting" and self._received > 0)
        # A kernel that is not ours (any more) gets to the end of our request without an answer.
        knows_us_not = (
            state == "idle"
            and self._resend_id != ""
            and parent_id == self._resend_id
            and self._received > 0
            and not self._is_rate_limited
        )
        if has_died or knows_us_not:
            self.mark_gone("its process died and the gateway started another")

    def _take_stream(self, content: dict[str, Any]) -> Iterator[Received]:
        """Our kernels do not publish streams: this is the gateway's word, or a stray writer's."""
        text = str(content.get("text", ""))
        if not (found := _RATE_LIMIT.match(text)):
            stream = "stderr" if content.get("name") == "stderr" else "stdout"
            data = text.encode("utf-8", "backslashreplace")
            yield OutputReceived(self._latest_ordinal, stream, data)  # type: ignore[arg-type]
            return
        self._is_rate_limited = True
        self._ask_for_the_missing(pause_seconds=_PAUSE_SECONDS)
        yield HostNotice(
            "limit",
            f"The gateway's {found[1]} rate limit was exceeded and it dropped output; the kernel"
            " sends it again, more slowly. Raise the limit on the gateway"
            f" ({'iopub_msg_rate_limit' if found[1] == 'message' else 'iopub_data_rate_limit'}).",
        )

    def _ask_for_the_missing(self, pause_seconds: float | None = None) -> None:
        if self._resend_id and pause_seconds is None:
            return
        content: dict[str, float] = {"received": self._received}
        if pause_seconds is not None:
            content["pause_seconds"] = pause_seconds
        self._asked_at = time.monotonic()
        self._resend_id = self._send("control", RESEND, content)

    def _ask_again_if_unanswered(self) -> None:
        """The answer itself may have been dropped."""
        if self._resend_id and time.monotonic() - self._asked_at > _ASK_AGAIN_SECONDS:
            self._resend_id = ""
            self._ask_for_the_missing()

    def _lose_line(self, error: ConnectionError) -> None:
        _log.info("the line to a gateway's kernel broke: %s", error)
        self._lost_at = time.monotonic()
        if self._line is not None:
            self._heard_at = self._line.heard_at
            self._line.close()
        self._line = None
        self._failures = 0

    def _try_to_reconnect(self, deadline: float | None) -> Iterator[Received]:
        """Wait for the next attempt, then make it."""
        pause = _RETRY_SECONDS[min(self._failures, len(_RETRY_SECONDS) - 1)]
        if deadline is not None:
            pause = min(pause, max(0.0, deadline - time.monotonic()))
        if self._waker.fileno() in self._poll(pause, None):
            return
        try:
            line = self._open_line(self._messages, _LINE_SECONDS)
        except LineRefusedError as error:
            self.mark_gone(f"the gateway does not know it any more ({error})")
            return
        except ConnectionError as error:
            self._failures += 1
            lost_seconds = time.monotonic() - self._lost_at
            has_ended = isinstance(error, NobodyListensError)
            if lost_seconds > (_RETURN_SECONDS if has_ended else self._reconnect_seconds):
                self.mark_gone(f"the gateway was out of reach for {lost_seconds:.0f} s: {error}")
            return
        self._line = line
        lost_seconds = time.monotonic() - self._heard_at
        self._say_again()
        if self._request is not None:
            yield HostNotice(
                "resumed",
                f"The line to the gateway was broken for {lost_seconds:.1f} s; nothing was lost.",
            )

    def _say_again(self) -> None:
        """Ask for what we missed, and send again what may have been lost on its way."""
        self._resend_id = ""
        self._ask_for_the_missing()
        if self._request is not None:
            self._send_request(self._request)
            if self._is_interrupted:
                self._send_interrupt()
        if self._answer is not None:
            self._send("stdin", "input_reply", {"value": self._answer})

    def _receive_the_last(self) -> Iterator[Received]:
        """The kernel is gone: give what it had said."""
        try:
            while self._line is not None and (
                self._line.has_more_than_the_socket_shows() or self._is_readable(self._line)
            ):
                yield from self._read(self._line)
        except ConnectionError:
            pass  # as expected
        self._has_said_so = True
        yield KernelGone()
