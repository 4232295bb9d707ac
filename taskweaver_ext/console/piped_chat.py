"""The chat without a terminal: one request per line, plain output, an exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from taskweaver_ext.ces.execution.results import StreamName
from taskweaver_ext.chat.exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED
from taskweaver_ext.chat.requests import Mode, parse_request
from taskweaver_ext.console.commands import Commands
from taskweaver_ext.console.execution_text import ExecutionText
from taskweaver_ext.console.request_runner import RequestRunner
from taskweaver_ext.console.rows import NO_LIMIT, Painter
from taskweaver_ext.console.transcript import Transcript
from taskweaver_ext.conversation import PostId, RoundId
from taskweaver_ext.events.types import (
    EventExtra,
    ExecutionEventExtra,
    ExecutionOutputExtra,
    LateOutputExtra,
    PostEventType,
    RoleExtra,
    SessionEventType,
)
from taskweaver_ext.roles.base.role import USER


class PlainTranscript(Transcript):
    """Frames what the agent does, in full and plainly; the user's own code writes as it is."""

    def __init__(
        self, write: Callable[[StreamName, str], object], on_answer: Callable[[str], object]
    ) -> None:
        """Begin with nothing.

        Args:
            write: Takes what the user's own code writes.
            on_answer: Takes the agent's answers.
        """
        super().__init__(
            NO_LIMIT, 24, Painter(has_color=False), rows_in_full=NO_LIMIT, on_answer=on_answer
        )
        self._write = write
        self._own_posts: dict[PostId, ExecutionText] = {}
        """Also those that have ended: what they started may still write."""

    def handle_post(
        self, type: PostEventType, msg: str, extra: EventExtra, post_id: PostId, round_id: RoundId
    ) -> None:
        """Hear what happened to a post."""
        if type is PostEventType.post_start and cast(RoleExtra, extra)["role"] == USER:
            self._own_posts[post_id] = ExecutionText()
        text = self._own_posts.get(post_id)
        if text is None:
            super().handle_post(type, msg, extra, post_id, round_id)
        elif type is PostEventType.post_execution_output:
            output = cast(ExecutionOutputExtra, extra)
            text.wrote(output["text"])
            self._write(output["stream"], output["text"])
        elif type is PostEventType.post_execution_event:
            lines = text.lines_of(cast(ExecutionEventExtra, extra)["event"])
            if lines is not None:
                self._write(*lines)

    def handle_session(self, type: SessionEventType, msg: str, extra: EventExtra) -> None:
        """Hear what happened to the session."""
        if type is SessionEventType.session_late_output:
            late = cast(LateOutputExtra, extra)
            if PostId(late["execution_id"]) in self._own_posts:
                self._write(late["stream"], late["text"])
                return
        super().handle_session(type, msg, extra)


class PipedChat:
    """Does one request after another; a failed one does not keep the next from being done."""

    def __init__(self, runner: RequestRunner) -> None:
        self.mode: Mode = "agent"
        self.history: list[str] = []
        self._runner = runner
        self._commands = Commands(runner, self)

    def run(self, lines: Iterable[str]) -> int:
        """Do what the lines ask for; return the exit code."""
        has_failed = False
        for line in lines:
            self.history.append(line.rstrip("\n"))
            request = parse_request(line, self.mode)
            if request.command == "exit":
                break
            has_failed = not self._commands.do(request) or has_failed
            if self._runner.is_abandoned:
                return EXIT_FAILED
            if self._runner.was_stopped:
                return EXIT_INTERRUPTED
        return EXIT_FAILED if has_failed else EXIT_DONE
