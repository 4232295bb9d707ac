"""One conversation: its roles, its rounds, its executors, and what it says while it works."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from taskweaver_ext.approval import Approval
from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.executor import OnInput
from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus
from taskweaver_ext.ces.programs.languages import Language
from taskweaver_ext.ces.sessions.snapshot_file import VARIABLES_FILE
from taskweaver_ext.ces.sessions.variables import RestoredVariables, SavedVariables
from taskweaver_ext.config.settings import Config, ReplyForm
from taskweaver_ext.conversation import AttachmentType, Post, Round, RoundState
from taskweaver_ext.errors import (
    ConfigError,
    RoundCancelledError,
    SessionError,
    TaskWeaverError,
)
from taskweaver_ext.events.emitter import SessionEventEmitter
from taskweaver_ext.events.questions import Questions
from taskweaver_ext.events.types import (
    QuestionId,
    QuestionOutcome,
    RoundStartExtra,
    SessionEventHandler,
    SessionEventType,
)
from taskweaver_ext.llm.chat_model import ChatModel
from taskweaver_ext.plugins.registry import PluginEntry, PluginRegistry
from taskweaver_ext.roles.base.cancellation import Cancellation
from taskweaver_ext.roles.base.role import (
    USER,
    Memory,
    Role,
    RoleContext,
    RoleEntry,
    RoleRegistry,
    find_role_class,
)
from taskweaver_ext.roles.base.token_count import TokenCounter
from taskweaver_ext.roles.code_interpreter.code_executor import CodeExecutor, CodeRun
from taskweaver_ext.roles.code_interpreter.code_interpreter import CodeInterpreter
from taskweaver_ext.roles.code_interpreter.result_text import (
    artifact_paths,
    describe_result,
    status_name,
)
from taskweaver_ext.roles.planner.planner import Planner
from taskweaver_ext.session.continued import close_open_ends
from taskweaver_ext.session.export.export import (
    Exported,
    ExportFormat,
    export_session,
    format_of,
)
from taskweaver_ext.session.export.source import ExportSource
from taskweaver_ext.session.files import SessionFile, copy_into
from taskweaver_ext.session.open_folder import OpenFolder
from taskweaver_ext.session.rebuilt import FRESH_KERNEL, VARIABLES_LOST, RebuiltSession
from taskweaver_ext.session.submitted import Submitted
from taskweaver_ext.session.turns import SessionTurns
from taskweaver_ext.session.variables import (
    describe_restored,
    describe_saved,
    describe_to_agent,
)
from taskweaver_ext.traces.traces import NoTraces, Traces

MAX_SHARED_RESULT_CHARS = 2000
MAX_KEPT_RESULT_CHARS = 20_000
"""How much of what a person's code wrote is kept with it: about what the console shows."""

_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionParts:
    """What all sessions of an application share."""

    config: Config
    environment: Environment
    plugins: PluginRegistry
    roles: RoleRegistry
    find_model: Callable[[str], ChatModel]
    languages: Mapping[str, Language]
    """Those that the project adds."""
    reply_form: ReplyForm = "json"
    traces: Traces = field(default_factory=NoTraces)


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
        on_end: Callable[[Session], None] | None = None,
    ) -> None:
        """Make a session, or continue the one that is in its folder.

        The kernel starts when it is first needed.

        Args:
            on_end: Called once, when the session has ended.

        Raises:
            ConfigError: A role is unknown, the id cannot be the name of a folder, or the folder
                cannot be made.
            SessionError: Another process has the session open, or what is in the folder cannot be
                continued.
        """
        if not _SESSION_ID.fullmatch(session_id):
            raise ConfigError(f"A session cannot be called {session_id!r}: letters, digits, -_. .")
        config = parts.config
        self.session_id = session_id
        self._folder = OpenFolder(
            config.workspace.workspace_path / "sessions" / session_id,
            session_id,
            project=str(config.app_base_dir),
            on_failure=self._say_notice,
        )
        past = self._folder.past
        self.session_dir = self._folder.path
        self.cwd = self._folder.cwd
        self.emitter = SessionEventEmitter(self._folder.journal)
        self.memory = Memory(past.known_rounds)
        """What the roles know."""
        self.rounds = past.rounds
        """All that was said and run, oldest first."""
        self.usage = TokenCounter()
        self._cancellation = Cancellation()
        self.questions = Questions(self.emitter, lambda: self._cancellation.is_requested)
        """What a person is asked; `answer` closes one."""
        self.approval = approval or Approval()
        self.approval.questions = self.questions
        self.shares_runs = False
        """Whether what a person runs, and its output, goes to the agent with the next message."""
        self.context_blocks = past.context_blocks
        """What goes to the agent with the next message; `share` changes it."""
        self._config = config
        self._turns = SessionTurns(session_id, self._cancellation, self._end)
        self._on_end = on_end
        self._traces = parts.traces
        try:
            self._executor = self._make_executor(parts)
            self._context = RoleContext(
                session_id=session_id,
                session_dir=self.session_dir,
                emitter=self.emitter,
                config=config,
                find_model=parts.find_model,
                cancellation=self._cancellation,
                usage=self.usage,
                redactor=parts.environment.redactor,
                traces=parts.traces,
            )
            self._roles = self._make_roles(parts)
        except BaseException:
            self._folder.close()
            raise
        self.emitter.emit_session_event(SessionEventType.session_start, "Session started")
        if self._folder.problem:
            self._say_notice(self._folder.problem)
        self._go_on_from(past)

    def _make_executor(self, parts: SessionParts) -> CodeExecutor:
        loads_plugins = parts.config.code_generator.load_plugin
        return CodeExecutor(
            parts.environment,
            self.session_id,
            self.session_dir,
            self.emitter,
            parts.plugins.without_plugin_only() if loads_plugins else (),
            self._cancellation,
            self.questions,
            plugin_problems=parts.plugins.problems if loads_plugins else (),
            languages=parts.languages,
            traces=parts.traces,
        )

    @property
    def plugins(self) -> tuple[PluginEntry, ...]:
        """Those that code can call; one that does not load is none of them from then on."""
        return self._executor.plugins

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
            files: Copied into the working directory first.
            on_input: Answers `input()` in the code that the agent runs.

        Raises:
            SessionError: Another round is under way, the session was stopped, or a file
                cannot be copied.
        """
        with self._turns.claimed(), self.emitter.handle_events_ctx(event_handler):
            return self._answer(Round.create(user_query=message), self._copied(files), on_input)

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
        chat_round = Round.create(user_query=message)
        token = self._turns.reserve()
        try:
            names = self._copied(files)
        except BaseException:
            self._turns.release()
            raise

        def answer() -> Round:
            with self._turns.reserved():
                return self._answer(chat_round, names, on_input)

        return Submitted(chat_round.id, answer, token)

    def run_code(
        self,
        language: str,
        code: str,
        event_handler: SessionEventHandler | None = None,
        on_input: OnInput | None = None,
    ) -> ExecutionResult:
        """Run what a person typed, with the events of a post from the user.

        Args:
            on_input: Answers `input()` in Python code.

        Raises:
            SessionError: A round is under way, the session was stopped, or the run was
                stopped before it began.
            KernelStartError: The kernel did not become ready.
        """
        with self._turns.claimed(), self.emitter.handle_events_ctx(event_handler):
            return self._run_alone(Round.create(user_query=code), language, on_input)

    def submit_code(
        self, language: str, code: str, on_input: OnInput | None = None
    ) -> Submitted[ExecutionResult]:
        """Run what a person typed on a thread of its own; return at once.

        Raises:
            SessionError: A round is under way, or the session was stopped.
        """
        chat_round = Round.create(user_query=code)
        token = self._turns.reserve()

        def run() -> ExecutionResult:
            with self._turns.reserved():
                return self._run_alone(chat_round, language, on_input)

        return Submitted(chat_round.id, run, token)

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
        self._set_context(tuple(blocks))

    def _set_context(self, blocks: tuple[str, ...]) -> None:
        if blocks != self.context_blocks:
            self.context_blocks = blocks
            self.emitter.emit_session_event(
                SessionEventType.session_context_update, "", {"blocks": list(blocks)}
            )

    def forget(self) -> None:
        """Let the agent know nothing of what was said so far; variables and files stay."""
        self.share([])
        known = [one.id for one in self.memory.rounds]
        self.memory.rounds.clear()
        self.emitter.emit_session_event(
            SessionEventType.session_memory_update, "", {"role": "", "covered_rounds": known}
        )

    def snapshot(self, path: str | Path | None = None) -> SavedVariables:
        """Save the Python variables to a file, for `restore_variables`; a notice says which.

        Args:
            path: By default the one in the session's folder, which `--with-variables` loads.

        Raises:
            SessionError: A round is under way, no Python code has run yet, it was stopped, or
                the file cannot be written.
        """
        with self._turns.claimed():
            saved = self._executor.snapshot(Path(path or self.session_dir / VARIABLES_FILE))
            self._say_notice(describe_saved(saved))
            return saved

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
        with self._turns.claimed():
            place = Path(path or self.session_dir / VARIABLES_FILE)
            restored = self._executor.restore_variables(place, trust=trust)
            others = [block for block in self.context_blocks if block != VARIABLES_LOST]
            self.share([*others, describe_to_agent(restored)])
            self._say_notice(describe_restored(restored))
            return restored

    def update_session_var(self, variables: Mapping[str, str]) -> None:
        """Set what plugins read with `ctx.get_session_var`."""
        self._executor.update_session_var(dict(variables))

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
            with_files: Of a bundle: with everything in the working folder.
            with_variables: Of a bundle: with what `snapshot` saved last.

        Raises:
            ConfigError: The format is unknown, the file is there already, or something is missing.
            SessionError: It cannot be written.
        """
        path = Path(path)
        source = ExportSource(
            session_id=self.session_id, folder=self.session_dir, read=self.emitter.events
        )
        to = to or format_of(path)
        return export_session(
            source,
            path,
            to,
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

    def _make_roles(self, parts: SessionParts) -> dict[str, Role]:
        """Make the roles by alias; the one that hears the user first comes first."""
        form = parts.reply_form
        workers: list[Role] = []
        planners: list[tuple[type[Planner], RoleEntry]] = []
        for entry in map(parts.roles.get, parts.config.session.roles):
            role_class = find_role_class(entry)
            if issubclass(role_class, Planner):
                planners.append((role_class, entry))  # made last: it is told of all the others
            elif issubclass(role_class, CodeInterpreter):
                arguments = (self._executor, self.approval, form)
                workers.append(role_class(entry, self._context, *arguments))
            else:
                workers.append(role_class(entry, self._context))
        if len(planners) > 1 or (not planners and len(workers) != 1):
            raise ConfigError("session.roles needs one planner, or exactly one other role.")
        leads = [kind(entry, self._context, workers, form) for kind, entry in planners]
        roles: dict[str, Role] = {}
        for role in (*leads, *workers):
            if role.alias in (USER, *roles):
                raise ConfigError(f"session.roles: another one is called {role.alias!r} already.")
            roles[role.alias] = role
        return roles

    def _go_on_from(self, past: RebuiltSession) -> None:
        """Take up what an earlier process has left, if one has."""
        for alias, role_memory in past.role_memories.items():
            if alias in self._roles:
                self._roles[alias].restore(role_memory)
        if past.usage is not None:
            self.usage.restore(past.usage)
        close_open_ends(past, self.emitter)
        if past.has_variables:
            others = [block for block in self.context_blocks if block != VARIABLES_LOST]
            self.share([*others, VARIABLES_LOST])
            self._say_notice(FRESH_KERNEL)

    def _copied(self, files: Sequence[SessionFile] | None) -> list[str]:
        return [copy_into(self.cwd, file) for file in files or ()]

    def _answer(
        self, chat_round: Round, file_names: Sequence[str], on_input: OnInput | None
    ) -> Round:
        parts = [*self.context_blocks, chat_round.user_query]
        if file_names:
            parts.insert(0, f"Files added to the working directory: {', '.join(file_names)}.")
        post = Post.create("\n".join(parts), USER, next(iter(self._roles)))
        chat_round.add_post(post)
        self.memory.rounds.append(chat_round)
        self.usage.begin_round()
        details: RoundStartExtra = {
            "kind": "message",
            "user_query": chat_round.user_query,
            "post": post.to_dict(),
        }
        with (
            self._traces.round(self.session_id, chat_round),
            self._telling(chat_round, details),
            self._stopping_questions(),
        ):
            self._set_context(())
            self._executor.recover()
            self._executor.start_meanwhile()
            self._executor.on_input = on_input
            self._converse(chat_round)
            chat_round.change_round_state("finished")
        return chat_round

    def _run_alone(
        self, chat_round: Round, language: str, on_input: OnInput | None
    ) -> ExecutionResult:
        code = chat_round.user_query
        runs: list[CodeRun] = []
        details: RoundStartExtra = {"kind": "run", "user_query": code}
        with self._telling(chat_round, details, raises=True), self._stopping_questions():
            self._executor.recover()
            runs.append(self._run(chat_round, language, code, on_input))
            chat_round.change_round_state(state_after(runs[0].result.status))
        [run] = runs
        if self.shares_runs:
            text = describe_result(run.result, run.shown, max_chars=MAX_SHARED_RESULT_CHARS)
            block = f"[I ran this {language} code]\n{code}\n[and this came of it]\n{text}\n[end]"
            self._set_context((*self.context_blocks, block))
        return run.result

    def _converse(self, chat_round: Round) -> None:
        """Pass posts from role to role until one is for the user."""
        limit = self._config.session.max_internal_chat_round_num
        post = chat_round.post_list[-1]
        for _ in range(limit):
            self._cancellation.check()
            role = self._roles.get(post.send_to)
            if role is None:
                raise SessionError(f"{post.send_from} wrote to {post.send_to!r}, who is not here.")
            post = role.reply(self.memory)
            if not isinstance(post, Post):  # a role may be a project's own
                raise SessionError(
                    f"{role.alias} returned {type(post).__name__} in place of a post. A role's"
                    " reply returns what `post.end()` gives."
                )
            chat_round.add_post(post)
            self.emitter.add_post(post)
            _logger.info("%s wrote to %s", post.send_from, post.send_to)
            if post.send_to == USER:
                return
        self._cancellation.check()
        raise SessionError(
            f"The roles have written to each other {limit} times without an answer, which is the"
            " limit (session.max_internal_chat_round_num). Ask for less at a time, or raise it."
        )

    def _run(
        self, chat_round: Round, language: str, code: str, on_input: OnInput | None
    ) -> CodeRun:
        post = self.emitter.create_post_proxy(USER)
        chat_round.add_post(post.post)
        post.update_attachment(language, AttachmentType.reply_type)
        post.update_attachment(code, AttachmentType.reply_content)
        try:
            self._executor.on_input = on_input
            run = self._executor.run(language, code, post)
        except TaskWeaverError as error:
            self.emitter.add_post(post.end(str(error)))
            raise
        result = run.result
        post.update_attachment(status_name(result), AttachmentType.execution_status)
        seen = describe_result(result, run.shown, max_chars=MAX_KEPT_RESULT_CHARS)
        post.update_attachment(seen, AttachmentType.execution_result)
        if paths := artifact_paths(result.artifact, self.cwd):
            post.update_attachment("\n".join(paths), AttachmentType.artifact_paths, extra=paths)
        self.emitter.add_post(post.end())
        return run

    def _end(self) -> None:
        """Let go of everything."""
        try:
            for role in self._roles.values():
                self._close(role)
            self._executor.close()
            self.emitter.emit_session_event(SessionEventType.session_end, "Session ended")
        finally:
            self._folder.close()
            if self._on_end is not None:
                self._on_end(self)

    def _say_notice(self, message: str) -> None:
        self.emitter.emit_session_event(SessionEventType.session_notice, message)

    def _close(self, role: Role) -> None:
        try:
            role.close()
        except Exception:  # it may be a project's own, and the others are still to be closed
            _logger.exception("The role %s could not be closed", role.alias)

    def _stopping_questions(self) -> AbstractContextManager[None]:
        """Have a wish to stop the round close its questions; raises if there was one before."""
        return self._cancellation.stopping(lambda _kill_after: self.questions.cancel())

    @contextmanager
    def _telling(
        self, chat_round: Round, details: RoundStartExtra, *, raises: bool = False
    ) -> Iterator[None]:
        """Tell listeners how a round goes; its block says how it ended.

        Args:
            raises: Whether failures of ours go on to the caller after they were told.
        """
        self.rounds.append(chat_round)
        self.emitter.emit_session_event(SessionEventType.session_new_round, "New round")
        self.emitter.start_round(chat_round.id, details)
        try:
            yield
        except BaseException as error:
            is_cancelled = isinstance(error, RoundCancelledError | KeyboardInterrupt)
            chat_round.change_round_state("cancelled" if is_cancelled else "failed")
            if not isinstance(error, Exception):
                raise  # Ctrl-C, which is not ours to explain
            chat_round.error = self._context.masked(_explain(error, chat_round))
            if not is_cancelled:
                self.emitter.emit_error(chat_round.error)
            if raises:
                raise
        finally:
            self.questions.cancel()
            self.emitter.end_round(chat_round.id, chat_round.state, self.usage.to_dict())


def state_after(status: ExecutionStatus) -> RoundState:
    """Return how a round ends that is one run of a person's."""
    match status:
        case ExecutionStatus.SUCCESS:
            return "finished"
        case ExecutionStatus.CANCELLED:
            return "cancelled"
        case _:
            return "failed"


def _explain(error: Exception, chat_round: Round) -> str:
    """Return why a round failed, for people; what was not foreseen is logged in full."""
    if isinstance(error, RoundCancelledError):
        return str(error)
    if isinstance(error, TaskWeaverError):
        _logger.warning("Round %s failed: %s", chat_round.id, error)
        return str(error)
    _logger.error("Round %s failed", chat_round.id, exc_info=error)
    return f"The round failed: {type(error).__name__}: {error}"
