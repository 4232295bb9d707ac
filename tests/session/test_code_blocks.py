"""The numbered code blocks of real sessions, now and when another process goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.approval import ApprovalAnswer, ApprovalRequest
from taskweaver_ext.errors import SessionError
from taskweaver_ext.events.extras import CodeBlockExtra
from taskweaver_ext.events.journal_lines import JOURNAL
from taskweaver_ext.events.types import PostEventType, TaskWeaverEvent
from taskweaver_ext.llm.scripted import ScriptedModel
from taskweaver_ext.session.blocks import Cell, Message, read_blocks
from taskweaver_ext.session.session import Session
from tests.support.conversations import answer, code, plan

PROPOSAL = "Try this:\n\n```python\nx = 1\n```\n\nor\n\n~~~sh\nls\n~~~\n"
SCRIPT = [plan("Add."), code("print(1 + 2)"), answer(PROPOSAL)]


@pytest.fixture
def app(tmp_path: Path) -> Iterator[TaskWeaverApp]:
    with TaskWeaverApp(tmp_path, model=ScriptedModel([*SCRIPT, *SCRIPT])) as app:
        yield app


def told_numbers(session: Session) -> dict[tuple[str, int], int]:
    """The number of each block as events tell it, by post and part."""
    extras = [
        (event.post_id or "", cast(CodeBlockExtra, event.extra))
        for event in session.emitter.events()
        if event.t is PostEventType.post_code_block
    ]
    return {(post_id, extra["part"]): extra["number"] for post_id, extra in extras}


def read_numbers(events: list[TaskWeaverEvent]) -> dict[tuple[str, int], int]:
    """The number of each block as the session reads back, by post and part."""
    numbers: dict[tuple[str, int], int] = {}
    for block in read_blocks(lambda: events):
        if isinstance(block, Cell):
            numbers[block.post_id, 0] = block.number
        elif isinstance(block, Message):
            for part, proposed in enumerate(block.proposed, 1):
                numbers[block.post_id or "", part] = proposed.number
    return numbers


def test_what_is_typed_written_and_proposed_is_numbered_in_one_row(app: TaskWeaverApp) -> None:
    session = app.get_session()
    session.run_code("python", "mine = 1")
    session.send_message("What is 1 + 2?")
    session.run_code("bash", "false")

    blocks = [session.code_blocks.get(number) for number in range(1, 6)]

    assert [(one.number, one.language, one.code, one.by, one.status) for one in blocks] == [
        (1, "python", "mine = 1", "person", "success"),
        (2, "python", "print(1 + 2)", "agent", "success"),
        (3, "python", "x = 1", "agent", "not_run"),
        (4, "bash", "ls", "agent", "not_run"),
        (5, "bash", "false", "person", "error"),
    ]
    assert [one.is_proposed for one in blocks] == [False, False, True, True, False]
    assert session.code_blocks.get() == blocks[-1]
    assert session.code_blocks.last_number == 5


def test_events_read_back_and_exported_cells_have_the_same_numbers(app: TaskWeaverApp) -> None:
    session = app.get_session()
    session.send_message("Go.")
    session.run_code("python", "1")
    session.send_message("Once more.")
    events = list(session.emitter.events())
    untold = [event for event in events if event.t is not PostEventType.post_code_block]

    told = told_numbers(session)

    assert sorted(told.values()) == [1, 2, 3, 4, 5, 6, 7]
    assert read_numbers(events) == told
    assert read_numbers(untold) == told, "sessions of earlier versions read back alike"


def test_the_number_is_told_before_the_code(app: TaskWeaverApp) -> None:
    session = app.get_session()
    session.send_message("Go.")
    session.run_code("python", "print('mine')")

    first_seen: dict[str, str] = {}
    for event in session.emitter.events():
        is_code = "sub_type" in event.extra and event.extra["sub_type"] == "code_exec.code"
        is_output = event.t is PostEventType.post_execution_output
        if event.post_id and (is_code or is_output or event.t is PostEventType.post_code_block):
            first_seen.setdefault(event.post_id, event.t.value)

    assert set(first_seen.values()) == {"post_code_block"}


def test_a_run_says_which_block_it_repeats(app: TaskWeaverApp) -> None:
    session = app.get_session()
    session.run_code("python", "n = 1")

    session.run_code("python", "n = 1", repeats=1)

    assert session.code_blocks.get(2).repeats == 1
    assert session.code_blocks.get(1).repeats is None
    [cell] = [
        one
        for one in read_blocks(session.emitter.events)
        if isinstance(one, Cell) and one.number == 2
    ]
    assert cell.repeats == 1


def test_an_unknown_number_is_refused_with_those_there_are(app: TaskWeaverApp) -> None:
    session = app.get_session()
    with pytest.raises(SessionError, match="no code in this session yet"):
        session.code_blocks.get()
    session.run_code("python", "1")
    with pytest.raises(SessionError, match="no block 9 in this session; the only one is 1"):
        session.code_blocks.get(9)
    session.run_code("python", "2")
    with pytest.raises(SessionError, match="numbered 1 to 2"):
        list(session.code_blocks.lines(0))


@pytest.mark.parametrize("has_numbers", [True, False])
def test_another_process_goes_on_with_the_numbers(tmp_path: Path, has_numbers: bool) -> None:
    with TaskWeaverApp(tmp_path, model=ScriptedModel([*SCRIPT])) as app:
        session = app.get_session("kept")
        session.send_message("Go.")
        journal = session.session_dir / JOURNAL
    if not has_numbers:  # as earlier versions have written it
        lines = journal.read_text().splitlines(keepends=True)
        journal.write_text("".join(line for line in lines if '"post_code_block"' not in line))

    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session("kept")
        session.run_code("bash", "echo more")

        assert session.code_blocks.get().number == 4
        assert session.code_blocks.get(1).code == "print(1 + 2)"
        assert session.code_blocks.get(1).status == "success"
        assert session.code_blocks.get(3).code == "ls"
        assert [line.text for line in session.code_blocks.lines(1)] == ["3"]


def test_approval_can_name_the_number_and_edited_code_keeps_it(tmp_path: Path) -> None:
    numbers: list[int | None] = []
    script = [plan("Say it."), code("echo hello", "bash"), answer("Done.")]
    with TaskWeaverApp(tmp_path, model=ScriptedModel(script)) as app:
        session = app.get_session()
        session.run_code("python", "1")

        def ask(_request: ApprovalRequest) -> ApprovalAnswer:
            [question] = session.questions.open_questions
            numbers.append(session.code_blocks.number_of(question["execution_id"]))
            return ApprovalAnswer(True, code="echo edited")

        session.approval.ask = ask
        session.send_message("Say hello.")

        assert numbers == [2]
        assert session.code_blocks.get(2).code == "echo edited"


def test_all_that_code_wrote_comes_back_line_by_line(app: TaskWeaverApp) -> None:
    session = app.get_session()
    session.run_code(
        "python",
        "import sys\n"
        "for n in range(300_000): print('line', n)\n"
        "print('\\r10%\\r100%')\n"
        "print('problem', file=sys.stderr)\n"
        "'value'",
    )

    lines = list(session.code_blocks.lines())

    assert [line.text for line in lines[:300_000]] == [f"line {n}" for n in range(300_000)]
    assert [(line.stream, line.text) for line in lines[300_000:]] == [
        ("stdout", "100%"),
        ("stderr", "problem"),
        ("stdout", "'value'"),
    ]


def test_what_was_cleared_does_not_come_back(app: TaskWeaverApp) -> None:
    session = app.get_session()
    session.run_code(
        "python",
        "from IPython.display import clear_output\nprint('old')\nclear_output()\nprint('new')",
    )

    assert [line.text for line in session.code_blocks.lines()] == ["new"]
    assert session.code_blocks.find("old") == ([], 0)


def test_a_search_finds_lines_with_their_places_and_counts_the_rest(app: TaskWeaverApp) -> None:
    session = app.get_session()
    session.run_code("python", "for n in range(1000): print('Row', n)")
    session.run_code("bash", "echo row of the shell")

    found, more = session.code_blocks.find("row", max_found=3)
    in_second, none = session.code_blocks.find("row", 2)

    assert [(one.number, one.line, one.text) for one in found] == [
        (1, 1, "Row 0"),
        (1, 2, "Row 1"),
        (1, 3, "Row 2"),
    ]
    assert more == 998
    assert [(one.number, one.line, one.text) for one in in_second] == [(2, 1, "row of the shell")]
    assert none == 0
    assert session.code_blocks.find("ROW") == ([], 0), "capitals count where there are any"
    with pytest.raises(SessionError, match="no block 7"):
        session.code_blocks.find("row", 7)


def test_a_search_counts_a_line_that_is_too_long_to_be_kept_as_one(app: TaskWeaverApp) -> None:
    session = app.get_session()
    session.run_code("python", "print('x' * 300_000)\nprint('here')")

    assert [one.line for one in session.code_blocks.find("here")[0]] == [2]
    assert [one.line for one in session.code_blocks.find("xx")[0]] == [1]
