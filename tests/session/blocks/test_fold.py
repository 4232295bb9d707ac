"""What a session said, read back as blocks: the events of real sessions, folded."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.approval import ApprovalAnswer, ApprovalRequest
from taskweaver_ext.ces.execution.results import ExecutionId
from taskweaver_ext.conversation import AttachmentType, PostId, RoundId
from taskweaver_ext.events.emitter import SessionEventEmitter
from taskweaver_ext.events.extras import ExecutionOutputExtra
from taskweaver_ext.events.types import EventScope, PostEventType, SessionEventType, TaskWeaverEvent
from taskweaver_ext.llm.scripted import ScriptedModel
from taskweaver_ext.session.blocks import (
    Block,
    Cell,
    DisplayOutput,
    LateText,
    LeftOut,
    Message,
    QuestionOutput,
    SessionNotice,
    TextOutput,
    fold_blocks,
    read_blocks,
)
from taskweaver_ext.session.session import Session
from tests.support.conversations import answer, code, plan
from tests.support.executions import LIMIT_SECONDS, wait_until

Kind = TypeVar("Kind")


def events_of(session: Session) -> list[TaskWeaverEvent]:
    events: list[TaskWeaverEvent] = []
    while piece := session.emitter.read(events[-1].seq if events else 0):
        events += piece
    return events


def blocks_of(session: Session) -> list[Block]:
    return list(read_blocks(lambda: events_of(session)))


def only(blocks: list[Block], kind: type[Kind]) -> list[Kind]:
    return [block for block in blocks if isinstance(block, kind)]


def texts(cell: Cell) -> list[tuple[str, str]]:
    return [(one.stream, one.text) for one in cell.outputs if isinstance(one, TextOutput)]


def run(tmp_path: Path, *sources: str, language: str = "python") -> list[Cell]:
    """Run a person's code in a session, and return the cells that are read back."""
    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session()
        for source in sources:
            session.run_code(language, source)
        return only(blocks_of(session), Cell)


def test_a_round_is_read_back_with_plan_thought_cell_and_answer(tmp_path: Path) -> None:
    model = ScriptedModel([plan("Add."), code("print(1 + 2)\n4"), answer("It is 3.")])
    with TaskWeaverApp(tmp_path, model=model) as app:
        session = app.get_session()
        session.send_message("What is 1 + 2?")
        blocks = blocks_of(session)

    question, planned, thought, cell, answered = blocks
    assert isinstance(question, Message)
    assert (question.role, question.text) == ("User", "What is 1 + 2?")
    assert isinstance(planned, Message)
    assert (planned.role, planned.send_to, planned.text) == ("Planner", "CodeInterpreter", "Add.")
    plans = [one.text for one in planned.attachments if one.type is AttachmentType.plan]
    assert plans == ["1. do it\n2. report"]
    assert isinstance(thought, Message)
    assert [(one.type, one.text) for one in thought.attachments] == [
        (AttachmentType.thought, "so be it")
    ]
    assert isinstance(cell, Cell)
    assert (cell.number, cell.by, cell.language) == (1, "agent", "python")
    assert (cell.status, cell.verification, cell.error) == ("success", "CORRECT", "")
    assert cell.code == "print(1 + 2)\n4"
    text, value = cell.outputs
    assert text == TextOutput(stream="stdout", text="3\n")
    assert isinstance(value, DisplayOutput)
    assert (value.is_result, value.bundle["text/plain"]) == (True, "4")
    assert cell.duration_seconds is not None
    assert isinstance(answered, Message)
    assert (answered.send_to, answered.text) == ("User", "It is 3.")


def test_streams_keep_their_order_and_errors_their_traceback(tmp_path: Path) -> None:
    source = "import sys\nprint('a')\nprint('b', file=sys.stderr)\nprint('c', end='')\n1/0"

    [cell] = run(tmp_path, source)

    assert texts(cell) == [("stdout", "a\n"), ("stderr", "b\n"), ("stdout", "c")]
    assert (cell.status, cell.by) == ("error", "person")
    assert "ZeroDivisionError" in cell.error
    assert "Traceback" in cell.error


def test_a_progress_bar_is_left_in_its_last_state(tmp_path: Path) -> None:
    [cell] = run(tmp_path, "for i in range(101): print(f'\\r{i}%', end='', flush=True)\nprint()")

    assert texts(cell) == [("stdout", "100%\n")]


def test_updates_and_clears_are_applied_also_by_later_cells(tmp_path: Path) -> None:
    first, second, third = run(
        tmp_path,
        "from IPython.display import display, clear_output\n"
        "handle = display('first', display_id=True)\nhandle.update('second')",
        "print('gone')\nclear_output()\nprint('kept')",
        "handle.update('third')\nprint('old'); clear_output(wait=True); print('new')",
    )

    [display] = first.outputs
    assert isinstance(display, DisplayOutput)
    assert display.bundle["text/plain"] == "'third'"
    assert texts(second) == [("stdout", "kept\n")]
    assert texts(third) == [("stdout", "new\n")]


def test_late_output_is_in_the_cell_that_caused_it(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    source = f"""
import pathlib, threading, time
def later():
    while not pathlib.Path({str(gate)!r}).exists():
        time.sleep(0.01)
    print("late")
threading.Thread(target=later).start()
print("early")
"""
    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session()
        session.run_code("python", source)
        session.run_code("python", "print('another')")
        gate.touch()
        late = SessionEventType.session_late_output
        wait_until(lambda: any(event.t is late for event in events_of(session)))
        first, second = only(blocks_of(session), Cell)
        told_late = only(list(fold_blocks(events_of(session))), LateText)

    assert first.outputs == [
        TextOutput(stream="stdout", text="early\n"),
        TextOutput(stream="stdout", text="late\n", is_late=True),
    ]
    assert texts(second) == [("stdout", "another\n")]
    assert [(one.execution_id, one.output.text) for one in told_late] == [
        (first.execution_id, "late\n")
    ]


def test_the_code_is_the_one_that_ran_after_an_edit(tmp_path: Path) -> None:
    def decide(request: ApprovalRequest) -> ApprovalAnswer:
        return ApprovalAnswer(True, code="echo edited")

    model = ScriptedModel([plan("list"), code("echo ran", "bash"), answer("done")])
    with TaskWeaverApp(tmp_path, model=model) as app:
        session = app.get_session()
        session.approval.ask = decide
        session.send_message("say it")
        [cell] = only(blocks_of(session), Cell)

    assert (cell.language, cell.code, cell.is_edited) == ("bash", "echo edited", True)
    question, output = cell.outputs
    assert isinstance(question, QuestionOutput)
    assert (question.kind, question.outcome, question.answer) == (
        "approval",
        "edited",
        "echo edited",
    )
    assert output == TextOutput(stream="stdout", text="edited\n")


def test_refused_code_says_why_and_has_not_run(tmp_path: Path) -> None:
    script = [plan("go"), *[code("eval('1')")] * 5, answer("I may not.")]
    with TaskWeaverApp(tmp_path, model=ScriptedModel(script)) as app:
        session = app.get_session()
        session.send_message("evaluate")
        blocks = blocks_of(session)

    cells = only(blocks, Cell)
    assert {(cell.status, cell.verification) for cell in cells} == {("refused", "INCORRECT")}
    assert [cell.number for cell in cells] == list(range(1, len(cells) + 1))
    assert all("eval" in cell.error and not cell.has_run for cell in cells)


def test_questions_and_answers_are_there_but_no_password(tmp_path: Path) -> None:
    def reply(prompt: str, password: bool) -> str:
        return "swordfish" if password else "Ada"

    source = "import getpass\nname = input('name? ')\nlen(getpass.getpass('secret? '))"
    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session()
        session.run_code("python", source, on_input=reply)
        blocks = blocks_of(session)

    [cell] = only(blocks, Cell)
    asked = [one for one in cell.outputs if isinstance(one, QuestionOutput)]
    assert [(one.kind, one.prompt, one.outcome, one.answer) for one in asked] == [
        ("input", "name? ", "answered", "Ada"),
        ("password", "secret? ", "answered", ""),
    ]
    assert "swordfish" not in str(blocks)


def test_a_dead_kernel_and_lost_variables_are_told(tmp_path: Path) -> None:
    died, after = run(tmp_path, "print('x')\nimport os; os._exit(3)", "print('again')")

    assert (died.status, died.variables_survived) == ("died", False)
    assert texts(died) == [("stdout", "x\n")]
    assert any("variables" in notice for notice in after.notices)


def test_a_cancelled_run_is_told_as_one(tmp_path: Path) -> None:
    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session()
        submitted = session.submit_code("python", "print('on')\nwhile True: pass")
        written = PostEventType.post_execution_output
        wait_until(lambda: any(event.t is written for event in events_of(session)))
        [running] = only(blocks_of(session), Cell)
        submitted.cancel()
        submitted.wait(LIMIT_SECONDS)
        blocks = blocks_of(session)

    [cell] = only(blocks, Cell)
    assert running.status == "running"
    assert cell.status == "cancelled"
    assert texts(cell) == [("stdout", "on\n")]
    assert [one.kind for one in only(blocks, SessionNotice)] == ["cancelled"]


def test_a_failed_round_says_why(tmp_path: Path) -> None:
    with TaskWeaverApp(tmp_path, model=ScriptedModel([])) as app:
        session = app.get_session()
        session.send_message("hello")
        blocks = blocks_of(session)

    [notice] = only(blocks, SessionNotice)
    assert notice.kind == "error"
    assert notice.text


def test_shared_code_is_the_context_of_a_message(tmp_path: Path) -> None:
    model = ScriptedModel([answer("yes")])
    with TaskWeaverApp(tmp_path, model=model) as app:
        session = app.get_session()
        session.share(["[the sky is blue]"])
        session.send_message("Is it?")
        question = only(blocks_of(session), Message)[0]

    assert (question.text, question.context) == ("Is it?", "[the sky is blue]")


def output_events(count: int, text: str, streams: tuple[str, ...]) -> Iterator[TaskWeaverEvent]:
    """A post whose code writes much, made when it is read."""
    round_id, post_id = RoundId("round-1"), PostId("post-1")
    yield TaskWeaverEvent(
        EventScope.post, PostEventType.post_start, round_id, post_id, "", {"role": "User"}
    )
    for number in range(count):
        stream = streams[number % len(streams)]
        extra: ExecutionOutputExtra = {
            "stream": "stderr" if stream == "stderr" else "stdout",
            "text": text,
            "execution_id": ExecutionId(post_id),
            "offset": 0,
        }
        kind = PostEventType.post_execution_output
        yield TaskWeaverEvent(EventScope.post, kind, round_id, post_id, text, extra)


@pytest.mark.parametrize(
    ("count", "text", "streams"),
    [
        (2_000, "a line of output\n" * 500, ("stdout",)),
        (100_000, "x", ("stdout", "stderr")),
        (20_000, "\rbar " * 100, ("stdout",)),
        (50, "no newline " * 30_000, ("stdout",)),
    ],
)
def test_much_output_costs_no_memory_and_says_what_is_left_out(
    count: int, text: str, streams: tuple[str, ...]
) -> None:
    tracemalloc.start()
    try:
        [cell] = fold_blocks(output_events(count, text, streams), max_chars=100_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert isinstance(cell, Cell)
    assert peak < 24_000_000
    kept = sum(len(text) for _, text in texts(cell))
    assert kept <= 110_000
    if "\r" not in text:
        [gap] = [one for one in cell.outputs if isinstance(one, LeftOut)]
        folded_breaks = count * len(text) // 262_144 + 1  # endless lines are wrapped
        assert abs(gap.characters + kept - count * len(text)) <= folded_breaks
        assert gap.paths["stdout"] == "ces/output/post-1.stdout"


def test_a_post_that_its_process_took_along_is_lost() -> None:
    events = [
        TaskWeaverEvent(EventScope.session, SessionEventType.session_start, None, None, ""),
        *output_events(1, "begun\n", ("stdout",)),
        TaskWeaverEvent(EventScope.session, SessionEventType.session_start, None, None, ""),
    ]

    cell, resumed = fold_blocks(events)

    assert isinstance(cell, Cell)
    assert (cell.status, cell.variables_survived) == ("lost", False)
    assert isinstance(resumed, SessionNotice)
    assert resumed.kind == "resumed"


def test_without_events_of_its_execution_a_cell_has_the_report(tmp_path: Path) -> None:
    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session()
        session.run_code("python", "print('told')")
        kinds = (PostEventType.post_execution_output, PostEventType.post_execution_event)
        [cell] = fold_blocks(event for event in events_of(session) if event.t not in kinds)

    assert isinstance(cell, Cell)
    assert cell.status == "success"
    assert [(stream, "told" in text) for stream, text in texts(cell)] == [("stdout", True)]


def test_code_that_the_model_took_back_is_not_shown() -> None:
    emitter = SessionEventEmitter()
    emitter.start_round(RoundId("round-1"))
    post = emitter.create_post_proxy("CodeInterpreter")
    post.update_attachment("python", AttachmentType.reply_type)
    post.update_attachment("half of th", AttachmentType.reply_content, is_end=False)
    post.update_attachment("whole = 1", AttachmentType.reply_content)
    post.end()
    emitter.end_round(RoundId("round-1"))

    [_, cell] = fold_blocks(emitter.read(0))

    assert isinstance(cell, Cell)
    assert (cell.code, cell.status) == ("whole = 1", "not_run")


def test_blocks_come_as_soon_as_they_are_complete() -> None:
    read_so_far: list[int] = []
    stop = threading.Event()

    def endless() -> Iterator[TaskWeaverEvent]:
        number = 0
        while not stop.is_set():
            number += 1
            read_so_far.append(number)
            notice = SessionEventType.session_notice
            yield TaskWeaverEvent(EventScope.session, notice, None, None, f"notice {number}")

    blocks = fold_blocks(endless())
    first = next(blocks)
    stop.set()

    assert isinstance(first, SessionNotice)
    assert read_so_far == [1]
