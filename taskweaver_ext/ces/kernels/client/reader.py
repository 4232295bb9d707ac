"""The one thread that owns a kernel's connection, for as long as the kernel lives."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, TypeAlias, assert_never

from taskweaver_ext.ces.execution.cancellation import CancellationToken
from taskweaver_ext.ces.execution.events import InputSettled, StatusChanged
from taskweaver_ext.ces.execution.looks import RunningCode
from taskweaver_ext.ces.execution.results import (
    Cause,
    ExecutionId,
    ExecutionStatus,
    HostNotice,
    KernelDeath,
    Notice,
    StreamName,
)
from taskweaver_ext.ces.kernels.client.deadlines import NEVER, Deadlines, StopReason
from taskweaver_ext.ces.kernels.client.execution import Execution
from taskweaver_ext.ces.kernels.client.host import (
    ExecuteRequest,
    ExecutionEnded,
    InputWanted,
    KernelConnection,
    KernelGone,
    KernelHost,
    MessageReceived,
    OutputReceived,
    PieceReceived,
    Received,
    RunsReceived,
)
from taskweaver_ext.ces.kernels.client.liveness import UNRESPONSIVE_SECONDS, Liveness
from taskweaver_ext.ces.kernels.client.looks import Answer, UnansweredLooks
from taskweaver_ext.ces.kernels.client.received_json import MAX_DEPTH
from taskweaver_ext.errors import ProtocolError
from taskweaver_ext.text.json_depth import is_nested_deeper

GRACE_SECONDS = 2.0
"""How long interrupted code may take to end before its kernel is killed."""

SHUTDOWN_SECONDS = 1.0
"""How long an idle kernel may take to end by itself: exit handlers run, files are flushed."""

_REMEMBERED_EXECUTIONS = 10_000
_BROKEN = "code had broken its internals, so that it could not go on, and it ended itself"
_MAX_VOID_QUESTIONS = 100

OnLateOutput: TypeAlias = Callable[[ExecutionId, StreamName, bytes], None]

_log = logging.getLogger(__name__)


class KernelReader:
    """Run executions one after another and take in all that the kernel says.

    Spills first and never calls out: whatever the caller's callbacks do, the
    kernel's output keeps flowing into the record.

    Threads:
        The reader owns `_connection` and the fields of the running execution.
        `submit`, `answer`, `look`, `stop` and a cancelled token are safe from any
        thread: they only queue a step and wake the reader. `_lock` guards
        `_has_ended`, so that no step is queued for a reader that is gone.
        `answers` reads `_is_gone`, which only the reader sets, once.
    """

    def __init__(
        self,
        host: KernelHost,
        connection: KernelConnection,
        on_late_output: OnLateOutput,
        name: str,
        unresponsive_seconds: float | None = UNRESPONSIVE_SECONDS,
    ) -> None:
        self._host = host
        self._connection = connection
        self._on_late_output = on_late_output
        self._lock = threading.Lock()
        self._has_ended = False
        self._steps: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._execution_ids: dict[int, ExecutionId] = {}
        self._ordinal = 0
        self._began_at = 0.0
        self._running: Execution | None = None
        self._deadlines = Deadlines()
        self._has_killed = False
        self._question = 0
        self._void_questions = 0
        self._stop_at = NEVER
        self._liveness = Liveness(unresponsive_seconds)
        self._looks = UnansweredLooks()
        self._is_broken = False
        self._is_gone = False
        self.death: KernelDeath | None = None
        """How the kernel died; set before the running execution ends."""
        self._thread = threading.Thread(
            target=self._run, name=f"taskweaver-reader-{name}", daemon=True
        )

    def start(self) -> None:
        """Begin to read; the connection is closed should that fail, and when the reader ends."""
        try:
            self._thread.start()
        except RuntimeError:  # the machine has no thread left for it
            self._connection.close()
            raise

    def submit(self, execution: Execution) -> None:
        """Start an execution, unless it is cancelled by then; the one before it must have ended.

        When it is cancelled later it is interrupted, and its kernel killed if that does not help.
        """
        if not self._post(lambda: self._start(execution)):
            self._end_unheard(execution)

    def answer(self, execution: Execution, question: int, text: str) -> None:
        """Answer an execution's question, if it still waits for this one."""
        self._post(lambda: self._answer(execution, question, text))

    def look(self, what: str, arguments: dict[str, Any], seconds: float) -> Answer:
        """Return what the kernel answers, past the code that runs; raises LookFailedError."""
        pending = self._looks.begin(what, arguments)
        self._post(lambda: self._connection.ask(pending.question))
        return pending.wait(seconds)

    @property
    def running(self) -> RunningCode | None:
        """What runs, and for how long; from any thread."""
        execution, began_at = self._running, self._began_at
        if execution is None:
            return None
        return RunningCode(execution_id=execution.id, seconds=time.monotonic() - began_at)

    def answers(self, token: CancellationToken) -> bool:
        """Whether the kernel still answers; one that does not is killed, and the reader ends."""
        if self._liveness.wait_for_answer(token) or not self._connection.is_reachable:
            if not self._is_gone:
                return True
        else:
            self._post(self._give_up)
        self._thread.join()
        return False

    def stop(self) -> None:
        """End the kernel and the thread and wait for both; a running execution is cancelled."""
        self._post(self._shut_down)
        self._thread.join()

    def _post(self, step: Callable[[], None]) -> bool:
        """Queue a step for the reader; False when it has ended."""
        with self._lock:
            if self._has_ended:
                return False
            self._steps.put(step)
        self._connection.wake()
        return True

    def _run(self) -> None:
        """Read until the kernel is gone or the reader is stopped."""
        try:
            while self.death is None and time.monotonic() < self._stop_at:
                for received in self._connection.receive(self._seconds_to_next_deadline()):
                    self._receive(received)
                while not self._steps.empty():
                    self._steps.get()()
                self._keep_deadlines()
        except ProtocolError as error:  # code may write to the line what it likes
            self._host.kill()
            what = str(error).removesuffix(".")
            self._kernel_is_gone(f"killed, because nonsense came from it: {what}")
        except Exception:  # noqa: BLE001 - whatever broke, the execution must end
            _log.exception("the reader of a kernel failed; the kernel is killed")
            self._host.kill()
            self._kernel_is_gone()
        finally:
            self._end_what_is_left()
            self._connection.close()

    def _start(self, execution: Execution) -> None:
        if self._has_ended or self.death is not None:
            self._end_unheard(execution)
            return
        if execution.token.is_cancelled:
            execution.end_before_it_began()
            return
        self._ordinal += 1
        self._execution_ids[self._ordinal] = execution.id
        self._execution_ids.pop(self._ordinal - _REMEMBERED_EXECUTIONS, None)
        self._began_at = time.monotonic()
        self._running = execution
        self._deadlines = Deadlines(execution.timeout)
        self._void_questions = 0
        self._liveness.execution_sent()
        execution.say(StatusChanged(execution_id=execution.id, status="running"))
        self._connection.execute(
            ExecuteRequest(
                ordinal=self._ordinal,
                code=execution.code,
                allow_stdin=execution.allow_stdin,
                metadata=execution.metadata,
            )
        )
        execution.stop_with(
            lambda kill_after: self._post(lambda: self._interrupt(execution, kill_after))
        )

    def _receive(self, received: Received) -> None:
        match received:
            case OutputReceived():
                self._receive_output(received)
            case RunsReceived():
                self._receive_runs(received)
            case MessageReceived():
                self._receive_message(received)
            case PieceReceived():
                if execution := self._running_as(received.ordinal):
                    execution.receive_piece(received)
            case ExecutionEnded():
                if execution := self._running_as(received.ordinal):
                    self._receive_end(execution, received)
            case InputWanted():
                self._ask(received)
            case HostNotice():
                self._receive_notice(received)
            case KernelGone():
                self._kernel_is_gone()
            case _:
                assert_never(received)

    def _receive_message(self, message: MessageReceived) -> None:
        execution = self._running_as(message.ordinal)
        match message.message_type:
            case "alive":
                self._liveness.answered()
            case "looked":
                self._receive_answer(message.content)
            case "broken":
                self._is_broken = True
            case "started" if execution is not None:
                self._liveness.execution_began()
                self._code_has_started()
            case _ if execution is not None:
                self._receive_published(execution, message)

    def _receive_answer(self, answer: Answer) -> None:
        running = answer.get("running")
        if isinstance(running, dict) and running.get("ordinal") == self._ordinal and self._running:
            running["execution_id"] = self._running.id
        self._looks.receive(answer)

    def _receive_published(self, execution: Execution, message: MessageReceived) -> None:
        try:
            if is_nested_deeper(message.content, MAX_DEPTH):
                raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
            execution.receive_message(message.message_type, message.content)
        except (AttributeError, KeyError, TypeError, ValueError, OSError) as error:
            # It comes from code, which may say anything; a disk may be full.
            text = f"A message of the code ({message.message_type}) was left out: {error}."
            execution.add_notice(Notice(kind="host", message=text))

    def _running_as(self, ordinal: int) -> Execution | None:
        if ordinal > self._ordinal:
            raise ProtocolError("A kernel spoke of an execution that it was not asked for.")
        return self._running if ordinal == self._ordinal else None

    def _receive_output(self, received: OutputReceived) -> None:
        execution = self._running_as(received.ordinal)
        if execution is not None:
            execution.receive_output(received.stream, received.data)
        elif execution_id := self._execution_ids.get(received.ordinal):
            self._on_late_output(execution_id, received.stream, received.data)

    def _receive_runs(self, received: RunsReceived) -> None:
        if execution := self._running_as(received.ordinal):
            execution.receive_runs(received.runs)
        else:
            for stream, data in received.runs:
                self._receive_output(OutputReceived(received.ordinal, stream, data))

    def _receive_end(self, execution: Execution, ended: ExecutionEnded) -> None:
        if self._has_killed:  # just as it ended: its variables are gone all the same
            self._kernel_is_gone()
            return
        if execution.has_too_much_output and self._deadlines.stop_reason is None:
            self._deadlines.stop_reason = "output_limit"
        was_too_late = self._deadlines.stop_reason == "cancelled" and ended.reply.is_ok
        if self._deadlines.stop_reason is None or was_too_late:
            execution.end_with_reply(ended.reply)
            self._forget_running()
        else:
            self._end_stopped(execution)

    def _receive_notice(self, notice: HostNotice) -> None:
        if self._running is not None:
            self._running.receive_notice(notice)

    def _ask(self, question: InputWanted) -> None:
        if self._running is None:
            return
        if not self._running.allow_stdin:
            raise ProtocolError("A kernel asked a question although nobody answers any.")
        if self._deadlines.awaits_answer:  # the code does not wait for the answer any more
            self._void_questions += 1
            self._settle_question("cancelled")
        if self._void_questions > _MAX_VOID_QUESTIONS:
            raise ProtocolError("A kernel asked one question after another without waiting.")
        self._deadlines.ask()
        self._question += 1
        self._running.ask(self._question, question)

    def _answer(self, execution: Execution, question: int, text: str) -> None:
        is_meant = execution is self._running and question == self._question
        if is_meant and self._deadlines.awaits_answer:
            self._settle_question("answered")
            self._connection.answer(text)

    def _settle_question(self, outcome: Literal["answered", "cancelled"]) -> None:
        if self._deadlines.awaits_answer and self._running is not None:
            self._deadlines.settle_question()
            self._running.say(InputSettled(execution_id=self._running.id, outcome=outcome))

    def _interrupt(self, execution: Execution, kill_after: float | None) -> None:
        if execution is self._running:
            self._stop_running(self._deadlines.stop_reason or "cancelled", kill_after)

    def _stop_running(self, reason: StopReason, kill_after: float | None) -> None:
        assert self._running is not None
        self._deadlines.stop(reason, kill_after)
        self._settle_question("cancelled")
        self._running.say(StatusChanged(execution_id=self._running.id, status="interrupting"))
        if self._deadlines.has_started:
            self._host.interrupt()

    def _code_has_started(self) -> None:
        """Interrupt it now, if that was to be done before it could take effect."""
        self._deadlines.has_started = True
        if self._deadlines.stop_reason is not None:
            self._host.interrupt()

    def _seconds_to_next_deadline(self) -> float | None:
        deadline = min(self._deadlines.next, self._stop_at, self._liveness.next_deadline)
        return None if deadline == NEVER else max(0.0, deadline - time.monotonic())

    def _keep_deadlines(self) -> None:
        if self._liveness.must_ask():
            self._connection.ask_if_alive()
        if self._running is None:
            return
        if self._liveness.has_failed_to_begin():
            self._expect_it_to_begin()
        if self._running is not None:
            self._keep_deadlines_of_running()

    def _expect_it_to_begin(self) -> None:
        """The kernel has not begun for long; it has more time where it cannot be heard."""
        if self._connection.is_reachable and self._connection.tells_beginnings:
            self._give_up()
        else:
            self._liveness.execution_sent()

    def _give_up(self) -> None:
        """The kernel lives, but does not work any more."""
        self._host.kill()
        self._kernel_is_gone(self._liveness.why_it_is_given_up(), cause="unresponsive")

    def _keep_deadlines_of_running(self) -> None:
        assert self._running is not None
        if self._running.has_too_much_output and self._deadlines.stop_reason is None:
            self._stop_running("output_limit", GRACE_SECONDS)
        if self._deadlines.is_time_up():
            self._stop_running("timeout", GRACE_SECONDS)
        if self._deadlines.is_start_overdue():
            self._code_has_started()  # it cannot tell, and has had time enough
        if self._deadlines.must_kill():
            self._has_killed = True
            self._running.say(StatusChanged(execution_id=self._running.id, status="killing"))
            self._host.kill()

    def _kernel_is_gone(self, reason: str = "", cause: Cause | None = None) -> None:
        self._is_gone = True  # how it died is known a moment later
        death = self._host.death() or KernelDeath(
            cause="unknown", detail="the connection to the kernel broke"
        )
        if self._is_broken:
            reason, cause = _BROKEN, "unresponsive"
        self.death = replace(death, detail=reason or death.detail, cause=cause or death.cause)
        if self._running is None:
            return
        if self._deadlines.stop_reason is None:
            status, why = ExecutionStatus.DIED, f"The kernel died: {self.death.detail}."
        else:
            status, why = self._deadlines.how_it_was_stopped()
            if self._deadlines.stop_reason != "stopped":
                why += " The code did not end when it was interrupted, so its kernel was killed."
        self._settle_question("cancelled")
        self._running.end_with_death(
            self.death, status, f"{why} Its variables are lost; the next execution starts afresh."
        )
        self._forget_running()

    def _end_stopped(self, execution: Execution) -> None:
        self._settle_question("cancelled")
        execution.end(*self._deadlines.how_it_was_stopped())
        self._forget_running()

    def _end_what_is_left(self) -> None:
        """End every execution that the reader still knows of; no more are accepted."""
        self._liveness.stop_waiting()
        self._looks.stop()
        with self._lock:
            self._has_ended = True
        while not self._steps.empty():
            self._steps.get()()
        if self._running is not None:
            self._end_stopped(self._running)

    def _end_unheard(self, execution: Execution) -> None:
        """The kernel was gone before the code could start."""
        death = self.death or KernelDeath(cause="unknown", detail="it was stopped")
        error = f"The kernel was gone before the code could run: {death.detail}."
        execution.end_with_death(death, ExecutionStatus.DIED, error)

    def _forget_running(self) -> None:
        self._running = None
        self._deadlines = Deadlines()
        self._liveness.execution_ended()

    def _shut_down(self) -> None:
        self._stop_at = time.monotonic() + SHUTDOWN_SECONDS
        if self._running is None:
            self._connection.request_shutdown()
        else:
            self._deadlines.stop_reason = "stopped"
            self._host.kill()
