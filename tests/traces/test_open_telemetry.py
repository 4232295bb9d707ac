"""Spans of rounds, model calls and executions, as the real SDK exports them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.events.types import PostEventType, TaskWeaverEvent
from taskweaver_ext.llm.scripted import ScriptedModel
from tests.support.conversations import Listener, answer, code, make_app, plan
from tests.support.executions import LIMIT_SECONDS
from tests.support.model_server import HttpFailure, ModelServer, ScriptedAnswer

TRACED = {"tracing.enabled": True}
SECRET = "a-sentence-that-nobody-else-should-read"


class Spans:
    """What was exported since the test began; a span is exported when it ends."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def named(self, start: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name.startswith(start)]

    def one(self, start: str) -> ReadableSpan:
        [span] = self.named(start)
        return span

    def all(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def text(self) -> str:
        return "\n".join(span.to_json() for span in self.all())


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    """The SDK can be set up once in a process."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Spans:
    exporter.clear()
    return Spans(exporter)


def attributes_of(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def test_a_round_its_model_calls_and_its_code_are_one_tree(tmp_path: Path, spans: Spans) -> None:
    script = [
        ScriptedAnswer(plan("print")),
        ScriptedAnswer(code(f"print('{SECRET}')")),
        ScriptedAnswer(answer(f"done {SECRET}")),
    ]
    listener = Listener()
    with (
        ModelServer(script) as server,
        make_app(tmp_path / "p", server.openai_url, tracing__enabled=True) as app,
    ):
        session = app.get_session()
        chat_round = session.send_message(f"print {SECRET}", listener)

    top = spans.one("invoke_agent")
    calls = spans.named("chat ")
    run = spans.one("execute_tool")
    assert {parent_of(span) for span in (*calls, run)} == {id_of(top)}
    ids = {"gen_ai.conversation.id": session.session_id, "taskweaver.round.id": chat_round.id}
    for span in spans.all():
        assert ids.items() <= attributes_of(span).items()
    assert attributes_of(top)["taskweaver.round.state"] == "finished"
    assert [call.name for call in calls] == ["chat scripted"] * 3
    assert all(call.kind is SpanKind.CLIENT for call in calls)
    first = attributes_of(calls[0])
    assert first["gen_ai.operation.name"] == "chat"
    assert first["gen_ai.provider.name"] == "openai"
    assert first["gen_ai.request.model"] == "scripted"
    assert first["gen_ai.response.finish_reasons"] == ("stop",)
    assert (first["gen_ai.usage.input_tokens"], first["gen_ai.usage.output_tokens"]) == (11, 7)
    agents = [attributes_of(call)["gen_ai.agent.name"] for call in calls]
    assert agents == ["Planner", "CodeInterpreter", "Planner"]
    of_run = attributes_of(run)
    assert (run.name, of_run["gen_ai.tool.name"]) == ("execute_tool python", "python")
    assert of_run["taskweaver.execution.status"] == "success"
    [output] = [e for e in listener.events if e.t is PostEventType.post_execution_output]
    assert of_run["gen_ai.tool.call.id"] == output.extra.get("execution_id")
    assert of_run["taskweaver.post.id"] == output.post_id
    assert SECRET not in spans.text()


def test_contents_are_there_only_when_a_setting_allows_it(tmp_path: Path, spans: Spans) -> None:
    model = ScriptedModel([plan("go"), code("print('wrote this')"), answer("the answer")])
    settings = {**TRACED, "tracing.contents": True}
    with TaskWeaverApp(tmp_path, settings, model=model) as app:
        app.get_session().send_message("a question")

    asked = json.loads(str(attributes_of(spans.named("chat ")[0])["gen_ai.input.messages"]))
    assert [message["role"] for message in asked][0] == "system"
    assert "a question" in asked[-1]["parts"][0]["content"]
    of_run = attributes_of(spans.one("execute_tool"))
    assert json.loads(str(of_run["gen_ai.tool.call.arguments"])) == {"code": "print('wrote this')"}
    assert "wrote this" in str(of_run["gen_ai.tool.call.result"])
    assert "the answer" in str(attributes_of(spans.one("invoke"))["gen_ai.output.messages"])


def test_code_that_fails_and_what_a_person_runs(tmp_path: Path, spans: Spans) -> None:
    with TaskWeaverApp(tmp_path, TRACED) as app:
        app.get_session().run_code("python", f"raise KeyError('{SECRET}')")

    run = spans.one("execute_tool")
    assert parent_of(run) is None
    assert attributes_of(run)["error.type"] == "KeyError"
    assert run.status.status_code is StatusCode.ERROR
    assert SECRET not in spans.text()


def test_a_model_that_fails_is_an_error_of_the_call_and_of_the_round(
    tmp_path: Path, spans: Spans
) -> None:
    with (
        ModelServer([HttpFailure(401, "bad key")]) as server,
        make_app(tmp_path / "p", server.openai_url, tracing__enabled=True) as app,
    ):
        app.get_session().send_message("hello")

    call = spans.one("chat ")
    assert attributes_of(call)["error.type"] == "WrongKeyError"
    assert [event.name for event in call.events] == ["exception"]
    for span in (call, spans.one("invoke_agent")):
        assert span.status.status_code is StatusCode.ERROR


@pytest.mark.parametrize("kill", [False, True])
def test_spans_of_a_cancelled_round_end_and_are_no_errors(
    tmp_path: Path, spans: Spans, kill: bool
) -> None:
    model = ScriptedModel([plan("go"), code("print('on')\nwhile True: pass"), answer("never")])

    def stop(event: TaskWeaverEvent) -> None:
        if event.t is PostEventType.post_execution_output:
            session.interrupt(kill=kill)

    with TaskWeaverApp(tmp_path, TRACED, model=model) as app:
        session = app.get_session()
        assert session.send_message("go", Listener(stop)).state == "cancelled"

    run, top = spans.one("execute_tool"), spans.one("invoke_agent")
    assert attributes_of(run)["taskweaver.execution.status"] == "cancelled"
    assert attributes_of(top)["taskweaver.round.state"] == "cancelled"
    assert {span.status.status_code for span in (run, top)} == {StatusCode.UNSET}


def test_spans_end_when_a_model_call_is_stopped_or_ctrl_c_is_raised(
    tmp_path: Path, spans: Spans
) -> None:
    def interrupt(_messages: object) -> str:
        raise KeyboardInterrupt

    stalled = ScriptedAnswer(answer("never")[:60], ending="stall")
    with (
        ModelServer([stalled]) as server,
        make_app(tmp_path / "p", server.openai_url, tracing__enabled=True) as app,
    ):
        submitted = app.get_session().submit("go")
        server.wait_for_request()
        submitted.cancel()
        assert submitted.wait(LIMIT_SECONDS).state == "cancelled"
    assert attributes_of(spans.one("chat "))["error.type"] == "cancelled"
    with (
        TaskWeaverApp(tmp_path, TRACED, model=ScriptedModel([interrupt])) as app,
        pytest.raises(KeyboardInterrupt),
    ):
        app.get_session().send_message("go")

    states = [attributes_of(span)["taskweaver.round.state"] for span in spans.named("invoke")]
    assert states == ["cancelled", "cancelled"]


def test_a_submitted_round_belongs_to_the_span_of_its_caller(tmp_path: Path, spans: Spans) -> None:
    model = ScriptedModel([answer("hi")])
    with TaskWeaverApp(tmp_path, TRACED, model=model) as app:
        with trace.get_tracer("test").start_as_current_span("of the caller"):
            submitted = app.get_session().submit("hello")
        submitted.wait(LIMIT_SECONDS)
        assert threading.current_thread() is threading.main_thread()

    assert parent_of(spans.one("invoke_agent")) == id_of(spans.one("of the caller"))


UNTRACED = """
import sys
from taskweaver_ext import TaskWeaverApp
from taskweaver_ext.llm.scripted import ScriptedModel
with TaskWeaverApp(sys.argv[1], model=ScriptedModel([])) as app:
    session = app.get_session()
    session.run_code("python", "print(1)")
    session.send_message("fails, which is no matter")
print(sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""


def run_python(source: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", source, str(folder)],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


def test_nothing_is_imported_where_tracing_is_off(tmp_path: Path) -> None:
    done = run_python(UNTRACED, tmp_path)

    assert (done.stdout, done.returncode) == ("[]\n", 0)


MISSING = """
import sys
sys.modules["opentelemetry"] = None  # as where it is not installed
from taskweaver_ext import ConfigError, TaskWeaverApp
with TaskWeaverApp(sys.argv[1], {"tracing.enabled": True}) as app:
    try:
        app.get_session()
    except ConfigError as error:
        print(error)
"""


def test_where_the_extra_is_missing_a_sentence_says_so(tmp_path: Path) -> None:
    assert "taskweaver_ext[otel]" in run_python(MISSING, tmp_path).stdout
