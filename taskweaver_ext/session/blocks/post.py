"""Fold the events of one post into what the role said and the cell it ran."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from taskweaver_ext.ces.execution.events import (
    ArtifactProduced,
    DisplayProduced,
    DisplayUpdated,
    ExecutionEvent,
    ExecutionFinished,
    LogRecorded,
    OutputCleared,
    OutputProduced,
    StatusChanged,
)
from taskweaver_ext.ces.execution.results import ExecutionId
from taskweaver_ext.conversation import (
    UNKNOWN_ROLE,
    AttachmentId,
    AttachmentType,
    PostId,
    RoleName,
    RoundId,
)
from taskweaver_ext.events.extras import (
    AnsweredExtra,
    AttachmentExtra,
    CodeBlockExtra,
    CodeExecExtra,
    ExecutionEventExtra,
    ExecutionOutputExtra,
    NewPostExtra,
    QuestionExtra,
    RoleExtra,
)
from taskweaver_ext.events.types import PostEventType, TaskWeaverEvent
from taskweaver_ext.roles.code_interpreter.result_text import NEVER_RUN, REFUSED
from taskweaver_ext.roles.code_interpreter.shown_reply import EDITED, TEXT
from taskweaver_ext.session.blocks.outputs import OutputCollector
from taskweaver_ext.session.blocks.types import (
    ArtifactOutput,
    Attached,
    Cell,
    CellStatus,
    DisplayOutput,
    LogOutput,
    Message,
    ProposedCode,
    QuestionOutput,
    TextOutput,
)

_OF_CODE = {
    AttachmentType.reply_type,
    AttachmentType.reply_content,
    AttachmentType.verification,
    AttachmentType.code_error,
    AttachmentType.execution_status,
    AttachmentType.execution_result,
    AttachmentType.artifact_paths,
}
"""What a cell says in its own fields."""
_AFTER_CODE = {AttachmentType.revise_message, AttachmentType.text}
"""What a role says of code that has run, or could not."""
_STATUS_NAMES: dict[str, CellStatus] = {"SUCCESS": "success", "FAILURE": "error"}
_TOLD_STATES = ("restarted", "limit", "paused")
"""The states of an execution that a person should know of afterwards."""


@dataclass(slots=True)
class _Attachment:
    type: AttachmentType
    pieces: list[str] = field(default_factory=list)
    extra: Any = None
    is_complete: bool = False

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class PostFold:
    """One post while it grows, and the blocks it comes to."""

    def __init__(
        self, post_id: PostId, round_id: RoundId, role: RoleName, at: float, max_chars: int
    ) -> None:
        self.round_id = round_id
        self.post_id = post_id
        self.execution_id = ExecutionId(post_id)
        self.outputs = OutputCollector(self.execution_id, max_chars)
        self._role = role
        self._at = at
        self._send_to = UNKNOWN_ROLE
        self._message: list[str] = []
        self._error = ""
        self._attachments: dict[AttachmentId, _Attachment] = {}
        self._panel: dict[str, list[str]] = {}
        self._panel_language = ""
        self._began_at: float | None = None
        self._finished: ExecutionFinished | None = None
        self._notices: list[str] = []
        self._questions: dict[str, QuestionOutput] = {}
        self._block: CodeBlockExtra | None = None
        """What is known of its code; None: there is none."""
        self._proposed: list[ProposedCode] = []

    def receive(self, event: TaskWeaverEvent) -> None:
        """Take an event of the post."""
        match event.t:
            case PostEventType.post_send_to_update:
                self._send_to = cast(RoleExtra, event.extra)["role"]
            case PostEventType.post_message_update:
                self._message.append(event.msg)
            case PostEventType.post_attachment_update:
                self._attach(event.msg, cast(AttachmentExtra, event.extra))
            case PostEventType.post_code_block:
                self._receive_number(event.msg, cast(CodeBlockExtra, event.extra))
            case PostEventType.post_code_exec:
                self._show_in_panel(event.msg, cast(CodeExecExtra, event.extra))
            case PostEventType.post_execution_output:
                self._begin(event.at)
                output = cast(ExecutionOutputExtra, event.extra)
                self.outputs.write(output["stream"], event.msg)
            case PostEventType.post_execution_event:
                self._begin(event.at)
                self._receive_execution(cast(ExecutionEventExtra, event.extra)["event"], event.seq)
            case PostEventType.post_error:
                self._error = event.msg
                self._message.clear()
            case _:
                pass

    def settle(self, details: NewPostExtra) -> None:
        """Let what the roles know of the post be its message: some may have been taken back."""
        post = details.get("post")
        if post is not None and post["id"] == self.post_id and not self._error:
            self._message = [post["message"]]

    def ask(self, details: QuestionExtra) -> None:
        """Take note that a person is asked."""
        question = QuestionOutput(
            question_id=details["question_id"],
            kind=details["kind"],
            prompt=details["prompt"],
            reasons=tuple(details.get("reasons", ())),
        )
        self._questions[question.question_id] = question
        self.outputs.add(question)

    def answer(self, details: AnsweredExtra) -> None:
        """Take note of what became of a question, if it was asked here."""
        if question := self._questions.get(details["question_id"]):
            question.outcome = details["outcome"]
            if question.kind != "password":
                question.answer = details.get("answer", "")

    def blocks(self, ended: Literal["ended", "lost", "still open"]) -> list[Message | Cell]:
        """Return what the post comes to, in the order in which it is read.

        Args:
            ended: Whether the post has ended, will never end, or may go on.
        """
        cell = self._cell(ended)
        text = "".join(self._message)
        attached = self._attached(cell)
        if cell is None:
            if not (text or attached or self._error):
                return []
            return [self._said(self._error or text, attached)]
        before = [one for one in attached if one.type not in _AFTER_CODE]
        after = [one for one in attached if one.type in _AFTER_CODE]
        found: list[Message | Cell] = [self._said("", before)] if before else []
        found.append(cell)
        if any(part and part in text for part in (cell.report, cell.error)):
            text = ""  # the cell says it
        if self._error or text or after:
            found.append(self._said(self._error or text, after))
        return found

    def _attach(self, text: str, details: AttachmentExtra) -> None:
        attachment = self._attachments.setdefault(details["id"], _Attachment(details["type"]))
        attachment.pieces.append(text)
        attachment.extra = details["extra"]
        attachment.is_complete = details["is_end"]

    def _receive_number(self, code: str, details: CodeBlockExtra) -> None:
        if details["part"] == 0:
            self._block = details
            return
        number, language = details["number"], details["language"]
        self._proposed.append(ProposedCode(number=number, language=language, code=code))

    def _show_in_panel(self, text: str, details: CodeExecExtra) -> None:
        part = details["sub_type"]
        if part == "code_exec.code":
            self._panel_language = details.get("language", "")
        if details["index"] == 0:
            self._panel[part] = []
        self._panel.setdefault(part, []).append(text)

    def _begin(self, at: float) -> None:
        if self._began_at is None:
            self._began_at = at

    def _receive_execution(self, event: ExecutionEvent, seq: int) -> None:
        match event:
            case OutputProduced():
                self.outputs.write(event.stream, event.text)
            case DisplayProduced():
                self.outputs.add(
                    DisplayOutput(
                        bundle=event.bundle,
                        metadata=event.metadata,
                        files=event.files,
                        display_id=event.display_id,
                        is_result=event.is_result,
                        seq=seq,
                    )
                )
            case DisplayUpdated():
                self.outputs.update(event, seq)
            case OutputCleared():
                self.outputs.clear(wait=event.wait)
            case LogRecorded(level=level, tag=tag, message=message):
                self.outputs.add(LogOutput(level=level, tag=tag, message=message))
            case ArtifactProduced():
                self.outputs.add(ArtifactOutput(artifact=event.artifact))
            case StatusChanged() if event.status in _TOLD_STATES and event.detail:
                self._notices.append(event.detail)
            case ExecutionFinished():
                self._finished = event
            case _:
                pass  # questions have events of their own, and passing states are past

    def _last(self, kind: AttachmentType) -> _Attachment | None:
        """The attachment of a type that counts: the last, be it complete or all there is."""
        of_kind = [one for one in self._attachments.values() if one.type is kind]
        complete = [one for one in of_kind if one.is_complete]
        candidates = complete or of_kind
        return candidates[-1] if candidates else None

    def _text(self, kind: AttachmentType) -> str:
        attachment = self._last(kind)
        return attachment.text if attachment else ""

    def _attached(self, cell: Cell | None) -> list[Attached]:
        """The attachments that are not the cell's; those that were taken back are left out."""
        found = []
        for one in self._attachments.values():
            is_last = one is self._last(one.type)
            if not one.text or not (one.is_complete or is_last):
                continue
            if one.type in _OF_CODE and cell is not None:
                continue
            found.append(Attached(type=one.type, text=one.text, extra=one.extra))
        return found

    def _said(self, text: str, attached: Iterable[Attached] = ()) -> Message:
        return Message(
            role=self._role,
            send_to=self._send_to,
            text=text,
            round_id=self.round_id,
            post_id=self.post_id,
            at=self._at,
            attachments=tuple(attached),
            is_error=bool(self._error) and text == self._error,
            proposed=tuple(self._proposed) if text else (),
        )

    def _cell(self, ended: Literal["ended", "lost", "still open"]) -> Cell | None:
        block = self._block
        written = self._last(AttachmentType.reply_content)
        panel_code = "".join(self._panel.get("code_exec.code", ()))
        code = written.text if written else panel_code
        language = self._text(AttachmentType.reply_type).strip() or self._panel_language
        outputs = self.outputs.outputs()
        if block is None or language == TEXT or not (code or outputs or self._began_at is not None):
            return None
        finished = self._finished
        report = self._text(AttachmentType.execution_result)
        if report and finished is None and not outputs:  # all that folders of TaskWeaver's have
            outputs = [TextOutput(stream="stdout", text=report)]
        status = self._status(ended)
        return Cell(
            number=block["number"],
            language=language or block["language"],
            code=code,
            by=block["by"],
            role=self._role,
            round_id=self.round_id,
            post_id=self.post_id,
            execution_id=self.execution_id,
            at=self._began_at or self._at,
            outputs=outputs,
            status=status,
            error=finished.error if finished else self._why_not(),
            exit_code=finished.exit_code if finished else None,
            duration_seconds=finished.duration_seconds if finished else None,
            variables_survived=finished.variables_survived if finished else status != "lost",
            notices=self._all_notices(),
            is_edited=written is not None and written.extra == EDITED,
            verification=self._text(AttachmentType.verification),
            report=report,
            objective="".join(self._panel.get("code_exec.objective", ())),
            program="".join(self._panel.get("code_exec.program.name", ())),
            repeats=block.get("repeats"),
        )

    def _status(self, ended: Literal["ended", "lost", "still open"]) -> CellStatus:
        if self._finished is not None:
            return cast(CellStatus, self._finished.status.value)
        told = self._text(AttachmentType.execution_status)
        if told in NEVER_RUN or self._text(AttachmentType.verification) == "INCORRECT":
            return "refused"
        if told:  # all that folders of TaskWeaver's know
            return _STATUS_NAMES.get(told, "error")
        if ended == "still open" and self._began_at is not None:
            return "running"
        if self._began_at is None:
            return "not_run"
        return "lost" if ended == "lost" else "cancelled"

    def _why_not(self) -> str:
        """Why code did not run: what verification found, or what was decided about it."""
        is_refused = self._text(AttachmentType.execution_status) == REFUSED
        return "".join(self._message) if is_refused else self._text(AttachmentType.code_error)

    def _all_notices(self) -> tuple[str, ...]:
        """All that a person should know, once each."""
        finished = self._finished
        told = [
            notice.message
            for notice in (finished.notices if finished else ())
            if notice.kind != "truncated"  # that is about a result in memory
        ]
        return tuple(dict.fromkeys([*self._notices, *told]))
