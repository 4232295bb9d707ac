"""One conversation with a person: the door to all that a session can be asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from taskweaver_ext.approval import Approval
from taskweaver_ext.ces.execution.executor import OnInput
from taskweaver_ext.ces.execution.results import ExecutionResult
from taskweaver_ext.ces.programs.shell_completion import ShellCompletion
from taskweaver_ext.ces.sessions.variables import RestoredVariables, SavedVariables
from taskweaver_ext.conversation import PostId, Round, RoundId
from taskweaver_ext.events.extras import QuestionId, QuestionOutcome
from taskweaver_ext.events.questions import Questions
from taskweaver_ext.events.types import SessionEventHandler, SessionEventType
from taskweaver_ext.plugins.registry import PluginEntry
from taskweaver_ext.roles.base.cancellation import Cancellation
from taskweaver_ext.session.export.export import Exported, ExportFormat, export_session, format_of
from taskweaver_ext.session.files import SessionFile
from taskweaver_ext.session.kernel import SessionKernel
from taskweaver_ext.session.memory import KnownItem, SessionMemory
from taskweaver_ext.session.parts import SessionParts
from taskweaver_ext.session.requests import Requests
from taskweaver_ext.session.rounds import Rounds
from taskweaver_ext.session.saved import title_line
from taskweaver_ext.session.session_files import SessionFiles
from taskweaver_ext.session.settings import SessionSettings
from taskweaver_ext.session.sharing import RunSharing
from taskweaver_ext.session.submitted import Submitted
from taskweaver_ext.session.team import Team
from taskweaver_ext.session.terminal_run import UseTerminal
from taskweaver_ext.session.turns import SessionTurns
from taskweaver_ext.session.variables import SessionVariables
from taskweaver_ext.session.working_folder import FolderWish
from taskweaver_ext.session.workplace import Workplace


class Session:
    """Answer a person's messages with the help of roles, one round at a time.

    Threads:
        `interrupt` and `stop` are for any thread. Rounds and runs exclude each other:
        a second one while one is under way is refused.
    """

    def __init__(
        self,
        session_id: str,
        parts: SessionParts,
        *,
        approval: Approval | None = None,
        wish: FolderWish | None = None,
        on_end: Callable[[Session], None] | None = None,
    ) -> None:
        """Make a session, or continue the one that is in its folder.

        The kernel starts when it is first needed.

        Args:
            wish: Where its code is to work; by default in a folder of its own.
            on_end: Called once, when the session has ended.

        Raises:
            ConfigError: A role is unknown, the id cannot be the name of a folder, the folder
                cannot be made, or code cannot work in the one that was asked for.
            SessionError: Another process has the session open, or what is in the folder cannot be
                continued.
        """
        self._place = place = Workplace(session_id, parts, wish or FolderWish())
        self.session_id = session_id
        self.session_dir = place.path
        self.cwd = place.working.path
        self.works_here = place.working.place == "here"
        """Whether code works in a folder of the person's, not in one of the session's own."""
        self.folder_problem = place.working.problem
        """Why code does not work where it was expected to, and what to do; a notice says it."""
        self.epoch = place.epoch
        """Counts the processes that have worked on the session; with the number of an event, it
        names that event for ever."""
        self.emitter = place.emitter
        self.code_blocks = place.code_blocks
        """The code of the session by number: what is written, typed, and proposed in answers."""
        self._on_end = on_end
        self._cancellation = Cancellation()
        self._turns = turns = SessionTurns(session_id, self._cancellation, self._end)
        self.questions = Questions(self.emitter, lambda: self._cancellation.is_requested)
        """What a person is asked; `answer` closes one."""
        self.approval = approval or Approval()
        self.approval.questions = self.questions
        auto_send = parts.config.session.auto_send
        self.settings = SessionSettings(self.approval, auto_send, self.emitter, turns.require_open)
        """What a person can change while the session lives."""
        try:
            self._team = team = Team(
                session_id, parts, place, self._cancellation, self.questions, self.approval
            )
        except BaseException:
            place.close()
            raise
        self.usage = team.usage
        """What models have cost in the whole session."""
        self.kernel = SessionKernel(parts.environment, session_id, team.executor.start_meanwhile)
        """Completes and explains Python code, and shows what the kernel holds and does."""
        self._memory = memory = SessionMemory(place.past, self.emitter, team.forget)
        self.rounds = memory.rounds
        """All that was said and run, oldest first."""
        self.memory = memory.known
        """What the roles know."""
        self._files = SessionFiles(self.cwd, turns, memory, self.emitter)
        self._variables = SessionVariables(place.path, team.executor, turns, memory, self.emitter)
        rounds = Rounds(team.context, team.roles, team.executor, self.questions, memory)
        sharing = RunSharing(self.settings, memory, rounds)
        self._requests = Requests(turns, self.emitter, rounds, sharing, self._files)
        place.announce()
        self._go_on()

    @property
    def context_blocks(self) -> tuple[str, ...]:
        """What goes to the agent with the next message; `share` changes it."""
        return self._memory.context_blocks

    @property
    def plugins(self) -> tuple[PluginEntry, ...]:
        """Those that code can call; one that does not load is none of them from then on."""
        return self._team.executor.plugins

    def send_message(
        self,
        message: str,
        event_handler: SessionEventHandler | None = None,
        files: Sequence[SessionFile] | None = None,
        on_input: OnInput | None = None,
    ) -> Round:
        """Have the roles answer a message, and return everything that was said.

        A round that fails says why in a `round_error` event and has the state
        `failed`; the session can go on.

        Args:
            event_handler: Hears what happens until the answer is there.
            files: Placed in the working folder first, as by `add_files`.
            on_input: Answers `input()` in the code that the agent runs.

        Raises:
            SessionError: Another round is under way, the session was stopped, or a file
                cannot be copied.
        """
        return self._requests.answer(message, event_handler, files or (), on_input)

    def submit(
        self,
        message: str,
        files: Sequence[SessionFile] | None = None,
        on_input: OnInput | None = None,
    ) -> Submitted[Round]:
        """Have the roles answer a message on a thread of its own; return at once.

        Raises:
            SessionError: As `send_message`.
        """
        return self._requests.submit_message(message, files or (), on_input)

    def run_code(
        self,
        language: str,
        code: str,
        event_handler: SessionEventHandler | None = None,
        on_input: OnInput | None = None,
        *,
        repeats: int | None = None,
    ) -> ExecutionResult:
        """Run what a person typed, with the events of a post from the user.

        Args:
            on_input: Answers `input()` in Python code.
            repeats: The number of the code block that is run again with it.

        Raises:
            SessionError: A round is under way, the session was stopped, or the run was
                stopped before it began.
            KernelStartError: The kernel did not become ready.
        """
        return self._requests.run(language, code, event_handler, on_input, repeats)

    def run_in_terminal(
        self, command: str, use_terminal: UseTerminal, on_input: OnInput | None = None
    ) -> ExecutionResult:
        """Have the caller run a person's command on its terminal, where the shell is.

        Events and the journal have the command and its exit code, not what was on the screen.

        Args:
            on_input: Answers code of the agent, where that reacts at once.

        Raises:
            SessionError: A round is under way, the session was stopped, or its programs do not
                run on this machine.
        """
        return self._requests.run_in_terminal(command, use_terminal, on_input)

    def complete_shell(self, line: str) -> list[ShellCompletion]:
        """What can be typed at the end of a line for the shell: commands, paths, variables.

        For any thread, also while code runs; nothing is run or started for it.

        Raises:
            SessionError: The session was stopped.
        """
        self._turns.require_open()
        return self._team.executor.complete_shell(line)

    def submit_code(
        self,
        language: str,
        code: str,
        on_input: OnInput | None = None,
        *,
        repeats: int | None = None,
    ) -> Submitted[ExecutionResult]:
        """Run what a person typed on a thread of its own; return at once.

        Raises:
            SessionError: A round is under way, or the session was stopped.
        """
        return self._requests.submit_run(language, code, on_input, repeats)

    def answer(self, question_id: QuestionId, outcome: QuestionOutcome, text: str = "") -> None:
        """Answer a `session_question`; from any thread, and only the first answer counts.

        Args:
            outcome: One of the question's `choices`: "answered" with the text of an input,
                "approved", "edited" with the code that is to run instead, "refused".

        Raises:
            SessionError: The question is not open, or cannot end like that.
        """
        self.questions.answer(question_id, outcome, text)

    def interrupt(self, kill: bool = False) -> bool:
        """Stop the model's reply or the code that runs; return whether anything was under way.

        With `kill`, code that does not stop loses its kernel and the variables in it.
        """
        return self._cancellation.request(kill=kill)

    def share(self, blocks: Iterable[str]) -> None:
        """Say what goes to the agent with the next message, in place of what did.

        Raises:
            SessionError: The session was stopped.
        """
        self._turns.require_open()
        self._memory.share(blocks)

    def rename(self, title: str) -> None:
        """Give the session a title, for lists; an empty one takes it back.

        Raises:
            SessionError: The session was stopped.
        """
        self._turns.require_open()
        self.emitter.emit_session_event(SessionEventType.session_renamed, title_line(title))

    @property
    def known_items(self) -> list[KnownItem]:
        """What the agent knows, oldest first, then what goes to it with the next message."""
        return self._memory.items()

    def drop(self, post_id: PostId) -> None:
        """Take the code of a post, and what came of it, out of what the agent knows.

        What the agent has said about it stays.

        Raises:
            SessionError: The agent does not know it or is at work with it, or the session was
                stopped.
        """
        self._turns.require_open()
        self._memory.drop(post_id)

    def drop_round(self, round_id: RoundId) -> None:
        """Let the agent know nothing of a request and all that came of it.

        Raises:
            SessionError: As `drop`.
        """
        self._turns.require_open()
        self._memory.drop_round(round_id)

    def add_files(self, files: Sequence[SessionFile]) -> list[str]:
        """Make files available to code at once; the agent is told with the next message.

        A file of the working folder is only named; another one is copied into it. Nothing there is
        replaced: beside a different file of the same name the copy gets another one.

        Returns:
            Their names in the working folder, as code opens them.

        Raises:
            SessionError: The session was stopped, or a file cannot be copied; those before it are
                there.
        """
        return self._files.add(files)

    def made_files(self) -> list[Path]:
        """The files of the working folder that code has made known, and that are there."""
        return self._files.made()

    def forget(self) -> None:
        """Let the agent know nothing of what was said so far; variables and files stay."""
        self._turns.require_open()
        self._memory.forget()

    def snapshot(self, path: str | Path | None = None) -> SavedVariables:
        """Save the Python variables to a file, for `restore_variables`; a notice says which.

        Args:
            path: By default the one in the session's folder, which `--with-variables` loads.

        Raises:
            SessionError: A round is under way, no Python code has run yet, it was stopped, or
                the file cannot be written.
        """
        return self._variables.save(path)

    def restore_variables(
        self, path: str | Path | None = None, *, trust: bool = False
    ) -> RestoredVariables:
        """Bring back the variables that `snapshot` saved; a notice says which, and the agent knows.

        Args:
            path: By default the file in the session's folder.
            trust: Load it also if this user has not written it on this machine; what is in it
                can run any code.

        Raises:
            SessionError: A round is under way, it was stopped, or the file is not there or cannot
                be trusted.
        """
        return self._variables.restore(path, trust=trust)

    def update_session_var(self, variables: Mapping[str, str]) -> None:
        """Set what plugins read with `ctx.get_session_var`."""
        self._team.executor.update_session_var(dict(variables))

    def export(
        self,
        path: str | Path,
        to: ExportFormat | None = None,
        *,
        replaces: bool = False,
        with_files: bool = False,
        with_variables: bool = False,
    ) -> Exported:
        """Write the session so far to a file; while a round is under way, with what it has said.

        Args:
            to: The format; by default what the file's name asks for.
            replaces: Whether a file that is there may be replaced.
            with_files: Of a bundle: with everything in the working folder, if that is the
                session's own; of a person's folder, only what the session names.
            with_variables: Of a bundle: with what `snapshot` saved last.

        Raises:
            ConfigError: The format is unknown, the file is there already, or something is missing.
            SessionError: It cannot be written.
        """
        return export_session(
            self._place.export_source(),
            Path(path),
            to or format_of(Path(path)),
            replaces=replaces,
            with_files=with_files,
            with_variables=with_variables,
        )

    def stop(self) -> None:
        """End the session and everything it started; its folder stays.

        Inside the call of a handler, or in a role, this returns at once, and the session
        ends with the round that is under way.
        """
        self._turns.stop(is_called_back=self.emitter.is_calling_here)

    def _go_on(self) -> None:
        """Take up what an earlier process has left, if one has."""
        past = self._place.past
        self._team.go_on_from(past)
        if lost := self.settings.go_on_from(past.settings):
            self.emitter.emit_notice(lost)
        if past.has_variables:
            self._variables.tell_that_they_are_lost()

    def _end(self) -> None:
        """Let go of everything."""
        self.settings.close()
        try:
            self._team.close()
            self.emitter.emit_session_event(SessionEventType.session_end, "Session ended")
        finally:
            self._place.close()
            if self._on_end is not None:
                self._on_end(self)
