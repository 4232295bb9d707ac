"""What a session says, as rows of a screen.

Pure: events in, rows out; no terminal, no thread. `rows` are finished and go into the
scrollback; `live_rows` are drawn again and again below them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, cast

from taskweaver_ext.approval import ApprovalRequest
from taskweaver_ext.ces.execution.results import StreamName
from taskweaver_ext.ces.programs.languages import find_language
from taskweaver_ext.chat.requests import input_line
from taskweaver_ext.console.answer_view import AnswerView
from taskweaver_ext.console.block_status import KNOWN, status_text
from taskweaver_ext.console.frame import Frame
from taskweaver_ext.console.inbox import StopStage
from taskweaver_ext.console.late_output_view import LateOutputView
from taskweaver_ext.console.markdown_use import MarkdownUse
from taskweaver_ext.console.output_block import (
    AGENT_PREVIEW_LINES,
    OWN_PREVIEW_LINES,
    OutputBlock,
)
from taskweaver_ext.console.pictures import MAX_ROWS, PictureDrawer
from taskweaver_ext.console.plan_filter import PlanFilter
from taskweaver_ext.console.post_view import PostView
from taskweaver_ext.console.rich_display import DisplayView
from taskweaver_ext.console.rows import (
    DIM,
    NO_LIMIT,
    YELLOW,
    Painter,
    UnframedRow,
    cell_width,
    clip,
    framed,
)
from taskweaver_ext.conversation import PostId, RoleName, RoundId
from taskweaver_ext.events.extras import (
    AttachmentExtra,
    CodeBlockExtra,
    CodeExecExtra,
    ContextExtra,
    EventExtra,
    ExecutionEventExtra,
    ExecutionOutputExtra,
    LateOutputExtra,
    RoleExtra,
    RoundStartExtra,
)
from taskweaver_ext.events.types import (
    PostEventType,
    RoundEventType,
    SessionEventHandlerBase,
    SessionEventType,
)
from taskweaver_ext.roles.base.role import USER
from taskweaver_ext.text.terminal import message_text

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_CTRL_C = {"": "Ctrl-C stops", "stopping": "Ctrl-C again kills", "killing": ""}
_SPINNER_FRAMES_PER_SECOND = 8


class Transcript(SessionEventHandlerBase):
    """Follow a session and draw it.

    Threads:
        One: the thread that owns the terminal calls everything.
    """

    def __init__(
        self,
        width: int,
        height: int,
        painter: Painter,
        *,
        collapses: bool = True,
        open_lines: int = 0,
        on_answer: Callable[[str], object] | None = None,
        can_expand: bool = True,
        is_verbose: bool = False,
    ) -> None:
        """Begin with an empty screen.

        Args:
            collapses: Whether only a preview of long output stays.
            open_lines: How many lines of running code stay among the live rows, where they can
                still be replaced or cleared.
            on_answer: Takes answers for the user; without it they are drawn while they come.
            can_expand: Whether a person can ask for what was collapsed.
            is_verbose: Whether thoughts, all plans and what roles tell each other are shown.
        """
        self.rows: list[str] = []
        """Finished rows, until `pop_rows`."""
        self.stop_stage: StopStage | Literal[""] = ""
        """How what runs is being ended, if it is."""
        self.painter = painter
        """What rows are coloured with."""
        self.markdown = MarkdownUse()
        """What is drawn as Markdown from now on."""
        self.displays = DisplayView(painter, PictureDrawer())
        """Draws what code displays."""
        self.is_verbose = is_verbose
        """Whether posts that begin from now on are shown with all that is attached to them."""
        self.has_numbers = True
        """Whether the numbers of code blocks are shown: those of a session of its own are not
        those that commands know."""
        self._width = width
        self._height = height
        self._collapses = collapses
        self._can_expand = can_expand
        self._open_lines = open_lines
        self._on_answer = on_answer
        self._posts: dict[PostId, PostView] = {}
        self._late = LateOutputView(painter, self._new_late_output)
        self._step = ""
        self._plans = PlanFilter()
        self._failure = ""
        self.is_shared = False
        """Whether the agent hears of what the user runs in this round."""
        self._shared: set[PostId] = set()
        """The runs that go to the agent with the next message."""

    @property
    def width(self) -> int:
        """How many columns there are."""
        return self._width

    def resize(self, width: int, height: int) -> None:
        """Draw for another size from now on."""
        self._width = width
        self._height = height
        self.displays.height = min(MAX_ROWS, max(2, height - 6))
        for post in self._posts.values():
            post.resize(width)

    def pop_rows(self) -> list[str]:
        """Return the finished rows, each once."""
        rows, self.rows = self.rows, []
        return rows

    def pop_failure(self) -> str:
        """Return why a round has failed, once; empty when none has."""
        failure, self._failure = self._failure, ""
        self.stop_stage = ""
        return failure

    def handle_post(
        self, type: PostEventType, msg: str, extra: EventExtra, post_id: PostId, round_id: RoundId
    ) -> None:
        """Hear what happened to a post."""
        if type is PostEventType.post_start:
            self._late.end_frame()
            role = cast(RoleExtra, extra)["role"]
            self._posts[post_id] = self._new_post(role)
        if type is PostEventType.post_code_block and self.has_numbers:
            self._receive_number(msg, cast(CodeBlockExtra, extra), post_id)
        post = self._posts.get(post_id)
        if post is None:
            return
        match type:
            case PostEventType.post_execution_output:
                output = cast(ExecutionOutputExtra, extra)
                post.output(output["stream"], output["text"], output["execution_id"])
            case PostEventType.post_execution_event:
                post.execution_event(cast(ExecutionEventExtra, extra)["event"])
            case PostEventType.post_code_exec:
                post.code_exec(msg, cast(CodeExecExtra, extra))
            case PostEventType.post_attachment_update:
                post.attach(msg, cast(AttachmentExtra, extra))
            case PostEventType.post_message_update:
                post.say(msg)
            case PostEventType.post_send_to_update:
                post.send_to = cast(RoleExtra, extra)["role"]
            case PostEventType.post_status_update:
                post.status = msg
            case PostEventType.post_error:
                post.fail(msg)
            case PostEventType.post_start | PostEventType.post_end | PostEventType.post_code_block:
                pass
        self._step = post.step or self._step
        self._collect_from(post)
        if type is PostEventType.post_end:
            self._end_post(post_id, post)

    def handle_session(self, type: SessionEventType, msg: str, extra: EventExtra) -> None:
        """Hear what happened to the session."""
        if type is SessionEventType.session_late_output:
            late = cast(LateOutputExtra, extra)
            post_id = PostId(late["execution_id"])  # an execution has the id of its post
            self.rows += self._late.rows(post_id, self._width, late["stream"], late["text"])
        elif type is SessionEventType.session_context_update:
            self._show_shared(cast(ContextExtra, extra))
        elif type is SessionEventType.session_notice:
            self.say(f"[Notice] {msg}", color=YELLOW)
        elif type is SessionEventType.session_files_added:
            self.say(msg)

    def _show_shared(self, context: ContextExtra) -> None:
        """Mark a block that a person ran and the agent hears of."""
        runs = set(context.get("runs", ())) - {PostId("")}
        if runs - self._shared:
            self.say(f" {KNOWN} The agent hears of it (/context).", color=DIM)
        self._shared = runs

    def handle_round(
        self, type: RoundEventType, msg: str, extra: EventExtra, round_id: RoundId
    ) -> None:
        """Hear what happened to a round."""
        if type is RoundEventType.round_start:
            self.is_shared = cast(RoundStartExtra, extra).get("is_shared", False)
        elif type is RoundEventType.round_error:
            self.cut_off()
            self._failure = msg
        elif type is RoundEventType.round_end:
            self.cut_off()
            self._step = ""
            self._plans = PlanFilter()

    def cut_off(self) -> None:
        """Finish all that is open: nothing more will come."""
        for post_id, post in self._posts.items():
            post.cut_off()
            self._collect_from(post)
            self._late.remember(post_id, post.title, post.number)
        self._posts.clear()

    def say(self, text: str, *, color: str = "", indent: int = 0) -> None:
        """Show something of our own; rows that a long line goes on in are indented."""
        self._late.end_frame()
        for line in message_text(text).split("\n"):
            rows = framed(
                line[indent:],
                self._width,
                self.painter,
                first=line[:indent],
                rest=" " * indent,
                first_color=color,
                color=color,
                is_prose=True,
            )
            self.rows += map(UnframedRow, rows)

    def say_command(self, words: str, command: str, *, color: str = "") -> None:
        """Show a command behind some words, or below them, so that it can be copied whole."""
        if len(words) + 1 + cell_width(command) <= self._width:
            self.say(f"{words} {command}", color=color)
            return
        self.say(words, color=color)
        self.rows.append(UnframedRow(self.painter.paint(message_text(command), color)))

    def show_approval(self, request: ApprovalRequest) -> None:
        """Say in the current post why the user has to decide about its code."""
        if post := self._current_post():
            post.show_approval(request)
            self._collect_from(post)

    def show_code(self, label: str, language: str, code: str) -> None:
        """Show code of the session once more."""
        self._late.end_frame()
        frame = Frame("", self._width, self.painter)
        frame.begin_text("", label, language=language)
        frame.feed(code)
        frame.finish_open()
        self.rows += frame.rows

    def settle(self) -> None:
        """Let all that is complete be final: live rows are not to be seen."""
        for post in self._posts.values():
            post.frame.settle()
            self._collect_from(post)

    def live_rows(self, seconds: float) -> list[str]:
        """What is drawn below the finished rows while something has been running so long."""
        post = self._current_post()
        room = max(1, self._height - 3)
        rows = post.live_rows(room) if post else []
        return [*rows, self._status_row(post, seconds)]

    def _new_post(self, role: RoleName) -> PostView:
        has_title = self.is_verbose and role != USER
        post = PostView(
            role,
            Frame(role if has_title else "", self._width, self.painter),
            self._new_open_output,
            self._plans,
            self.displays,
            None if self._on_answer else self._new_answer,
            is_verbose=self.is_verbose,
        )
        post.is_known = post.is_of_user and self.is_shared
        return post

    def _receive_number(self, code: str, extra: CodeBlockExtra, post_id: PostId) -> None:
        """Show the number of code that an answer proposes; a post shows that of its own."""
        if extra["part"] == 0:
            if post := self._posts.get(post_id):
                post.receive_number(extra)
            return
        number = extra["number"]
        text, color = status_text(number, "not_run")
        first = message_text(code).strip().partition("\n")[0]
        how = f": {_what_can_be_done(number, extra['language'])}" if self._can_expand else ""
        row = clip(f" {text}{how}  {extra['language']}: {first}", self._width)
        self.rows.append(self.painter.paint(row, color))

    def _new_open_output(self, post: PostView) -> OutputBlock:
        # More open lines than are seen would only come to light when they are final.
        open_lines = min(self._open_lines, max(0, self._height // 2 - 1))
        lines = OWN_PREVIEW_LINES if post.is_of_user else AGENT_PREVIEW_LINES
        return OutputBlock(
            self._width,
            self.painter,
            number=post.number if self._can_expand else 0,
            preview_lines=lines if self._collapses else NO_LIMIT,
            open_lines=open_lines,
            is_markdown=self.markdown.is_on_for(post.language),
        )

    def _new_late_output(self, number: int, frames: Mapping[StreamName, str]) -> OutputBlock:
        # What comes late has no end that could be waited for: only its beginning is shown.
        lines = 2 * OWN_PREVIEW_LINES if self._collapses else NO_LIMIT
        number = number if self._can_expand else 0
        return OutputBlock(
            self._width, self.painter, number=number, preview_lines=lines, frames=frames
        )

    def _current_post(self) -> PostView | None:
        return next(reversed(self._posts.values()), None)

    def _collect_from(self, post: PostView) -> None:
        self.rows += post.frame.rows
        post.frame.rows.clear()

    def _end_post(self, post_id: PostId, post: PostView) -> None:
        answer = post.end()
        self._collect_from(post)
        del self._posts[post_id]
        self._late.remember(post_id, post.title, post.number)
        if answer is None:
            return
        if self._on_answer is not None:
            self._on_answer(answer)
        else:
            self.show_answer(answer, is_markdown=self.markdown.agent)

    def show_answer(self, answer: str, *, is_markdown: bool = True) -> None:
        """Show a whole answer."""
        view = AnswerView(self._width, self.painter, is_markdown=is_markdown)
        self.rows += [*view.feed(answer), *view.close()]

    def _new_answer(self, width: int) -> AnswerView:
        return AnswerView(width, self.painter, is_markdown=self.markdown.agent)

    def _status_row(self, post: PostView | None, seconds: float) -> str:
        spinner = _SPINNER[int(seconds * _SPINNER_FRAMES_PER_SECOND) % len(_SPINNER)]
        status = post.status if post else ""
        who = post.role if post and not post.is_of_user else ""
        parts = [
            f"[{post.number}] {who or 'running'}" if post and post.number else who,
            self.stop_stage or status,
            f"{int(seconds)} s",
            _CTRL_C[self.stop_stage],
            self._step,
        ]
        text = " · ".join(message_text(part).replace("\n", " ") for part in parts if part)
        return self.painter.paint(clip(f" {spinner} {text}", self._width), DIM)


def _what_can_be_done(number: int, language: str) -> str:
    """The commands that make sense for code that an answer proposes."""
    commands = ["/run"] if find_language(language) else []
    commands.append("/edit" if input_line(language, "") else "/copy")
    return ", ".join(f"{command} {number}" for command in commands)
