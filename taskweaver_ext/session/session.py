"""One conversation: its roles, its rounds, its executors, and what it says while it works."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from taskweaver_ext.approval import Approval
from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.executor import OnInput
from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus
from taskweaver_ext.ces.programs.languages import Language
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
from taskweaver_ext.machine.private_files import claim_private_folder, write_private
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
from taskweaver_ext.roles.code_interpreter.code_executor import CodeExecutor
from taskweaver_ext.roles.code_interpreter.code_interpreter import CodeInterpreter
from taskweaver_ext.roles.code_interpreter.result_text import (
    artifact_paths,
    describe_result,
    status_name,
)
from taskweaver_ext.roles.planner.planner import Planner
from taskweaver_ext.session.files import SessionFile, copy_into
from taskweaver_ext.session.folders import FolderInUse
from taskweaver_ext.session.submitted import Submitted
from taskweaver_ext.session.turns import SessionTurns
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
        """Make a session; its kernel starts when it is first needed.

        Args:
            on_end: Called once, when the session has ended.

        Raises:
            ConfigError: A role is unknown, the id cannot be the name of a folder, or the folder
                cannot be made.
        """
        if not _SESSION_ID.fullmatch(session_id):
            raise ConfigError(f"A session cannot be called {session_id!r}: letters, digits, -_. .")
        config = parts.config
        self.session_id = session_id
        self.session_dir = config.workspace.workspace_path / "sessions" / session_id
        self.cwd = self.session_dir / "cwd"
        _make_folder(self.session_dir)
        _make_folder(self.cwd)
        self.emitter = SessionEventEmitter()
        self.memory = Memory()
        """What the roles know."""
        self.rounds: list[Round] = []
        """All that was said and run, oldest first."""
        self.usage = TokenCounter()
        self._cancellation = Cancellation()
        self.questions = Questions(self.emitter, lambda: self._cancellation.is_requested)
        """What a person is asked; `answer` closes one."""
        self.approval = approval or Approval()
        self.approval.questions = self.questions
        self.shares_runs = False
        """Whether what a person runs, and its output, goes to the agent with the next message."""
        self.context_blocks: tuple[str, ...] = ()
        """What goes to the agent with the next message; `share` changes it."""
        self._config = config
        self._turns = SessionTurns(session_id, self._cancellation, self._end)
        self._on_end = on_end
        self._traces = parts.traces
        self._executor = CodeExecutor(
            parts.environment,
            session_id,
            self.session_dir,
            self.emitter,
            parts.plugins.without_plugin_only() if config.code_generator.load_plugin else (),
            self._cancellation,
            self.questions,
            plugin_problems=parts.plugins.problems if config.code_generator.load_plugin else (),
            languages=parts.languages,
            traces=parts.traces,
        )
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
        self._folder_in_use = FolderInUse(self.session_dir)
        self.emitter.emit_session_event(SessionEventType.session_start, "Session started")

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

    def update_session_var(self, variables: Mapping[str, str]) -> None:
        """Set what plugins read with `ctx.get_session_var`."""
        self._executor.update_session_var(dict(variables))

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
        with self._traces.round(self.session_id, chat_round), self._telling(chat_round, details):
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
        results: list[ExecutionResult] = []
        details: RoundStartExtra = {"kind": "run", "user_query": code}
        with self._telling(chat_round, details, raises=True):
            self._executor.recover()
            result = self._run(chat_round, language, code, on_input)
            results.append(result)
            chat_round.change_round_state(state_after(result.status))
        [result] = results
        if self.shares_runs:
            text = describe_result(result, max_chars=MAX_SHARED_RESULT_CHARS)
            block = f"[I ran this {language} code]\n{code}\n[and this came of it]\n{text}\n[end]"
            self._set_context((*self.context_blocks, block))
        return result

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
    ) -> ExecutionResult:
        post = self.emitter.create_post_proxy(USER)
        chat_round.add_post(post.post)
        post.update_attachment(language, AttachmentType.reply_type)
        post.update_attachment(code, AttachmentType.reply_content)
        try:
            self._executor.on_input = on_input
            result = self._executor.run(language, code, post)
        except TaskWeaverError as error:
            post.end(str(error))
            raise
        post.update_attachment(status_name(result), AttachmentType.execution_status)
        seen = describe_result(result, max_chars=MAX_KEPT_RESULT_CHARS)
        post.update_attachment(seen, AttachmentType.execution_result)
        if paths := artifact_paths(result.artifact, self.cwd):
            post.update_attachment("\n".join(paths), AttachmentType.artifact_paths, extra=paths)
        post.end()
        return result

    def _end(self) -> None:
        """Let go of everything."""
        try:
            for role in self._roles.values():
                self._close(role)
            self._executor.close()
            self.emitter.emit_session_event(SessionEventType.session_end, "Session ended")
        finally:
            self._folder_in_use.close()
            if self._on_end is not None:
                self._on_end(self)

    def _close(self, role: Role) -> None:
        try:
            role.close()
        except Exception:  # it may be a project's own, and the others are still to be closed
            _logger.exception("The role %s could not be closed", role.alias)

    @contextmanager
    def _telling(
        self, chat_round: Round, details: RoundStartExtra, *, raises: bool = False
    ) -> Iterator[None]:
        """Tell listeners how a round goes, and keep it in a file; its block says how it ended.

        Args:
            raises: Whether failures of ours go on to the caller after they were told.
        """
        self.rounds.append(chat_round)
        self.emitter.emit_session_event(SessionEventType.session_new_round, "New round")
        self.emitter.start_round(chat_round.id, details)
        try:
            with self._cancellation.stopping(lambda _kill_after: self.questions.cancel()):
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
            try:
                self._save(chat_round)
            finally:
                self.emitter.end_round(chat_round.id, chat_round.state)

    def _save(self, chat_round: Round) -> None:
        path = self.session_dir / f"{self.session_id}_{chat_round.id}.json"
        try:
            text = json.dumps(chat_round.to_dict(), ensure_ascii=False, indent=1, default=str)
            write_private(path, text)
        except (OSError, TypeError, ValueError, RecursionError) as error:
            # A disk may be full, and attachments of roles of one's own hold anything.
            _logger.warning("Round %s cannot be kept in %s: %s", chat_round.id, path, error)


def state_after(status: ExecutionStatus) -> RoundState:
    """Return how a round ends that is one run of a person's."""
    match status:
        case ExecutionStatus.SUCCESS:
            return "finished"
        case ExecutionStatus.CANCELLED:
            return "cancelled"
        case _:
            return "failed"


def _make_folder(folder: Path) -> None:
    try:
        claim_private_folder(folder)
    except OSError as error:
        raise ConfigError(
            f"The session's folder {folder} cannot be made ({error.strerror}). Start"
            " in a folder that can be written, or set workspace.workspace_path (or the variable"
            " WORKSPACE_WORKSPACE_PATH) to one."
        ) from error


def _explain(error: Exception, chat_round: Round) -> str:
    """Return why a round failed, for people; what was not foreseen is logged in full."""
    if isinstance(error, RoundCancelledError):
        return str(error)
    if isinstance(error, TaskWeaverError):
        _logger.warning("Round %s failed: %s", chat_round.id, error)
        return str(error)
    _logger.error("Round %s failed", chat_round.id, exc_info=error)
    return f"The round failed: {type(error).__name__}: {error}"
