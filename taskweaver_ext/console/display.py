"""The thread that owns the terminal: draws what happens while another thread works.

The caller's thread (the main one) draws and asks; the work is done on a thread of its own.
It wakes when there is something to show, and while work goes on to turn the spinner;
when nothing runs, nothing wakes at all. What comes after quiet is shown at once; then the screen
changes at most `MAX_UPDATES_PER_SECOND` times a second, or, while it is only a line of output
now and then, as often as twice that.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Protocol, TypeVar, cast

from taskweaver_ext.approval import ApprovalRequest
from taskweaver_ext.ces.kernels.client.execution import END_OF_INPUT
from taskweaver_ext.config import variables
from taskweaver_ext.console.inbox import (
    ConsoleLine,
    Inbox,
    Item,
    Question,
    StopRequested,
    StopStage,
    SuspendRequested,
    TerminalWanted,
    WorkEnded,
)
from taskweaver_ext.console.prompt import QuestionRefusedError
from taskweaver_ext.console.screen import Screen
from taskweaver_ext.console.transcript import Transcript
from taskweaver_ext.events.extras import AnsweredExtra, QuestionId
from taskweaver_ext.events.types import PostEventType, SessionEventType, TaskWeaverEvent

MAX_UPDATES_PER_SECOND = 30
_UPDATE_SECONDS = 1 / MAX_UPDATES_PER_SECOND
_LIGHT_UPDATE_SECONDS = _UPDATE_SECONDS / 2
_LIGHT_CHARS = 500
"""Showing no more output than this costs next to nothing."""
_SPINNER_SECONDS = 0.125
_LONG_ROWS_PER_UPDATE = 500

T = TypeVar("T")


class Asker(Protocol):
    """Asks a person; `ask` is for the thread that owns the terminal, all else for any."""

    on_begin: Callable[[], None] | None
    """Called on that thread as soon as a question waits."""

    @property
    def how_to_edit(self) -> str:
        """How code is edited here, in a sentence or two."""

    def ask(self, question: Question) -> str:
        """Wait for an answer; raises EOFError or QuestionRefusedError where none comes."""

    def run_above(self, show: Callable[[], None]) -> None:
        """Call `show` on the terminal's thread, with the question out of the way."""

    def withdraw(self) -> None:
        """Make a question that waits raise EOFError."""

    def give_up(self) -> None:
        """Make a question that waits raise QuestionRefusedError."""


class Display:
    """Shows a session on a screen."""

    def __init__(
        self,
        screen: Screen,
        transcript: Transcript,
        prompt: Asker | None = None,
        *,
        has_spinner: bool = True,
    ) -> None:
        """Own the screen.

        Args:
            prompt: Asks questions; without it none can be asked.
            has_spinner: Whether live rows are shown.
        """
        self.inbox = Inbox()
        self.transcript = transcript
        self._screen = screen
        self._prompt = prompt
        self._has_spinner = has_spinner
        self._began = 0.0
        self._drawn_at = 0.0
        self._is_stale = False
        self._is_light = True
        """Whether what is not drawn yet is little output, and nothing else."""
        self._new_chars = 0
        self._has_ended = False
        self._asked: Question | None = None
        self._is_showing = False
        self._questions: list[Question] = []
        self._answered: set[QuestionId] = set()
        """What the session need not be told any more."""

    def run(self, do: Callable[[], T], on_question_refused: Callable[[], None]) -> T:
        """Do something on another thread and show what happens meanwhile.

        Args:
            on_question_refused: Called when the person presses Ctrl-C instead of answering.
        """
        self._began = time.monotonic()
        self._has_ended = False
        outcome: Future[T] = Future()
        thread = threading.Thread(
            target=self._work, args=(do, outcome), name="taskweaver-chat-execution"
        )
        thread.start()
        try:
            while not self._has_ended:
                self._receive(self.inbox.receive(self._wait_seconds()))
                while self._questions and not self._has_ended:
                    self._ask(self._questions.pop(0), on_question_refused)
                if time.monotonic() >= self._next_draw:
                    self.draw()
        finally:
            self.settle()
        thread.join()
        return outcome.result()

    def draw(self) -> None:
        """Bring the screen up to date."""
        self.measure()
        is_live = self._has_spinner and not self._has_ended and self._asked is None
        if not is_live:
            self.transcript.settle()
        live = self.transcript.live_rows(time.monotonic() - self._began) if is_live else []
        self._screen.update(self.transcript.pop_rows(), live)
        self._drawn_at = time.monotonic()
        self._is_stale = False
        self._is_light, self._new_chars = True, 0

    def measure(self) -> None:
        """Make rows for the size that the screen has now."""
        self.transcript.resize(*self._screen.size())

    def settle(self) -> None:
        """Show all that is left, and no live rows."""
        self._has_ended = True
        self.draw()

    def show_waiting(self) -> None:
        """Show what has come while nothing ran, such as late output."""
        while (item := self.inbox.receive(0)) is not None:
            self._receive(item)
        self.draw()

    def stand_aside(self, use: Callable[[], T]) -> T:
        """Have something else use the terminal; what is to be shown meanwhile waits."""
        self.show_waiting()
        try:
            return use()
        finally:
            self._screen.reclaim()

    def use_terminal(self, use: Callable[[], T]) -> T:
        """Have something else use the terminal while `run` shows what happens around it.

        For the thread that does the work; `use` is called on the one that owns the terminal.
        """
        outcome: Future[T] = Future()

        def settle() -> None:
            try:
                outcome.set_result(use())
            except Exception as error:  # noqa: BLE001 - raised again where it was asked for
                outcome.set_exception(error)

        self.inbox.put(TerminalWanted(settle))
        return outcome.result()

    @contextlib.contextmanager
    def above_prompt(self, prompt: Asker) -> Iterator[None]:
        """Show what comes above a prompt for as long as the block lasts."""
        # The prompt looks once more when it begins: until then nothing can be shown above it.
        prompt.on_begin = self.inbox.on_arrival = lambda: prompt.run_above(self.show_waiting)
        try:
            self.show_waiting()
            yield
        finally:
            prompt.on_begin = self.inbox.on_arrival = None

    def say(self, text: str, *, color: str = "", indent: int = 0) -> None:
        """Show something of our own at once; for the thread that owns the terminal."""
        self.measure()
        self.transcript.say(text, color=color, indent=indent)
        self.draw()

    def clear_screen(self) -> None:
        """Begin again at the top of the screen; the scrollback stays."""
        self._screen.clear()

    def show_long(self, rows: Iterable[list[str]]) -> bool:
        """Show many rows, as they come; False when Ctrl-C has ended it."""
        waiting: list[str] = []
        self._is_showing = True
        for some in rows:
            waiting += some
            if not self._is_showing:
                waiting.append("[Cancelled]")
                break
            if len(waiting) >= _LONG_ROWS_PER_UPDATE:
                self._screen.update(waiting, [])
                waiting = []
        self._screen.update(waiting, [])
        return self._is_showing

    def copy(self, text: str) -> bool:
        """Send a text to the clipboard; False where the terminal is known not to take it."""
        return variables.can_copy() and self._screen.copy(text)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows that can be used, as they are now."""
        return self._screen.size()

    @property
    def is_showing(self) -> bool:
        """Whether nothing has ended what is being shown."""
        return self._is_showing

    def begin_showing(self) -> None:
        """Let Ctrl-C end what comes from now on."""
        self._is_showing = True

    @property
    def width(self) -> int:
        """How many cells a row has; for any thread."""
        return self._screen.size()[0]

    def show_stopping(self, stage: StopStage) -> None:
        """Show soon that what runs is being stopped; for any thread."""
        self.inbox.put(StopRequested(stage))

    def suspend_soon(self, suspend: Callable[[], None]) -> None:
        """Call `suspend` soon, with nothing of ours on its way to the screen; for any thread."""
        self.inbox.put(SuspendRequested(suspend))

    def stop_showing(self) -> None:
        """End `show_long`, or a search, before its end; for any thread."""
        self._is_showing = False

    def say_soon(self, text: str, *, color: str = "", indent: int = 0) -> None:
        """Show something of our own soon; for any thread."""
        self.inbox.put(ConsoleLine(text, color, indent))

    def show_approval(self, request: ApprovalRequest) -> None:
        """Show soon what the user has to decide about; for any thread."""
        self.inbox.put(request)

    def answer_for(self, question: Question) -> str | None:
        """Ask the person; for any thread but the one that owns the terminal."""
        if self._prompt is None:
            return None
        self.inbox.put(question)
        return question.answer.get()

    @property
    def how_to_edit(self) -> str:
        """How code is edited here; empty where no questions can be asked."""
        return self._prompt.how_to_edit if self._prompt is not None else ""

    def give_up_answer(self) -> bool:
        """End a question that need not be answered; False if none waits. For any thread."""
        question = self._asked
        if question is None or not question.is_optional or self._prompt is None:
            return False
        self._prompt.give_up()
        return True

    def input_for(self, prompt: str, password: bool) -> str:
        """Answer `input()` and `getpass()` of running code."""
        answer = self.answer_for(Question(prompt, is_secret=password, is_from_code=True))
        return END_OF_INPUT if answer is None else answer

    def _work(self, do: Callable[[], T], outcome: Future[T]) -> None:
        try:
            outcome.set_result(do())
        except BaseException as error:  # noqa: BLE001 - raised again by `run`
            outcome.set_exception(error)
        finally:
            self.inbox.put(WorkEnded())

    def _wait_seconds(self) -> float | None:
        if self._is_stale:
            return max(0.001, self._next_draw - time.monotonic())
        return _SPINNER_SECONDS if self._has_spinner else None

    @property
    def _next_draw(self) -> float:
        """When the screen may change again."""
        return self._drawn_at + (_LIGHT_UPDATE_SECONDS if self._is_light else _UPDATE_SECONDS)

    def _weigh(self, event: TaskWeaverEvent) -> None:
        self._new_chars += len(event.msg)
        is_output = event.t is PostEventType.post_execution_output
        self._is_light = self._is_light and is_output and self._new_chars <= _LIGHT_CHARS

    def _receive(self, item: Item | None) -> None:
        self._is_stale = self._is_stale or item is not None
        match item:
            case TaskWeaverEvent():
                self._weigh(item)
                self.measure()  # its rows are made for good
                self.transcript.handle(item)
                if _ends_execution(item):
                    self._withdraw_question()
                self._note_answer(item)
            case ApprovalRequest():
                self.transcript.show_approval(item)
            case Question():
                self._questions.append(item)
            case ConsoleLine():
                self.transcript.say(item.text, color=item.color, indent=item.indent)
            case StopRequested():
                self.transcript.stop_stage = item.stage
            case SuspendRequested():
                self._screen.update(self.transcript.pop_rows(), [])
                item.suspend()
            case TerminalWanted():
                self._screen.update(self.transcript.pop_rows(), [])
                began = time.monotonic()
                item.use()
                self._screen.reclaim()
                self._began += time.monotonic() - began
            case WorkEnded():
                self._has_ended = True
                self._withdraw_question(is_over=True)
            case None:
                self._is_stale = self._is_stale or self._has_spinner

    def _ask(self, question: Question, on_refused: Callable[[], None]) -> None:
        assert self._prompt is not None
        self._asked = None if question.question_id in self._answered else question
        began = time.monotonic()
        answer = None
        try:
            with self.above_prompt(self._prompt):
                if self._asked is not None:
                    answer = self._prompt.ask(question)
        except EOFError:
            pass
        except QuestionRefusedError:
            if not question.is_optional:
                on_refused()
        finally:
            self._asked = None
            self._began += time.monotonic() - began
            question.answer.put(answer)

    def _note_answer(self, event: TaskWeaverEvent) -> None:
        """Do not go on asking what was answered elsewhere."""
        if event.t is SessionEventType.session_answered:
            question_id = cast(AnsweredExtra, event.extra)["question_id"]
            self._answered.add(question_id)
            if self._asked is not None and self._asked.question_id == question_id:
                self._withdraw_question(is_over=True)

    def _withdraw_question(self, *, is_over: bool = False) -> None:
        question = self._asked
        if question is not None and (is_over or question.is_from_code) and self._prompt is not None:
            self._asked = None
            self._prompt.withdraw()


def _ends_execution(event: TaskWeaverEvent) -> bool:
    """Whether code that was running has ended, so that its question is moot."""
    if event.t in (PostEventType.post_end, PostEventType.post_error):
        return True
    if event.t is PostEventType.post_attachment_update and "type" in event.extra:
        return event.extra["type"].value == "execution_status"
    return False
