"""One post on the screen: its frame, what is attached to it, and the code it writes and runs.

Pure: pieces of the post come in, rows come out. One thing grows at a time; when
another begins, the one before is finished.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from taskweaver_ext.approval import ApprovalRequest
from taskweaver_ext.ces.execution.events import (
    DisplayProduced,
    DisplayUpdated,
    ExecutionEvent,
    OutputCleared,
)
from taskweaver_ext.ces.execution.results import ExecutionId, StreamName
from taskweaver_ext.console.answer_view import AnswerView
from taskweaver_ext.console.execution_notes import ExecutionNotes
from taskweaver_ext.console.output_block import OutputBlock
from taskweaver_ext.console.panel_text import (
    describe_contract,
    describe_status,
    describe_timings,
)
from taskweaver_ext.console.plan_filter import PlanFilter
from taskweaver_ext.console.rich_display import DisplayView
from taskweaver_ext.console.rows import (
    BOLD,
    CYAN,
    DIM,
    END,
    GREEN,
    MESSAGE,
    OUTPUT,
    RED,
    YELLOW,
    Painter,
    framed,
)
from taskweaver_ext.console.text_block import TextBlock
from taskweaver_ext.conversation import UNKNOWN_ROLE, AttachmentId, AttachmentType, RoleName
from taskweaver_ext.events.types import AttachmentExtra, CodeExecExtra
from taskweaver_ext.roles.base.role import USER
from taskweaver_ext.roles.code_interpreter.result_text import REFUSED
from taskweaver_ext.text.terminal import message_text

_GOES_ON = "InProcess"
"""The stop state that goes without saying."""
_DIMMED = {AttachmentType.thought, AttachmentType.plan_reasoning}
_GOOD_VERDICTS = ("CORRECT", "SUCCESS", "NONE")
_PREVIEW_ROWS = 8
"""How much of a message that is still being written is shown."""
_ERROR_LINES = 20
_TITLE_CHARS = 200


class PostView:
    """What is to be seen of one post; `rows` collects what will not change any more."""

    def __init__(
        self,
        role: RoleName,
        width: int,
        painter: Painter,
        new_output: Callable[[int, str], OutputBlock],
        plans: PlanFilter,
        displays: DisplayView,
        new_answer: Callable[[int], AnswerView] | None = None,
    ) -> None:
        """Begin a post of a role.

        Args:
            new_output: Makes a block for the output of code, for a width and a language.
            plans: Knows the plans of the round so far.
            displays: Draws what code displays.
            new_answer: Makes a view of an answer while it is written, for a width; without it
                the answer is returned at the end.
        """
        self.role = role
        self.rows: list[str] = []
        self.status = ""
        """What the role is doing, in its own words."""
        self.send_to: RoleName = UNKNOWN_ROLE
        self.message = ""
        self._width = width
        self._painter = painter
        self._new_output = new_output
        self._new_answer = new_answer
        self._displays = displays
        self._answer: AnswerView | None = None
        self._has_frame = False
        self._open: TextBlock | OutputBlock | None = None
        self._open_key: AttachmentId | ExecutionId | str = ""
        self._reply_type = ""
        self._code_source = ""
        """Code comes twice, as an attachment and to the panel; what begins is what is shown."""
        self._code = ""
        self._code_id = ""
        self._panel_code_label = "code"
        self._step = ""
        self._stop_state = ""
        self._plans = plans
        self._plan: AttachmentExtra | None = None
        """The plan that is being written."""
        self._has_output = False
        self._notes = ExecutionNotes()
        self._status_shown = False
        self._timings = ""
        self._verdict = ""
        """How the user's own code ended."""
        self._is_of_user = role == USER  # what the user has just typed need not be shown

    @property
    def step(self) -> str:
        """Where in its plan the role is."""
        return message_text(self._step).strip().partition("\n")[0]

    @property
    def title(self) -> str:
        """What the post is known by once it has ended: the first line of its code."""
        return message_text(self._code[:_TITLE_CHARS]).strip().partition("\n")[0] or self.role

    def resize(self, width: int) -> None:
        """Take another width from now on."""
        self._width = width
        if self._open is not None:
            self._open.width = width
        if self._answer is not None:
            self._answer.resize(width)

    def attach(self, text: str, extra: AttachmentExtra) -> None:
        """Show the next piece of an attachment."""
        kind = extra["type"]
        if text and self._plan is not None and self._plan["id"] != extra["id"]:
            self._end_plan()
        match kind:
            case AttachmentType.reply_type:
                self._reply_type += text
            case AttachmentType.shared_memory_entry:
                pass  # between roles
            case AttachmentType.reply_content:
                self._attach_code(text, extra)
            case AttachmentType.init_plan | AttachmentType.plan:
                self._attach_plan(text, extra)
            case AttachmentType.artifact_paths:
                paths = [path for path in text.split("\n") if not self._notes.has_named(path)]
                self._show_text(kind, "\n".join(paths), extra)
            case AttachmentType.stop:
                self._receive_stop_state(text, is_end=extra["is_end"])
            case AttachmentType.execution_result:
                self._show_result(text)
            case AttachmentType.verification | AttachmentType.execution_status:
                self._show_verdict(kind, text)
            case _:
                if kind is AttachmentType.current_plan_step:
                    self._step += text
                self._show_text(kind, text, extra)

    def output(self, stream: StreamName, text: str, execution_id: ExecutionId) -> None:
        """Show what running code wrote."""
        self.rows += self._output_block(execution_id).feed(stream, text)

    def execution_event(self, event: ExecutionEvent) -> None:
        """Show what else running code does."""
        match event:
            case DisplayProduced():
                if lines := self._lines_of(event):
                    block = self._output_block(event.execution_id)
                    self.rows += block.show(lines, event.display_id)
            case DisplayUpdated():
                block = self._output_block(event.execution_id)
                self.rows += block.update(event.display_id, self._lines_of(event))
            case OutputCleared():
                if isinstance(self._open, OutputBlock):
                    self._open.clear(wait=event.wait)
            case _:
                for stream, text in self._notes.notes_on(event):
                    self.rows += self._output_block(event.execution_id).note(stream, text)

    def _lines_of(self, event: DisplayProduced | DisplayUpdated) -> list[str]:
        return self._displays.lines(event.bundle, event.files, self._width - len(OUTPUT))

    def settle(self) -> None:
        """Let what is complete be final."""
        if isinstance(self._open, OutputBlock):
            self.rows += self._open.settle()

    def code_exec(self, text: str, extra: CodeExecExtra) -> None:
        """Show a piece of the code being written and run."""
        match extra["sub_type"]:
            case "code_exec.program.name":
                self.item("program", text, color=BOLD)
            case "code_exec.objective":
                self.item("objective", text)
            case "code_exec.code":
                self._show_code(text, extra)
            case "code_exec.contract":
                self.item("contract", describe_contract(extra.get("payload") or {}))
            case "code_exec.status":
                self._receive_status(extra.get("payload") or {})

    def show_approval(self, request: ApprovalRequest) -> None:
        """Say why the user has to decide about the code, which is to be seen in full above."""
        self._finish_open()
        is_seen = self._code.strip() == request.code.strip()
        why = " ".join(["This runs only if you allow it.", *request.reasons])
        self.item("approval", why if is_seen else f"{why}\n{request.code}", color=YELLOW)

    def say(self, text: str) -> None:
        """Take the next piece of the message."""
        if not self.message:
            self._end_plan()
            self._finish_open()
            self._begin_answer()
        self.message += text
        if self._answer is not None:
            self.rows += self._answer.feed(text)
        elif not self._is_of_user:
            self._begin_frame()

    def item(self, label: str, text: str, *, color: str = "") -> None:
        """Show a complete labelled text."""
        self._begin_text("", label, color, "")
        self._feed_text(text)
        self._finish_open()

    def fail(self, message: str) -> None:
        """Show why the post came to nothing."""
        self._end_answer()
        self.message = ""
        self.item("error", message, color=RED)

    def end(self) -> str | None:
        """Close the frame; return the answer when the post has one for the user."""
        self._end_plan()
        self._finish_open()
        if self._end_answer():
            return None
        if not self._has_frame and (self._is_of_user or self.send_to == UNKNOWN_ROLE):
            return None
        self._begin_frame()
        if self._is_of_user:
            self._show_end(self._verdict, GREEN if self._verdict in _GOOD_VERDICTS else RED)
            return None
        is_answer = self.send_to == USER
        if self.message and not is_answer and not self._has_output:
            self.rows += self._message_rows(self.message)
        self._close_frame()
        return self.message if is_answer else None

    def cut_off(self) -> None:
        """Close the frame of a post that will not go on."""
        self._finish_open()
        self._end_answer()
        if self._has_frame:
            self._show_end("")

    def live_rows(self, height: int) -> list[str]:
        """What may still change, in at most `height` rows."""
        match self._open:
            case TextBlock():
                return self._open.live_rows()[-height:]
            case OutputBlock():
                return self._open.live_rows(height)
            case None if self._answer is not None:
                return self._answer.live_rows(height)
            case None if self.message and self._has_frame:
                return self._message_rows(self.message[-4000:])[-min(height, _PREVIEW_ROWS) :]
            case _:
                return []

    def _begin_answer(self) -> None:
        """Show an answer to the user below the frame while it is written."""
        if self.send_to != USER or self._is_of_user or self._new_answer is None:
            return
        self._close_frame()
        self._answer = self._new_answer(self._width)

    def _end_answer(self) -> bool:
        """Show what is left of the answer; False when there was none."""
        answer, self._answer = self._answer, None
        if answer is not None:
            self.rows += answer.close()
        return answer is not None

    def _close_frame(self) -> None:
        self._begin_frame()
        if self._timings:
            self.rows.append(self._painter.paint(f"{OUTPUT}({self._timings})", DIM))
        self._show_end("" if self.send_to == UNKNOWN_ROLE else f"sending message to {self.send_to}")
        self._has_frame = False

    def _output_block(self, execution_id: ExecutionId) -> OutputBlock:
        """The block of an execution, which is open from now on."""
        self._begin_frame()
        self._has_output = True
        if not isinstance(self._open, OutputBlock) or self._open_key != execution_id:
            self._finish_open()
            self._open = self._new_output(self._width, self._language())
            self._open_key = execution_id
        return self._open

    def _begin_frame(self) -> None:
        is_new, self._has_frame = not self._has_frame, True
        if is_new and not self._is_of_user:
            role = self._painter.paint(message_text(self.role), BOLD)
            head, tail = (self._painter.paint(part, DIM) for part in (" ╭───< ", " >"))
            self.rows.append(f"{head}{role}{tail}")

    def _look_of(self, kind: AttachmentType) -> tuple[str, str, str]:
        """Label, colour and language of an attachment."""
        if kind is AttachmentType.reply_content and self._language() != "text":
            return "code", "", self._language()
        if kind in (AttachmentType.code_error, AttachmentType.invalid_response):
            return kind.value, YELLOW, ""
        return kind.value, DIM if kind in _DIMMED else "", ""

    def _language(self) -> str:
        return self._reply_type.strip() or "python"

    def _repeats(self, source: str) -> bool:
        self._code_source = self._code_source or source
        return self._code_source != source

    def _begin_text(self, key: AttachmentId | str, label: str, color: str, language: str) -> None:
        self._begin_frame()
        self._finish_open()
        self._open_key = key
        self._open = TextBlock(
            message_text(label), self._width, self._painter, color=color, language=language
        )

    def _feed_text(self, text: str) -> None:
        if isinstance(self._open, TextBlock):
            self.rows += self._open.feed(text)

    def _finish_open(self) -> None:
        if self._open is not None:
            self.rows += self._open.close()
        self._open = None
        self._open_key = ""

    def _attach_code(self, text: str, extra: AttachmentExtra) -> None:
        # Another attachment of code takes the place of the one before it.
        self._code = self._code + text if self._code_id == extra["id"] else text
        self._code_id = extra["id"]
        if not self._is_of_user and not self._repeats("reply"):
            self._show_text(extra["type"], text, extra)

    def _attach_plan(self, text: str, extra: AttachmentExtra) -> None:
        if text:
            self._plan = extra
            text = self._plans.feed(text)
        self._show_text(extra["type"], text, extra)

    def _show_code(self, text: str, extra: CodeExecExtra) -> None:
        if self._repeats("panel"):
            return
        key = f"code {extra['execution_id']}"
        if extra["index"] == 0 and self._open_key == key:
            self._finish_open()
        if text and self._open_key != key:
            label, self._panel_code_label = self._panel_code_label, "new code"
            self._begin_text(key, label, "", extra.get("language") or self._language())
        if self._open_key == key:
            self._feed_text(text)
            if extra["completed"]:
                self._finish_open()

    def _receive_status(self, payload: Mapping[str, Any]) -> None:
        self.status = describe_status(payload)
        self._timings = describe_timings(payload)
        error = payload.get("error")
        if self._status_shown or payload.get("status") != "error":
            return
        if isinstance(error, Mapping):
            self._finish_open()
            if not error.get("managed"):
                self.item("error", str(error.get("message") or error.get("code")), color=RED)

    def _show_verdict(self, kind: AttachmentType, text: str) -> None:
        is_good = text.strip().upper() in _GOOD_VERDICTS
        if kind is AttachmentType.execution_status:
            self._status_shown = True
            if self._is_of_user:
                self._begin_frame()
                self._finish_open()
                self._verdict = text.strip()
                return
        color = YELLOW if text.strip() == REFUSED else GREEN if is_good else RED
        self.item(kind.value, text, color=color)

    def _show_text(self, kind: AttachmentType, text: str, extra: AttachmentExtra) -> None:
        if text and self._open_key != extra["id"]:
            self._begin_text(extra["id"], *self._look_of(kind))
        if self._open_key == extra["id"]:
            self._feed_text(text)
            if extra["is_end"]:
                self._finish_open()

    def _end_plan(self) -> None:
        if self._plan is not None:
            self._show_text(self._plan["type"], self._plans.finish(), self._plan)
            self._plan = None

    def _receive_stop_state(self, text: str, *, is_end: bool) -> None:
        self._stop_state += text
        if is_end and self._stop_state != _GOES_ON:
            self.item(AttachmentType.stop.value, self._stop_state)

    def _show_result(self, text: str) -> None:
        """Say what came of it, unless that has been seen live."""
        if self._has_output or self._is_of_user:
            return
        lines = text.rstrip().split("\n")
        if len(lines) > _ERROR_LINES:
            lines = [f"⋯ {len(lines) - _ERROR_LINES:,} more lines", *lines[-_ERROR_LINES:]]
        self.item(AttachmentType.execution_result.value, "\n".join(lines))

    def _show_end(self, text: str, color: str = DIM) -> None:
        row = self._painter.paint(END, DIM) + self._painter.paint(message_text(text), color)
        self.rows.append(row if text else self._painter.paint(END.rstrip(), DIM))

    def _message_rows(self, message: str) -> list[str]:
        first, *others = message_text(message).strip().split("\n")
        rows = framed(
            first, self._width, self._painter, first=MESSAGE, first_color=CYAN, is_prose=True
        )
        for line in others:
            rows += framed(line, self._width, self._painter, first=OUTPUT, is_prose=True)
        return rows
