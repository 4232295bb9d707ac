"""The chat without a terminal: one request per line, plain output, an exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from taskweaver_ext.ces.execution.events import DisplayProduced, DisplayUpdated, ExecutionEvent
from taskweaver_ext.ces.execution.results import StreamName
from taskweaver_ext.chat.exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED
from taskweaver_ext.chat.requests import Mode, parse_request
from taskweaver_ext.console.block_status import status_from_attachment, status_text
from taskweaver_ext.console.commands import Commands
from taskweaver_ext.console.execution_notes import ExecutionNotes
from taskweaver_ext.console.late_output_view import TITLE_CELLS
from taskweaver_ext.console.request_runner import RequestRunner
from taskweaver_ext.console.rows import NO_LIMIT, Painter, clip
from taskweaver_ext.console.transcript import Transcript
from taskweaver_ext.conversation import AttachmentType, PostId, RoundId
from taskweaver_ext.events.extras import (
    AttachmentExtra,
    CodeBlockExtra,
    EventExtra,
    ExecutionEventExtra,
    ExecutionOutputExtra,
    LateOutputExtra,
    RoleExtra,
)
from taskweaver_ext.events.types import PostEventType, SessionEventType
from taskweaver_ext.roles.base.role import USER
from taskweaver_ext.tools.display_text import plain_display


class _OwnRun:
    """Code of the user's own: it writes as it is; what else it does gets lines of its own."""

    def __init__(self, write: Callable[[StreamName, str], object]) -> None:
        self.title = ""
        """The first line of its code."""
        self.number = 0
        self._write = write
        self._notes = ExecutionNotes()
        self._is_mid_line = False

    def output(self, stream: StreamName, text: str) -> None:
        """Pass on what it wrote."""
        self._is_mid_line = not text.endswith("\n")
        self._write(stream, text)

    def event(self, event: ExecutionEvent) -> None:
        """Say what else it does; what is printed stays, so an update is one more display."""
        if isinstance(event, DisplayProduced | DisplayUpdated):
            self._add("stdout", plain_display(event.bundle))
        for stream, text in self._notes.notes_on(event):
            self._add(stream, text)

    def end_line(self) -> None:
        """Let what comes next begin on a line of its own."""
        if self._is_mid_line:
            self.output("stdout", "\n")

    def _add(self, stream: StreamName, text: str) -> None:
        if text:
            start = "\n" if self._is_mid_line else ""
            self._is_mid_line = False
            self._write(stream, f"{start}{text.rstrip()}\n")


class PlainTranscript(Transcript):
    """Frames what the agent does, in full and plainly; the user's own code writes as it is."""

    def __init__(
        self,
        write: Callable[[StreamName, str], object],
        on_answer: Callable[[str], object],
        *,
        shows_status: bool = False,
        is_verbose: bool = False,
    ) -> None:
        """Begin with nothing.

        Args:
            write: Takes what the user's own code writes.
            on_answer: Takes the agent's answers.
            shows_status: Whether a person watches, who is told how their code ended.
            is_verbose: Whether thoughts, all plans and what roles tell each other are shown.
        """
        super().__init__(
            NO_LIMIT,
            24,
            Painter(has_color=False),
            collapses=False,
            on_answer=on_answer,
            is_verbose=is_verbose,
        )
        self._write = write
        self._shows_status = shows_status
        self._own_posts: dict[PostId, _OwnRun] = {}
        """Also those that have ended: what they started may still write."""
        self._late_run: _OwnRun | None = None
        """Whose late output was written last, with nothing else since."""

    def handle_post(
        self, type: PostEventType, msg: str, extra: EventExtra, post_id: PostId, round_id: RoundId
    ) -> None:
        """Hear what happened to a post."""
        if type is PostEventType.post_start and cast(RoleExtra, extra)["role"] == USER:
            self._own_posts[post_id] = _OwnRun(self._write)
        run = self._own_posts.get(post_id)
        if run is None:
            super().handle_post(type, msg, extra, post_id, round_id)
        elif type is PostEventType.post_attachment_update:
            kind = cast(AttachmentExtra, extra)["type"]
            if kind is AttachmentType.reply_content:
                run.title = run.title or msg.strip().partition("\n")[0]
            elif kind is AttachmentType.execution_status and self._shows_status:
                run.end_line()
                status = status_from_attachment(msg)
                self.say(status_text(run.number, status, is_known=self.is_shared)[0])
        elif type is PostEventType.post_code_block:
            run.number = cast(CodeBlockExtra, extra)["number"]
        elif type is PostEventType.post_execution_output:
            self._late_run = None
            output = cast(ExecutionOutputExtra, extra)
            run.output(output["stream"], output["text"])
        elif type is PostEventType.post_execution_event:
            run.event(cast(ExecutionEventExtra, extra)["event"])

    def handle_session(self, type: SessionEventType, msg: str, extra: EventExtra) -> None:
        """Hear what happened to the session."""
        if type is SessionEventType.session_late_output:
            late = cast(LateOutputExtra, extra)
            if run := self._own_posts.get(PostId(late["execution_id"])):
                if run is not self._late_run:
                    self._late_run = run
                    self.say(f"[Late output of {clip(run.title, TITLE_CELLS)}]")
                self._write(late["stream"], late["text"])
                return
        super().handle_session(type, msg, extra)


class PipedChat:
    """Does one request after another; a failed one does not keep the next from being done."""

    def __init__(self, runner: RequestRunner, *, has_person: bool = False) -> None:
        """Prepare.

        Args:
            has_person: Whether a person types: what they stop does not end the chat.
        """
        self.mode: Mode = "agent"
        self.history: list[str] = []
        self._runner = runner
        self._has_person = has_person
        self._commands = Commands(runner, self)

    def prefill(self, text: str) -> bool:
        """Say that lines cannot be edited here."""
        return False

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
            if self._has_person and not self._runner.is_asked_to_end:
                continue
            if self._runner.was_stopped:
                return EXIT_INTERRUPTED
        return EXIT_FAILED if has_failed else EXIT_DONE
