"""Sessions for tests of exports: a real one, and one that says the same thing everywhere."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.approval import ApprovalAnswer
from taskweaver_ext.ces.execution.events import (
    ArtifactProduced,
    DisplayProduced,
    ExecutionEvent,
    ExecutionFinished,
    LogRecorded,
)
from taskweaver_ext.ces.execution.results import (
    ExecutionArtifact,
    ExecutionId,
    ExecutionStatus,
    Notice,
)
from taskweaver_ext.conversation import AttachmentType, RoundId
from taskweaver_ext.events.emitter import SessionEventEmitter
from taskweaver_ext.events.types import SessionEventType
from taskweaver_ext.llm.scripted import ScriptedModel
from taskweaver_ext.session.export.export import ExportFormat, text_pieces
from taskweaver_ext.session.export.source import ExportSource
from taskweaver_ext.session.session import Session
from tests.support.conversations import answer, code, plan

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJg"
    "gg=="
)
SHOWS_EVERYTHING = """\
import base64, sys
from IPython.display import HTML, Image, Markdown, display
print("to stdout")
print("to stderr", file=sys.stderr)
display(HTML("<table><tr><th>name</th></tr><tr><td>Ada</td></tr></table>"))
display(Markdown("some *words*"))
display(Image(data=base64.b64decode("%s"), format="png"))
6 * 7""" % base64.b64encode(PICTURE).decode()  # noqa: UP031 - it is code with braces


@contextmanager
def real_session(project: Path) -> Iterator[Session]:
    """A session in which a model and a person have run Python and shell, well and badly."""
    script = [
        plan("Show it."),
        code("1 / 0", thought="First I divide."),
        code(SHOWS_EVERYTHING, thought="Then I show."),
        answer("It is **42**."),
        plan("List."),
        code("echo from bash", "bash"),
        answer("Listed."),
    ]
    with TaskWeaverApp(project, model=ScriptedModel(script)) as app:
        session = app.get_session()
        session.approval.ask = lambda request: ApprovalAnswer(True)
        session.send_message("Show me everything.")
        session.send_message("And the shell?")
        session.run_code("python", "name = input('who? ')\nprint(name)", on_input=_answer)
        yield session


def _answer(prompt: str, password: bool) -> str:
    return "Ada"


def source_of(session: Session) -> ExportSource:
    """A session that is at work, to be exported."""
    return ExportSource(
        session_id=session.session_id, folder=session.session_dir, read=session.emitter.events
    )


def exported(source: ExportSource, to: ExportFormat) -> str:
    return "".join(text_pieces(source, to))


def session_saying(payload: str, folder: Path) -> ExportSource:
    """A session in which everything that can be said, shown or named is one text."""
    emitter = SessionEventEmitter()
    emitter.start_round(RoundId("round-1"), {"kind": "message", "user_query": payload})
    post = emitter.create_post_proxy(payload)
    for kind in (AttachmentType.thought, AttachmentType.plan, AttachmentType.text):
        post.update_attachment(payload, kind)
    post.update_send_to("User")
    post.update_message(payload)
    post.end()
    post = emitter.create_post_proxy("CodeInterpreter")
    execution_id = ExecutionId(post.post.id)
    post.update_send_to(payload)
    post.update_attachment(payload, AttachmentType.reply_type)
    post.update_attachment(payload, AttachmentType.reply_content)
    emitter.emit_session_event(
        SessionEventType.session_question,
        payload,
        {
            "question_id": "question-1",
            "kind": "approval",
            "prompt": payload,
            "execution_id": execution_id,
            "reasons": [payload],
        },
    )
    post.emit_execution_output("stdout", payload + "\n")
    post.emit_execution_output("stderr", payload + "\n")
    for event in _execution_events(execution_id, payload):
        post.emit_execution_event(event)
    post.update_attachment(payload, AttachmentType.execution_result)
    post.end()
    failed = emitter.create_post_proxy("Planner")
    failed.error(payload)
    failed.end()
    emitter.emit_session_event(SessionEventType.session_notice, payload)
    emitter.emit_session_event(
        SessionEventType.session_late_output,
        payload,
        {"stream": "stdout", "text": payload, "execution_id": execution_id},
    )
    emitter.emit_error(payload)
    emitter.end_round(RoundId("round-1"), "failed")
    return ExportSource(session_id=payload, folder=folder, read=emitter.events)


def _execution_events(execution_id: ExecutionId, payload: str) -> Iterator[ExecutionEvent]:
    data = base64.b64encode(payload.encode("utf-8", "replace")).decode()
    for kind, value in (
        ("text/html", payload),
        ("text/markdown", payload),
        ("text/latex", payload),
        ("text/plain", payload),
        ("image/svg+xml", f'<svg xmlns="http://www.w3.org/2000/svg">{payload}</svg>'),
        ("image/png", data),
        ("image/jpeg", payload),
        ("application/json", {payload: payload}),
        (payload, payload),
    ):
        yield DisplayProduced(
            execution_id=execution_id,
            bundle={kind: value},
            metadata={payload: payload},
            display_id=payload,
        )
    for kind in ("image/png", "image/svg+xml", payload):
        artifact = ExecutionArtifact(
            name=payload,
            type=payload,
            mime_type=kind,
            file_name=payload,
            original_name=payload,
            file_content=payload,
        )
        yield ArtifactProduced(execution_id=execution_id, artifact=artifact)
    yield LogRecorded(execution_id=execution_id, level=payload, tag=payload, message=payload)
    yield ExecutionFinished(
        execution_id=execution_id,
        status=ExecutionStatus.ERROR,
        error=payload,
        notices=(Notice(kind="restarted", message=payload),),
    )
