"""Has requests done on the execution thread, shows what happens, and stops them when asked to."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

from taskweaver_ext.ces.execution.executor import OnInput
from taskweaver_ext.ces.execution.results import ExecutionResult
from taskweaver_ext.ces.sessions.snapshot_file import VARIABLES_FILE
from taskweaver_ext.chat.project_sessions import ProjectSessions
from taskweaver_ext.console.approval_dialog import ApprovalDialog
from taskweaver_ext.console.display import Display
from taskweaver_ext.console.inbox import InboxSubscription
from taskweaver_ext.console.past_conversation import show_end_of
from taskweaver_ext.console.rows import DIM, RED, YELLOW
from taskweaver_ext.console.terminal_jobs import CONTINUE, TerminalJobs
from taskweaver_ext.conversation import Round
from taskweaver_ext.demo import DEMO_REQUEST
from taskweaver_ext.errors import SessionError
from taskweaver_ext.session.rebuilt import VARIABLES_LOST
from taskweaver_ext.session.saved import SavedSession
from taskweaver_ext.session.session import Session
from taskweaver_ext.session.terminal_run import TerminalCommand, TerminalEnd

PassSignals: TypeAlias = Callable[[Callable[[int], None], Callable[[], None], float], None]
"""Lets a function hear signals, on a thread of its own, and another one hear when nothing came of
a signal for so many seconds."""

_SUGGEST_KILLING_SECONDS = 3.0
"""How long what was interrupted may take before we speak of killing it; a shell does so itself."""

_CANCELLED = "[Cancelled]"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Resumption:
    """Which session a chat continues, and how."""

    session_id: str | None
    """None: it begins a new one."""
    with_variables: bool = False
    """Whether the variables of its snapshot are loaded."""
    trust: bool = False
    """Whether they are loaded whoever has saved them."""


NOT_RESUMED = Resumption(None)


class RequestRunner:
    """Has requests done by a session, one at a time.

    Threads:
        All methods are called on the thread that owns the terminal, but for `on_signal`
        and `suggest_killing`, which are for the thread that watches for signals.
    """

    def __init__(
        self,
        source: ProjectSessions,
        display: Display,
        *,
        can_ask: bool = True,
        on_idle_signal: Callable[[int], None] = lambda _number: None,
    ) -> None:
        """Prepare; `start` makes the first session.

        Args:
            can_ask: Whether there is a person to answer questions.
            on_idle_signal: Called for a signal that comes while nothing runs.
        """
        self.source = source
        self.display = display
        self.session: Session
        self.subscription: InboxSubscription
        """Brings the events of the session to the display."""
        self.demo_folders: list[Path] = []
        """Where demonstrations have made their files."""
        self.is_asked_to_end = False
        """Whether a signal other than Ctrl-C has come."""
        self.is_abandoned = False
        """Whether our output is closed: what is done is not seen any more."""
        self.terminal_jobs = TerminalJobs()
        """What has the terminal, or has been stopped with Ctrl-Z."""
        self._can_ask = can_ask
        self._on_idle_signal = on_idle_signal
        self._demo_rounds = 0
        """How many rounds of the session were shown only, and are not there another time."""
        self._stop_count = 0
        self._is_working = False
        self._current: Session | None = None
        """The session that is working, if one is."""

    def start(self, pass_signals_to: PassSignals, resume: str | None = None) -> None:
        """Make the first session, and hear signals from now on.

        Args:
            resume: The session to continue instead of making one.

        Raises:
            SessionError: That session cannot be continued.
        """
        pass_signals_to(self.on_signal, self.suggest_killing, _SUGGEST_KILLING_SECONDS)
        self._use(self._on_execution_thread(lambda: self.source.open_first(resume)))

    @property
    def was_stopped(self) -> bool:
        """Whether Ctrl-C was pressed during the last request."""
        return self._stop_count > 0

    def begin_request(self) -> None:
        """Let a Ctrl-C of before count no more, nor the size that the screen had."""
        self._stop_count = 0
        self.display.measure()

    def ask_agent(self, request: str) -> Round:
        """Let the agent answer a request."""
        try:
            return self._send(self.session, self.subscription, request)
        finally:
            self._say_usage()

    def run_code(self, language: str, code: str, *, repeats: int | None = None) -> ExecutionResult:
        """Run code of the person, and show what it does.

        Args:
            repeats: The number of the code block that is run again.
        """
        session = self.session

        def run() -> ExecutionResult:
            with self.subscription.open():
                return session.run_code(language, code, on_input=self._on_input, repeats=repeats)

        result = self._on_execution_thread(run, session)
        if self.is_abandoned:
            return result
        for path in result.full_output_paths.values():
            self.display.say(f"[Whole output] {path}", color=DIM)
        if session.settings.auto_send == "on":
            self._say_usage()
        return result

    def run_in_terminal(self, command: str) -> ExecutionResult:
        """Give a command of the person the terminal, and take it back.

        Raises:
            SessionError: There is no terminal, or the session's programs run elsewhere.
        """
        jobs, display = self.terminal_jobs, self.display
        jobs.require_terminal()
        is_resumed = command.strip() in ("", CONTINUE)
        title = jobs.find_stopped() if is_resumed else command
        session = self.session

        def use(place: TerminalCommand) -> TerminalEnd:
            return display.use_terminal(jobs.resume if is_resumed else lambda: jobs.run(place))

        def run() -> ExecutionResult:
            with self.subscription.open():
                return session.run_in_terminal(title, use, on_input=self._on_input)

        result = self._on_execution_thread(run, session)
        if session.settings.auto_send == "on":
            self._say_usage()
        return result

    def _say_usage(self) -> None:
        usage = self.session.usage
        if usage.round.total_tokens:
            self.display.say(f"({usage.describe_round()})", color=DIM)

    def add_files(self, paths: Sequence[Path]) -> None:
        """Place files where code can open them; the session's event says how they are called."""
        session = self.session

        def add() -> None:
            with self.subscription.open():
                session.add_files(paths)

        self._on_execution_thread(add, session)

    def snapshot(self, path: Path | None) -> None:
        """Save the variables of the session; its notice says which."""
        session = self.session

        def save() -> None:
            with self.subscription.open():
                session.snapshot(path)

        self._on_execution_thread(save, session)

    def restore_variables(self, path: Path | None = None, *, trust: bool = False) -> None:
        """Bring back the variables of a snapshot; the session's notice says which.

        Raises:
            SessionError: There is no snapshot, or it cannot be trusted.
        """
        session = self.session

        def restore() -> None:
            with self.subscription.open():
                session.restore_variables(path, trust=trust)

        self._on_execution_thread(restore, session)

    def bring_back_variables(self, resumption: Resumption) -> bool:
        """Restore the variables of a continued session if that was asked for, else offer it.

        Returns:
            False when they were asked for and are not there, which has been said.
        """
        if not resumption.with_variables:
            self.offer_variables()
            return True
        try:
            self.restore_variables(trust=resumption.trust)
        except SessionError as error:
            self.display.say(f"error: {error}", color=RED)
            if not self._has_snapshot:
                self.offer_variables()
            return False
        return True

    def say_folder_problem(self) -> None:
        """Say why the session does not work where a person expects it to, if so."""
        if self.session.folder_problem:
            self.display.say(f"[Notice] {self.session.folder_problem}", color=YELLOW)

    def offer_variables(self) -> None:
        """Say how the variables of a continued session can be had again, if they are lost."""
        session = self.session
        if VARIABLES_LOST in session.context_blocks:
            how = self.source.how_to_get_variables(session, self._has_snapshot)
            self.display.say(how, color=DIM)

    @property
    def _has_snapshot(self) -> bool:
        return (self.session.session_dir / VARIABLES_FILE).exists()

    @property
    def _on_input(self) -> OnInput | None:
        return self.display.input_for if self._can_ask else None

    def play_demo(self) -> None:
        """Let a scripted model answer its request in a session of its own."""
        demo, end_demo = self._on_execution_thread(self.source.create_demo)
        self.demo_folders.append(demo.session_dir)
        try:
            if self.was_stopped:
                self.display.say(_CANCELLED, color=YELLOW)
                return
            self.display.say("[Demo] The model is a script; roles, kernel and output are real.")
            self.display.say(f"You ▸ {DEMO_REQUEST}")
            self.display.transcript.has_numbers = False  # commands know those of our session
            self._send(demo, self._listen_to(demo), DEMO_REQUEST)
        finally:
            self.display.transcript.has_numbers = True
            for one in demo.rounds:  # it has been seen, and is not to pass for a model's work
                one.user_query = f"[Demo] {one.user_query}"
                self.session.rounds.append(one)
                self._demo_rounds += 1
            self._on_execution_thread(end_demo)

    def say_how_to_resume(self) -> None:
        """Say what continues the session another time, if there is anything to be continued."""
        if len(self.session.rounds) > self._demo_rounds and not self.is_abandoned:
            how = self.source.how_to_resume(self.session)
            self.display.transcript.say_command("Continue with:", how, color=DIM)
            self.display.draw()

    def show_past(self) -> None:
        """Show a person the end of the conversation that the session has had."""
        if self._can_ask:
            how = self.source.how_to_show(self.session)
            show_end_of(SavedSession(self.session.session_dir), self.display, how)

    def begin_session(self, resume: str | None = None) -> None:
        """Put a new session in the place of this one, or continue another one there.

        Raises:
            SessionError: That session cannot be continued; this one goes on.
        """
        old, new = self.session, self._open(resume)
        if new is old:
            raise SessionError(f"This is session {old.session_id!r} already.")
        self._use(new)
        self._on_execution_thread(old.stop)
        self.demo_folders.clear()
        self._demo_rounds = 0

    def abandon(self) -> None:
        """Kill what runs, without a word: our output is closed."""
        is_first, self.is_abandoned = not self.is_abandoned, True
        if is_first and self._current is not None:
            with contextlib.suppress(SessionError):  # it is over already
                self._current.interrupt(kill=True)

    def close(self) -> None:
        """End the session."""
        self.terminal_jobs.close()
        self.display.inbox.close()  # nothing is received any more; no thread shall wait for room
        self.session.stop()

    def _open(self, resume: str | None) -> Session:
        if resume is None:
            return self._on_execution_thread(self.source.create)
        return self._on_execution_thread(lambda: self.source.resume(resume))

    def _use(self, session: Session) -> None:
        self.session = session
        self.display.transcript.displays.session_dir = session.session_dir
        self.subscription = self._listen_to(session)

    def _listen_to(self, session: Session) -> InboxSubscription:
        """Show what a session does, and answer what it asks."""
        if self._can_ask:
            session.approval.ask = ApprovalDialog(self.display, session.questions.is_open).ask
        return InboxSubscription(session.emitter, self.display.inbox)

    def _send(
        self,
        session: Session,
        subscription: InboxSubscription,
        message: str,
    ) -> Round:
        def send() -> Round:
            with subscription.open():
                return session.send_message(message, on_input=self._on_input)

        return self._on_execution_thread(send, session)

    def _on_execution_thread(self, do: Callable[[], T], session: Session | None = None) -> T:
        """Do something on the execution thread; Ctrl-C stops what the session does."""
        self._stop_count = 0
        self._current = session
        self._is_working = True
        try:
            result = self.display.run(do, lambda: self.on_signal(signal.SIGINT))
        finally:
            self._is_working = False
            self._current = None
            failure = self.display.transcript.pop_failure()
            if self._stop_count and session is not None:
                self.display.say(_CANCELLED, color=YELLOW)
        if failure and not self._stop_count:
            self.display.say(f"error: {failure}", color=RED)
        return result

    def on_signal(self, number: int) -> None:
        """Interrupt what runs; kill it the second time, or when we are to end."""
        is_ctrl_c = number == signal.SIGINT
        self.is_asked_to_end = self.is_asked_to_end or not is_ctrl_c
        if not is_ctrl_c and self.terminal_jobs.hang_up():
            return
        if not self._is_working:
            self._on_idle_signal(number)
            return
        if is_ctrl_c and self.display.give_up_answer():
            return
        session = self._current
        self._stop_count += 1
        if session is None:
            return
        is_last_resort = self._stop_count > 1 or not is_ctrl_c
        self.display.show_stopping("killing" if is_last_resort else "stopping")
        with contextlib.suppress(SessionError):  # it is over already
            session.interrupt(kill=is_last_resort)

    def suggest_killing(self) -> None:
        """Say what can be done about something that does not stop."""
        if self._current is not None and self._stop_count == 1:
            self.display.say_soon(
                "It has not ended yet. Ctrl-C again kills it, and variables are lost.",
                color=YELLOW,
            )
