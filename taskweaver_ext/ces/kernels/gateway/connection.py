"""The channel to a kernel behind a gateway: complete and in order, also across broken websockets.

After a break, or when the gateway has dropped something, the kernel sends
again what is missing (`received_frames.py`), and we send again what may not
have arrived there.
"""

from __future__ import annotations

import re
import select
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, assert_never

from taskweaver_ext.ces.execution.results import HostNotice
from taskweaver_ext.ces.inside.kernel.iopub_sender import ASKED, END
from taskweaver_ext.ces.kernels.client.host import (
    ExecuteRequest,
    ExecutionEnded,
    ExecutionReply,
    KernelGone,
    MessageReceived,
    OutputReceived,
    Received,
)
from taskweaver_ext.ces.kernels.client.jupyter_messages import ALIVE, execute_content
from taskweaver_ext.ces.kernels.client.wire import Waker
from taskweaver_ext.ces.kernels.gateway.channel import (
    ChannelLostError,
    GatewayChannel,
    OpenChannel,
    ReconnectingChannel,
)
from taskweaver_ext.ces.kernels.gateway.messages import (
    ExecuteReply,
    FramesPiece,
    GatewayMessage,
    KernelStatus,
    ShutdownReply,
    StreamText,
)
from taskweaver_ext.ces.kernels.gateway.received_frames import ReceivedFrames

_RATE_LIMIT = re.compile(r"IOPub (message|data) rate exceeded")
_LOOK_SECONDS = (1.0, 10.0)
"""When a silent kernel is first looked for on the gateway, and how long the pauses get."""
_LAST_SECONDS = 5.0
_READ_SECONDS = 0.1
"""How long what arrives is read before anything else is looked after."""
_MAX_CODE_CHARACTERS = 8_000_000
"""A gateway closes the websocket on a message of more than 10 MB."""
_DEAD_STATES = frozenset(("restarting", "dead"))


class GatewayConnection:
    """A `KernelConnection` over websockets.

    Threads:
        Belongs to one thread at a time, except `wake`, `end_kernel` and `mark_gone`.
    """

    def __init__(
        self,
        open_channel: OpenChannel,
        *,
        request_end: Callable[[], None],
        is_known: Callable[[], bool],
        reconnect_seconds: float,
    ) -> None:
        """Belong to a kernel.

        Args:
            open_channel: Called for the first channel and after each break.
            request_end: Has the gateway end the kernel, without waiting for it.
            is_known: Whether the gateway still has the kernel.
            reconnect_seconds: How long the gateway may be out of reach.
        """
        self._channel = ReconnectingChannel(open_channel, reconnect_seconds)
        self._frames = ReceivedFrames(self._channel)
        self._request_end = request_end
        self._is_known = is_known
        self._waker = Waker()
        self._request: ExecuteRequest | None = None
        self._too_long: ExecuteRequest | None = None
        self._answer: str | None = None
        self._is_asked = False
        self._is_interrupted = False
        self._has_started = False
        self._latest_ordinal = 0
        self._look_at = 0.0
        self._look_pause = 0.0
        self._is_gone = threading.Event()
        self._has_said_so = False
        self._run_id = ""
        self.run_reply: ExecuteReply | None = None
        """How what `run` sent last has ended, by the kernel's own account."""
        self.loss = ""
        """Why the kernel counts as gone, in words."""

    @property
    def ending(self) -> dict[str, int]:
        """How the kernel said that it might end, if that was its last word."""
        return self._frames.ending

    def open(self, seconds: float) -> None:
        """Open the first channel; raises ConnectionError."""
        self._channel.open(seconds)

    def execute(self, request: ExecuteRequest) -> None:
        """Send a request, now or as soon as there is a channel again."""
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
    ) -> None:
        """Send code to be run."""
        content = execute_content(code, silent=silent, allow_stdin=allow_stdin)
        self._run_id = self._channel.send("shell", "execute_request", content, metadata)

    def ask_if_alive(self) -> None:
        """Ask the kernel whether it still works, now or as soon as there is a channel again."""
        self._is_asked = True
        self._look_later(_LOOK_SECONDS[0])
        self._channel.send("shell", "execute_request", execute_content("", silent=True), ALIVE)

    def ask(self, question: dict[str, Any]) -> None:
        """Ask on the control channel; while there is no channel nothing is asked."""
        self._channel.send("control", ASKED, question)

    @property
    def tells_beginnings(self) -> bool:
        """Another thread of the kernel says so, which code can keep from running."""
        return False

    @property
    def is_reachable(self) -> bool:
        """Whether there is a channel."""
        return self._channel.current is not None

    def answer(self, text: str) -> None:
        """Answer a question."""
        self._answer = text
        self._channel.send("stdin", "input_reply", {"value": text})

    def interrupt(self) -> None:
        """Interrupt what runs; what ends meanwhile, and what runs then, is not hit by it."""
        self._is_interrupted = True
        self._send_interrupt()

    def _send_interrupt(self) -> None:
        metadata = {"taskweaver": {"ordinal": self._latest_ordinal}}
        self._channel.send("control", "interrupt_request", {}, metadata)

    def request_shutdown(self) -> None:
        """Let the gateway end the kernel: one that ended by itself would be started again."""
        self._request_end()

    def end_kernel(self) -> None:
        """Tell the kernel to kill itself and its children, from any thread."""
        self._channel.send("control", END, {})

    def mark_gone(self, why: str) -> None:
        """The kernel is no more, from any thread."""
        self.loss = self.loss or why
        self._is_gone.set()
        self.wake()

    def wake(self) -> None:
        """Make `receive` return."""
        self._waker.wake()

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()
        self._waker.close()

    def receive(self, timeout: float | None) -> Iterator[Received]:
        """Wait until something arrives and give it."""
        if self._has_said_so:
            return
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._too_long is not None:
            yield _refuse(self._too_long)
            self._too_long = None
        try:
            channel = self._channel.current
            if channel is None:
                yield from self._try_to_reconnect(deadline)
            elif self._wait(channel, deadline):
                yield from self._read(channel)
            else:
                self._look_if_silent()
        except ConnectionError as error:
            self._channel.lose(error)
        if self._is_gone.is_set():
            yield from self._receive_the_last()

    def _wait(self, channel: GatewayChannel, deadline: float | None) -> bool:
        """Wait for the channel; False when something else ended the wait."""
        if channel.has_more_than_the_socket_shows():
            return True
        channel.acknowledge_quickly()
        if ready := self._poll(0.0, channel):
            return channel.fileno() in ready
        next_ping = channel.keep_alive()
        self._frames.ask_again_if_unanswered()
        wait_until = next_ping if deadline is None else min(next_ping, deadline)
        return channel.fileno() in self._poll(wait_until - time.monotonic(), channel)

    def _look_if_silent(self) -> None:
        """Silence may mean that code takes its time, or that another client has ended the kernel,
        or that what was said has been lost without a sign."""
        is_waited_for = self._request is not None or self._is_asked
        if not is_waited_for or time.monotonic() < self._look_at:
            return
        self._look_later(min(2 * self._look_pause, _LOOK_SECONDS[1]))
        if not self._is_known():
            self.mark_gone("the gateway does not know it any more")
            return
        self._frames.ask_for_the_missing()
        if self._request is not None and not self._has_started:
            self._send_request(self._request)  # one that it has already is not run twice

    def _look_later(self, pause: float) -> None:
        self._look_pause = pause
        self._look_at = time.monotonic() + pause

    def _poll(self, seconds: float, channel: GatewayChannel | None) -> set[int]:
        poller = select.poll()
        poller.register(self._waker, select.POLLIN)
        if channel is not None:
            poller.register(channel, select.POLLIN)
        ready = {descriptor for descriptor, _ in poller.poll(max(0.0, seconds * 1000))}
        if self._waker.fileno() in ready:
            self._waker.clear()
        return ready

    def _read(self, channel: GatewayChannel) -> Iterator[Received]:
        until = time.monotonic() + _READ_SECONDS
        while time.monotonic() < until:
            for message in channel.read():
                yield from self._receive_message(message)
            channel.acknowledge_quickly()
            if not channel.is_readable():
                return

    def _receive_message(self, message: GatewayMessage) -> Iterator[Received]:
        match message:
            case FramesPiece():
                yield from self._receive_frames(message)
            case KernelStatus():
                self._receive_status(message)
            case StreamText():
                yield from self._receive_stream(message)
            case ExecuteReply():
                if message.parent_id == self._run_id:
                    self.run_reply = message
            case ShutdownReply():
                self.mark_gone("it was ended on the gateway, not by us")
            case _:
                assert_never(message)

    def _receive_frames(self, piece: FramesPiece) -> Iterator[Received]:
        fresh = self._frames.accept(piece)
        if fresh is None:
            return
        if fresh:
            self._answer = None
            self._look_later(_LOOK_SECONDS[0])
        for received in self._frames.read(fresh):
            self._note(received)
            yield received
        if piece.wants_receipt:
            # After what it brought was read, so that a slow reader slows the kernel down.
            self._frames.confirm()

    def _note(self, received: Received) -> None:
        match received:
            case MessageReceived(message_type="alive"):
                self._is_asked = False
            case ExecutionEnded(ordinal=self._latest_ordinal):
                self._request = None
            case MessageReceived(ordinal=self._latest_ordinal, message_type="started"):
                self._has_started = True
                if self._is_interrupted:
                    self._send_interrupt()  # the one before came too early to be heeded

    def _receive_status(self, status: KernelStatus) -> None:
        is_other = status.state == "starting" and self._frames.has_begun
        is_lost = status.state == "idle" and self._frames.was_not_understood(status.parent_id)
        if status.state in _DEAD_STATES or is_other or is_lost:
            self.mark_gone("its process died and the gateway started another")

    def _receive_stream(self, written: StreamText) -> Iterator[Received]:
        """Our kernels do not publish streams: this is the gateway's word, or a stray writer's."""
        if not (found := _RATE_LIMIT.match(written.text)):
            data = written.text.encode("utf-8", "backslashreplace")
            yield OutputReceived(self._latest_ordinal, written.stream, data)
            return
        self._frames.slow_down()
        yield HostNotice(
            "limit",
            f"The gateway's {found[1]} rate limit was exceeded and it dropped output; the kernel"
            " sends it again, more slowly. Raise the limit on the gateway"
            f" ({'iopub_msg_rate_limit' if found[1] == 'message' else 'iopub_data_rate_limit'}).",
        )

    def _try_to_reconnect(self, deadline: float | None) -> Iterator[Received]:
        """Wait for the next attempt, then make it."""
        pause = self._channel.retry_seconds
        if deadline is not None:
            pause = min(pause, max(0.0, deadline - time.monotonic()))
        if self._waker.fileno() in self._poll(pause, None):
            return
        try:
            silent_seconds = self._channel.reopen()
        except ChannelLostError as error:
            self.mark_gone(str(error))
            return
        if silent_seconds is None:
            return
        self._say_again()
        if self._request is not None:
            yield HostNotice(
                "resumed",
                f"The line to the gateway was broken for {silent_seconds:.1f} s; nothing was lost.",
            )

    def _say_again(self) -> None:
        """Ask for what we missed, and send again what may have been lost on its way."""
        self._frames.begin_again()
        if self._is_asked:
            self.ask_if_alive()
        if self._request is not None:
            self._send_request(self._request)
            if self._is_interrupted:
                self._send_interrupt()
        if self._answer is not None:
            self._channel.send("stdin", "input_reply", {"value": self._answer})

    def _receive_the_last(self) -> Iterator[Received]:
        """The kernel is gone: give what it had said."""
        until = time.monotonic() + _LAST_SECONDS  # a gateway that never falls silent is no kernel
        try:
            while (channel := self._channel.current) is not None and channel.is_readable():
                yield from self._read(channel)
                if time.monotonic() > until:
                    break
        except ConnectionError:
            pass  # as expected
        self._has_said_so = True
        yield KernelGone()


def _refuse(request: ExecuteRequest) -> ExecutionEnded:
    why = (
        f"The code has {len(request.code):,} characters; gateways take messages of at most"
        " 10 MB. Put the data into a file and read it."
    )
    return ExecutionEnded(request.ordinal, ExecutionReply(is_ok=False, error_text=why))
