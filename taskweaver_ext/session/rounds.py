"""Run a round to its end: a message that the roles answer, or code that a person typed."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from taskweaver_ext.ces.execution.events import ExecutionFinished, StatusChanged
from taskweaver_ext.ces.execution.executor import OnInput
from taskweaver_ext.ces.execution.results import ExecutionId, ExecutionResult, ExecutionStatus
from taskweaver_ext.conversation import AttachmentType, Post, RoleName, Round, RoundState
from taskweaver_ext.errors import RoundCancelledError, SessionError, TaskWeaverError
from taskweaver_ext.events.extras import RoundStartExtra
from taskweaver_ext.events.questions import Questions
from taskweaver_ext.events.types import SessionEventType
from taskweaver_ext.roles.base.role import USER, Role, RoleContext
from taskweaver_ext.roles.code_interpreter.code_executor import CodeExecutor, CodeRun
from taskweaver_ext.roles.code_interpreter.result_text import (
    artifact_paths,
    describe_result,
    status_name,
)
from taskweaver_ext.session.blocks import TERMINAL
from taskweaver_ext.session.memory import SessionMemory
from taskweaver_ext.session.terminal_run import UseTerminal, judge, place_of

MAX_KEPT_RESULT_CHARS = 20_000
"""How much of what a person's code wrote is kept with it: about what the console shows."""

_logger = logging.getLogger(__name__)


class Rounds:
    """Run the rounds of one session, and tell its listeners how each of them goes.

    Threads:
        For the thread that has the session's turn.
    """

    def __init__(
        self,
        context: RoleContext,
        roles: Mapping[RoleName, Role],
        executor: CodeExecutor,
        questions: Questions,
        memory: SessionMemory,
    ) -> None:
        """Prepare for the first round.

        Args:
            roles: By alias; the first of them hears the user.
            questions: What a person is asked; those of a round close with it.
        """
        self._context = context
        self._emitter = context.emitter
        self._roles = roles
        self._executor = executor
        self._questions = questions
        self._memory = memory

    def answer(
        self, chat_round: Round, file_names: Sequence[str], on_input: OnInput | None
    ) -> Round:
        """Have the roles answer a message; the round says how that ended.

        Args:
            file_names: What was added to the working directory for it.
        """
        parts = [*self._memory.context_blocks, chat_round.user_query]
        if file_names:
            parts.insert(0, describe_files(file_names))
        shared = [block.to_attachment() for block in self._memory.waiting if block.run]
        post = Post.create("\n".join(parts), USER, next(iter(self._roles)), shared)
        chat_round.add_post(post)
        self._memory.known.rounds.append(chat_round)
        self._context.usage.begin_round()
        details: RoundStartExtra = {
            "kind": "message",
            "user_query": chat_round.user_query,
            "post": post.to_dict(),
        }
        if file_names:
            details["files"] = list(file_names)
        with (
            self._context.traces.round(self._context.session_id, chat_round),
            self._telling(chat_round, details),
            self._stopping_questions(),
        ):
            self._memory.share(())
            self._executor.recover()
            self._executor.start_meanwhile()
            self._executor.on_input = on_input
            self._converse(chat_round)
            chat_round.change_round_state("finished")
        return chat_round

    def run(
        self,
        chat_round: Round,
        language: str,
        on_input: OnInput | None,
        repeats: int | None = None,
        *,
        is_shared: bool = False,
    ) -> CodeRun:
        """Run what a person typed, which is the round's query.

        Args:
            repeats: The number of the code block that is run again.
            is_shared: Whether the agent will hear of it.

        Raises:
            RoundCancelledError: The run was stopped before it began.
            KernelStartError: The kernel did not become ready.
        """
        runs: list[CodeRun] = []
        details: RoundStartExtra = {"kind": "run", "user_query": chat_round.user_query}
        if repeats is not None:
            details["repeats"] = repeats
        if is_shared:
            details["is_shared"] = True
        with self._telling(chat_round, details, raises=True), self._stopping_questions():
            self._executor.recover()
            runs.append(self._run(chat_round, language, on_input))
            chat_round.change_round_state(state_after(runs[0].result.status))
        return runs[0]

    def run_in_terminal(
        self, chat_round: Round, use_terminal: UseTerminal, *, is_shared: bool = False
    ) -> ExecutionResult:
        """Have a frontend give its terminal to what a person typed, which is the round's query.

        Args:
            is_shared: Whether the agent will hear of it.

        Raises:
            SessionError: The session's programs do not run on this machine.
        """
        command = chat_round.user_query
        service = self._context.config.execution_service
        place = place_of(command, self._executor.shell_state(), self._executor.cwd, service)
        details: RoundStartExtra = {"kind": "run", "user_query": command}
        if is_shared:
            details["is_shared"] = True
        with self._telling(chat_round, details, raises=True):
            post = self._emitter.create_post_proxy(USER)
            chat_round.add_post(post.post)
            post.update_attachment(TERMINAL, AttachmentType.reply_type)
            post.update_attachment(command, AttachmentType.reply_content)
            result = ExecutionResult(execution_id=ExecutionId(post.post.id), code=command)
            began_at = time.monotonic()
            try:
                end = use_terminal(place)
                judge(result, end)
                if end.stopped:
                    post.emit_execution_event(
                        StatusChanged(
                            execution_id=result.execution_id, status="paused", detail=end.stopped
                        )
                    )
            finally:
                result.duration_seconds = time.monotonic() - began_at
                post.emit_execution_event(ExecutionFinished.of(result))
                post.update_attachment(status_name(result), AttachmentType.execution_status)
                post.update_attachment(describe_result(result), AttachmentType.execution_result)
                self._emitter.add_post(post.end())
            chat_round.change_round_state(state_after(result.status))
        return result

    def _converse(self, chat_round: Round) -> None:
        """Pass posts from role to role until one is for the user."""
        limit = self._context.config.session.max_internal_chat_round_num
        post = chat_round.post_list[-1]
        for _ in range(limit):
            self._context.cancellation.check()
            role = self._roles.get(post.send_to)
            if role is None:
                raise SessionError(f"{post.send_from} wrote to {post.send_to!r}, who is not here.")
            post = role.reply(self._memory.known)
            if not isinstance(post, Post):  # a role may be a project's own
                raise SessionError(
                    f"{role.alias} returned {type(post).__name__} in place of a post. A role's"
                    " reply returns what `post.end()` gives."
                )
            chat_round.add_post(post)
            self._emitter.add_post(post)
            _logger.info("%s wrote to %s", post.send_from, post.send_to)
            if post.send_to == USER:
                return
        self._context.cancellation.check()
        raise SessionError(
            f"The roles have written to each other {limit} times without an answer, which is the"
            " limit (session.max_internal_chat_round_num). Ask for less at a time, or raise it."
        )

    def _run(self, chat_round: Round, language: str, on_input: OnInput | None) -> CodeRun:
        code = chat_round.user_query
        post = self._emitter.create_post_proxy(USER)
        chat_round.add_post(post.post)
        post.update_attachment(language, AttachmentType.reply_type)
        post.update_attachment(code, AttachmentType.reply_content)
        try:
            self._executor.on_input = on_input
            run = self._executor.run(language, code, post)
        except TaskWeaverError as error:
            self._emitter.add_post(post.end(str(error)))
            raise
        result = run.result
        post.update_attachment(status_name(result), AttachmentType.execution_status)
        seen = describe_result(result, run.shown, max_chars=MAX_KEPT_RESULT_CHARS)
        post.update_attachment(seen, AttachmentType.execution_result)
        if paths := artifact_paths(result.artifact, self._executor.cwd):
            post.update_attachment("\n".join(paths), AttachmentType.artifact_paths, extra=paths)
        self._emitter.add_post(post.end())
        return run

    def _stopping_questions(self) -> AbstractContextManager[None]:
        """Have a wish to stop the round close its questions; raises if there was one before."""
        return self._context.cancellation.stopping(lambda _kill_after: self._questions.cancel())

    @contextmanager
    def _telling(
        self, chat_round: Round, details: RoundStartExtra, *, raises: bool = False
    ) -> Iterator[None]:
        """Tell listeners how a round goes; its block says how it ended.

        Args:
            raises: Whether failures of ours go on to the caller after they were told.
        """
        self._memory.rounds.append(chat_round)
        self._emitter.emit_session_event(SessionEventType.session_new_round, "New round")
        self._emitter.start_round(chat_round.id, details)
        try:
            yield
        except BaseException as error:
            is_cancelled = isinstance(error, RoundCancelledError | KeyboardInterrupt)
            chat_round.change_round_state("cancelled" if is_cancelled else "failed")
            if not isinstance(error, Exception):
                raise  # Ctrl-C, which is not ours to explain
            chat_round.error = self._context.masked(_explain(error, chat_round))
            if not is_cancelled:
                self._emitter.emit_error(chat_round.error)
            if raises:
                raise
        finally:
            self._questions.cancel()
            self._emitter.end_round(chat_round.id, chat_round.state, self._context.usage.to_dict())


def describe_files(names: Sequence[str]) -> str:
    """What the agent is told of files that a person has given."""
    return f"Files added to the working directory: {', '.join(names)}."


def state_after(status: ExecutionStatus) -> RoundState:
    """Return how a round ends that is one run of a person's."""
    match status:
        case ExecutionStatus.SUCCESS | ExecutionStatus.PAUSED:
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
