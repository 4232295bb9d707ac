"""One post on the screen: what is attached to it, the code it writes and runs, what it says.

Pure: pieces of the post come in, rows come out. It decides what is shown and under which name;
`console/frame.py` draws it. A brief view shows code, its output, and what needs attention; the
rest (thoughts, plans of one step, words between roles) is a row or none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from taskweaver_ext.approval import ApprovalRequest
from taskweaver_ext.ces.execution.events import (
    DisplayProduced,
    DisplayUpdated,
    ExecutionEvent,
    ExecutionFinished,
    OutputCleared,
)
from taskweaver_ext.ces.execution.results import ExecutionId, StreamName
from taskweaver_ext.console.answer_view import AnswerView
from taskweaver_ext.console.block_status import (
    block_label,
    status_from_attachment,
    status_text,
)
from taskweaver_ext.console.execution_notes import ExecutionNotes
from taskweaver_ext.console.frame import Frame
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
    GREEN,
    MESSAGE,
    OUTPUT,
    RED,
    YELLOW,
    clip,
    framed,
)
from taskweaver_ext.conversation import UNKNOWN_ROLE, AttachmentId, AttachmentType, RoleName
from taskweaver_ext.events.extras import AttachmentExtra, CodeBlockExtra, CodeExecExtra
from taskweaver_ext.roles.base.role import USER
from taskweaver_ext.session.blocks import CellStatus
from taskweaver_ext.text.terminal import message_text

_GOES_ON = "InProcess"
"""The stop state that goes without saying."""
_DIMMED = {AttachmentType.thought, AttachmentType.plan_reasoning}
_WARNINGS = {AttachmentType.code_error, AttachmentType.invalid_response}
_ASIDES = {
    *(AttachmentType.thought, AttachmentType.plan_reasoning, AttachmentType.init_plan),
    *(AttachmentType.current_plan_step, AttachmentType.stop, AttachmentType.revise_message),
}
"""What a brief view does without."""
_GOOD_VERDICTS = ("CORRECT", "NONE")
_PREVIEW_ROWS = 8
"""How much of a message that is still being written is shown."""
_PREVIEW_CHARS = 4000
_ERROR_LINES = 20
_TITLE_CHARS = 200


class PostView:
    """What is to be seen of one post."""

    def __init__(
        self,
        role: RoleName,
        frame: Frame,
        new_output: Callable[[PostView], OutputBlock],
        plans: PlanFilter,
        displays: DisplayView,
        new_answer: Callable[[int], AnswerView] | None = None,
        *,
        is_verbose: bool = False,
    ) -> None:
        """Begin a post of a role.

        Args:
            new_output: Makes a block for the output of the post's code.
            plans: Knows the plans of the round so far.
            displays: Draws what code displays.
            new_answer: Makes a view of an answer while it is written, for a width; without it
                the answer is returned at the end.
            is_verbose: Whether all that is attached is shown.
        """
        self.role = role
        self.frame = frame
        self.status = ""
        """What the role is doing, in its own words."""
        self.send_to: RoleName = UNKNOWN_ROLE
        self.message = ""
        self.number = 0
        """Of its block of code; 0 where there is none, or it has no number."""
        self.is_known = False
        """Whether the agent hears of code that is the user's."""
        self.is_of_user = role == USER  # what the user has just typed need not be shown
        self._repeats: int | None = None
        self._is_verbose = is_verbose
        self._new_output = new_output
        self._new_answer = new_answer
        self._displays = displays
        self._answer: AnswerView | None = None
        self._reply_type = ""
        self._code_source = ""
        """Code comes twice, as an attachment and to the panel; what begins is what is shown."""
        self._code = ""
        self._code_id = ""
        self._shown_code = ""
        """The code that is on the screen; empty before there is any."""
        self._step = ""
        self._stop_state = ""
        self._plans = plans
        self._plan: AttachmentExtra | None = None
        """The plan that is being written."""
        self._plan_text = ""
        self._has_output = False
        self._notes = ExecutionNotes()
        self._outcome: CellStatus | None = None
        self._seconds: float | None = None
        self._timings = ""

    @property
    def language(self) -> str:
        """What its code is written in."""
        return self._reply_type.strip() or "python"

    @property
    def step(self) -> str:
        """Where in its plan the role is."""
        return message_text(self._step).strip().partition("\n")[0]

    @property
    def title(self) -> str:
        """What the post is known by once it has ended: the first line of its code."""
        title = message_text(self._code[:_TITLE_CHARS]).strip().partition("\n")[0] or self.role
        return f"[{self.number}] {title}" if self.number else title

    def resize(self, width: int) -> None:
        """Take another width from now on."""
        self.frame.resize(width)
        if self._answer is not None:
            self._answer.resize(width)

    def receive_number(self, extra: CodeBlockExtra) -> None:
        """Take note of the number of the post's code."""
        self.number = extra["number"]
        self._repeats = extra.get("repeats")

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
            case AttachmentType.plan:
                self._attach_plan(text, extra)
            case AttachmentType.init_plan if self._is_verbose:
                self._attach_plan(text, extra)
            case AttachmentType.artifact_paths:
                paths = [path for path in text.split("\n") if not self._notes.has_named(path)]
                self._show_text(kind, "\n".join(paths), extra)
            case AttachmentType.stop if self._is_verbose:
                self._receive_stop_state(text, is_end=extra["is_end"])
            case AttachmentType.execution_result:
                self._show_result(text)
            case AttachmentType.verification:
                self._show_verification(text)
            case AttachmentType.execution_status:
                self._receive_outcome(text)
            case _:
                if kind is AttachmentType.current_plan_step:
                    self._step += text
                if self._is_verbose or kind not in _ASIDES:
                    self._show_text(kind, text, extra)

    def output(self, stream: StreamName, text: str, execution_id: ExecutionId) -> None:
        """Show what running code wrote."""
        self.frame.rows += self._output_block(execution_id).feed(stream, text)

    def execution_event(self, event: ExecutionEvent) -> None:
        """Show what else running code does."""
        rows = self.frame.rows
        match event:
            case DisplayProduced():
                if lines := self._lines_of(event):
                    block = self._output_block(event.execution_id)
                    rows += block.show(lines, event.display_id)
            case DisplayUpdated():
                block = self._output_block(event.execution_id)
                rows += block.update(event.display_id, self._lines_of(event))
            case OutputCleared():
                self.frame.clear_output(wait=event.wait)
            case _:
                if isinstance(event, ExecutionFinished):
                    self._seconds = event.duration_seconds
                for stream, text in self._notes.notes_on(event):
                    rows += self._output_block(event.execution_id).note(stream, text)

    def _lines_of(self, event: DisplayProduced | DisplayUpdated) -> list[str]:
        return self._displays.lines(event.bundle, event.files, self.frame.width - len(OUTPUT))

    def code_exec(self, text: str, extra: CodeExecExtra) -> None:
        """Show a piece of the code being written and run."""
        match extra["sub_type"]:
            case "code_exec.program.name" if self._is_verbose:
                self.frame.item("program", text, color=BOLD)
            case "code_exec.objective" if self._is_verbose:
                self.frame.item("objective", text)
            case "code_exec.code":
                self._show_code(text, extra)
            case "code_exec.contract":
                self.frame.item("contract", describe_contract(extra.get("payload") or {}))
            case "code_exec.status":
                self._receive_status(extra.get("payload") or {})

    def show_approval(self, request: ApprovalRequest) -> None:
        """Say why the user has to decide about the code, which is to be seen in full above."""
        is_seen = self._code.strip() == request.code.strip()
        why = " ".join(["This runs only if you allow it.", *request.reasons])
        self.frame.item("approval", why if is_seen else f"{why}\n{request.code}", color=YELLOW)

    def say(self, text: str) -> None:
        """Take the next piece of the message."""
        if not self.message:
            self._end_plan()
            self.frame.finish_open()
            self._begin_answer()
        self.message += text
        if self._answer is not None:
            self.frame.rows += self._answer.feed(text)
        elif self._is_verbose and not self.is_of_user:
            self.frame.begin()

    def fail(self, message: str) -> None:
        """Show why the post came to nothing."""
        self._end_answer()
        self.message = ""
        self.frame.item("error", message, color=RED)

    def end(self) -> str | None:
        """Close the frame; return the answer when the post has one for the user."""
        self._end_plan()
        self.frame.finish_open()
        if self._end_answer():
            return None
        is_answer = self.send_to == USER
        if self.is_of_user or self.send_to == UNKNOWN_ROLE:
            if self.frame.is_begun:
                self._close_frame()
            return None
        if self.message and not is_answer and not self._has_output:
            self._show_message()
        if self._is_verbose or self.frame.is_begun:
            self._close_frame()
        return self.message if is_answer else None

    def cut_off(self) -> None:
        """Close the frame of a post that will not go on."""
        self.frame.finish_open()
        self._end_answer()
        if self.frame.is_begun:
            self._close_frame(is_cut_off=True)

    def live_rows(self, height: int) -> list[str]:
        """What may still change, in at most `height` rows."""
        if self.frame.has_open:
            return self.frame.live_rows(height)
        if self._answer is not None:
            return self._answer.live_rows(height)
        if self.message and self.frame.is_begun:
            rows = self._message_rows(self.message[-_PREVIEW_CHARS:])
            return rows[-min(height, _PREVIEW_ROWS) :]
        return []

    def _begin_answer(self) -> None:
        """Show an answer to the user below the frame while it is written."""
        if self.send_to != USER or self.is_of_user or self._new_answer is None:
            return
        if self._is_verbose or self.frame.is_begun:
            self._close_frame()
        self._answer = self._new_answer(self.frame.width)

    def _end_answer(self) -> bool:
        """Show what is left of the answer; False when there was none."""
        answer, self._answer = self._answer, None
        if answer is not None:
            self.frame.rows += answer.close()
        return answer is not None

    def _close_frame(self, *, is_cut_off: bool = False) -> None:
        outcome = self._outcome_text()
        if outcome is not None and (self.is_of_user or not self._is_verbose):
            self.frame.end(*outcome)
        elif self._is_verbose and not is_cut_off:
            self.frame.begin()
            if self._timings:
                timings = self.frame.painter.paint(f"{OUTPUT}({self._timings})", DIM)
                self.frame.rows.append(timings)
            to = self.send_to
            self.frame.end("" if to == UNKNOWN_ROLE else f"sending message to {to}")
        else:
            self.frame.end()

    def _outcome_text(self) -> tuple[str, str] | None:
        """How the code of the post ended, and the colour of that; None where it has not."""
        if self._outcome is None:
            return None
        seconds, repeats = self._seconds, self._repeats
        return status_text(
            self.number, self._outcome, seconds=seconds, repeats=repeats, is_known=self.is_known
        )

    def _output_block(self, execution_id: ExecutionId) -> OutputBlock:
        """The block of an execution, which is open from now on."""
        self._has_output = True
        block = self.frame.output_of(execution_id)
        if block is None:
            if "\n" in self._shown_code.strip():
                self.frame.note("[output]")  # else it would read as more code
            block = self._new_output(self)
            self.frame.begin_output(execution_id, block)
        return block

    def _attach_code(self, text: str, extra: AttachmentExtra) -> None:
        # Another attachment of code takes the place of the one before it.
        self._code = self._code + text if self._code_id == extra["id"] else text
        self._code_id = extra["id"]
        if not self.is_of_user and not self._is_shown_elsewhere("reply"):
            self._show_text(extra["type"], text, extra)

    def _is_shown_elsewhere(self, source: str) -> bool:
        self._code_source = self._code_source or source
        return self._code_source != source

    def _begin_code(self, key: AttachmentId | str) -> None:
        label = block_label(self.number, self.language)
        is_other = bool(self._shown_code)
        self._shown_code = ""
        self.frame.begin_text(
            key, f"{label}, changed" if is_other else label, language=self.language
        )

    def _show_code(self, text: str, extra: CodeExecExtra) -> None:
        if self._is_shown_elsewhere("panel"):
            return
        key = f"code {extra['execution_id']}"
        if extra["index"] == 0 and self.frame.is_growing(key):
            self.frame.finish_open()
        if text and not self.frame.is_growing(key):
            self._reply_type = self._reply_type or extra.get("language", "")
            self._begin_code(key)
        if self.frame.is_growing(key):
            self._shown_code += text
            self.frame.feed(text)
            if extra["completed"]:
                self.frame.finish_open()

    def _receive_status(self, payload: Mapping[str, Any]) -> None:
        self.status = describe_status(payload)
        self._timings = describe_timings(payload)
        error = payload.get("error")
        if self._outcome is not None or payload.get("status") != "error":
            return
        if isinstance(error, Mapping):
            self.frame.finish_open()
            if not error.get("managed"):
                message = str(error.get("message") or error.get("code"))
                self.frame.item("error", message, color=RED)

    def _show_verification(self, text: str) -> None:
        is_good = text.strip().upper() in _GOOD_VERDICTS
        if self._is_verbose or not is_good:
            color = GREEN if is_good else RED
            self.frame.item(AttachmentType.verification.value, text, color=color)

    def _receive_outcome(self, text: str) -> None:
        self._outcome = status_from_attachment(text)
        self.frame.finish_open()
        if self.is_of_user:
            self.frame.begin()
        elif self._is_verbose and (outcome := self._outcome_text()):
            self.frame.note(*outcome)

    def _show_text(self, kind: AttachmentType, text: str, extra: AttachmentExtra) -> None:
        is_code = kind is AttachmentType.reply_content and self.language != "text"
        if text and not self.frame.is_growing(extra["id"]):
            if is_code:
                self._begin_code(extra["id"])
            else:
                color = YELLOW if kind in _WARNINGS else DIM if kind in _DIMMED else ""
                self.frame.begin_text(extra["id"], kind.value, color=color)
        if self.frame.is_growing(extra["id"]):
            self._shown_code += text if is_code else ""
            self.frame.feed(text)
            if extra["is_end"]:
                self.frame.finish_open()

    def _attach_plan(self, text: str, extra: AttachmentExtra) -> None:
        if text:
            self._plan = extra
            self._plan_text += text
        if self._is_verbose:
            self._show_text(extra["type"], self._plans.feed(text) if text else "", extra)

    def _end_plan(self) -> None:
        plan, self._plan = self._plan, None
        text, self._plan_text = self._plan_text, ""
        if plan is None:
            return
        if self._is_verbose:
            self._show_text(plan["type"], self._plans.finish(), plan)
        elif self._plans.is_worth_showing(text):
            self.frame.item(plan["type"].value, text)

    def _receive_stop_state(self, text: str, *, is_end: bool) -> None:
        self._stop_state += text
        if is_end and self._stop_state != _GOES_ON:
            self.frame.item(AttachmentType.stop.value, self._stop_state)

    def _show_result(self, text: str) -> None:
        """Say what came of it, unless that has been seen live."""
        if self._has_output or self.is_of_user:
            return
        if self._outcome == "success" and not self._is_verbose:
            return
        lines = text.rstrip().split("\n")
        if len(lines) > _ERROR_LINES:
            lines = [f"⋯ {len(lines) - _ERROR_LINES:,} more lines", *lines[-_ERROR_LINES:]]
        self.frame.item(AttachmentType.execution_result.value, "\n".join(lines))

    def _show_message(self) -> None:
        """Show what a role tells another one: all of it, or the beginning in one row."""
        if self._is_verbose:
            self.frame.rows += self._message_rows(self.message)
        elif self._outcome is None:
            first = message_text(self.message).strip().partition("\n")[0]
            row = clip(f" ╶─ {self.role} → {self.send_to}: {first}", self.frame.width)
            if self.frame.is_begun:
                self.frame.end()
            self.frame.rows.append(self.frame.painter.paint(row, DIM))

    def _message_rows(self, message: str) -> list[str]:
        width, painter = self.frame.width, self.frame.painter
        first, *others = message_text(message).strip().split("\n")
        rows = framed(first, width, painter, first=MESSAGE, first_color=CYAN, is_prose=True)
        for line in others:
            rows += framed(line, width, painter, first=OUTPUT, is_prose=True)
        return rows
