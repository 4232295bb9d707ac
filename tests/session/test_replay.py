"""A session's cells run again on a fresh kernel, and what differs is told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.approval import Approval, ApprovalAnswer
from taskweaver_ext.events.types import PostEventType, SessionEventHandler, TaskWeaverEvent
from taskweaver_ext.llm.scripted import ScriptedModel
from taskweaver_ext.session.replay import Replay, ReplayedCell
from taskweaver_ext.session.saved import SavedSession
from taskweaver_ext.session.session import Session
from tests.support.conversations import answer, code, plan
from tests.support.executions import LIMIT_SECONDS

PICTURE = """
from IPython.display import display
display({"image/png": "%s", "text/plain": "a picture"}, raw=True)
"""


@pytest.fixture
def app(tmp_path: Path) -> Iterator[TaskWeaverApp]:
    """Where sessions are made; its kernels are local."""
    with TaskWeaverApp(tmp_path, {"workspace.workspace_path": str(tmp_path / "then")}) as app:
        yield app


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[TaskWeaverApp]:
    """Where they are replayed."""
    with TaskWeaverApp(tmp_path, {"workspace.workspace_path": str(tmp_path / "now")}) as app:
        yield app


def run_session(app: TaskWeaverApp, *cells: str, language: str = "python") -> SavedSession:
    """Run cells in a session and end it."""
    session = app.get_session("s1")
    for cell in cells:
        session.run_code(language, cell)
    session.stop()
    return SavedSession(session.session_dir)


def opening(fresh: TaskWeaverApp) -> Callable[[], Session]:
    return lambda: fresh.get_session("s1")


def replayed(saved: SavedSession, fresh: TaskWeaverApp) -> list[ReplayedCell]:
    return list(Replay(saved, opening(fresh)).cells())


def test_cells_that_do_the_same_are_the_same(app: TaskWeaverApp, fresh: TaskWeaverApp) -> None:
    saved = run_session(
        app,
        "x = 5; print(x)",
        "import os; print(os.getcwd(), object()); x",
        "open('made', 'a').write('a'); print(len(open('made').read()))",
        "1/0",
        PICTURE % "iVBORw0KGgo=",
    )

    cells = replayed(saved, fresh)

    assert [cell.outcome for cell in cells] == ["same"] * 5
    assert cells[1].put_aside == {"address": 1}
    assert [cell.now for cell in cells] == ["success", "success", "success", "error", "success"]


@pytest.mark.parametrize(
    ("cell", "what"),
    [
        ("import random; print(random.random())", "stdout"),
        ("import random, sys; print(random.random(), file=sys.stderr)", "stderr"),
        ("import random; random.random()", "value"),
        ("import random; raise ValueError(random.random())", "error"),
        ("import random; from IPython.display import display; display(random.random())", "display"),
        (
            "import base64, os\nfrom IPython.display import display\n"
            "display({'image/png': base64.b64encode(os.urandom(9)).decode()}, raw=True)",
            "picture",
        ),
        (
            "import base64, os\nfrom IPython.display import display\n"
            "display({'image/png': base64.b64encode(os.urandom(200_000)).decode()}, raw=True)",
            "picture",
        ),
        (
            "import random\nfor n in range(60_000): print('line', n)\n"
            "print(random.random())\nfor n in range(60_000): print('line', n)",
            "stdout",
        ),
    ],
)
def test_a_difference_is_told(
    app: TaskWeaverApp, fresh: TaskWeaverApp, cell: str, what: str
) -> None:
    saved = run_session(app, cell)

    [one] = replayed(saved, fresh)

    assert one.outcome == "different"
    assert [difference.what for difference in one.differences] == [what]
    lines = one.differences[0].lines()
    assert lines[0].startswith("- ")
    assert any(line.startswith("+ ") for line in lines)


def test_a_changed_world_changes_status_and_error(
    app: TaskWeaverApp, fresh: TaskWeaverApp, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("here")
    saved = run_session(app, f"print(open({str(outside)!r}).read())")
    outside.unlink()

    [one] = replayed(saved, fresh)

    assert {difference.what for difference in one.differences} == {"status", "stdout", "error"}
    assert (one.then, one.now) == ("success", "error")


def test_the_shell_is_replayed_with_its_exit_codes(
    app: TaskWeaverApp, fresh: TaskWeaverApp
) -> None:
    saved = run_session(app, "greeting=hi", "echo $greeting; false", language="bash")

    assert [cell.outcome for cell in replayed(saved, fresh)] == ["same", "same"]


def test_input_is_answered_as_it_was_and_passwords_are_not_known(
    app: TaskWeaverApp, fresh: TaskWeaverApp
) -> None:
    session = app.get_session("s1")
    session.run_code(
        "python", "print(input('name? '), input('age? '))", on_input=lambda prompt, _: prompt[:3]
    )
    session.run_code(
        "python", "import getpass; print(len(getpass.getpass()))", on_input=lambda *_: "secret"
    )
    session.stop()
    saved = SavedSession(session.session_dir)

    asked, secret = replayed(saved, fresh)
    [_, known] = Replay(saved, opening(fresh), ask_password=lambda _prompt: "hidden").cells()

    assert asked.outcome == "same"
    assert secret.outcome == "different"
    assert "password" in secret.notes[0]
    assert known.outcome == "same"


def test_code_that_asked_when_nobody_was_there_asks_nobody_again(
    app: TaskWeaverApp, fresh: TaskWeaverApp
) -> None:
    saved = run_session(app, "input('name? ')", "print('after')")

    asked, after = replayed(saved, fresh)

    assert asked.then == asked.now == "error"
    assert (asked.outcome, asked.differences) == ("same", ())
    assert after.outcome == "same"


def test_what_was_refused_or_given_is_skipped_and_copied(tmp_path: Path) -> None:
    model = ScriptedModel(
        [
            plan("read it"),
            code(
                "print(open('given, too.txt').read()); open('given, too.txt', 'w').write('changed')"
            ),
            plan("use the shell"),
            code("echo no", "bash"),
            answer("Done."),
        ]
    )
    settings = {"code_interpreter.approval": "ask", "code_interpreter.code_verification_on": False}
    workspace = {"workspace.workspace_path": str(tmp_path / "then")}
    with TaskWeaverApp(tmp_path, {**workspace, **settings}, model=model) as app:
        approval = Approval("ask")
        session = app.get_session("s1", approval=approval)
        approval.ask = lambda _request: ApprovalAnswer(False, reason="no")
        session.send_message("go", files=[{"name": "given, too.txt", "content": "given"}])
        saved = SavedSession(session.session_dir)
        with TaskWeaverApp(tmp_path, {"workspace.workspace_path": str(tmp_path / "now")}) as fresh:
            cells = replayed(saved, fresh)
            copied = (tmp_path / "now" / "sessions" / "s1" / "cwd" / "given, too.txt").read_text()

    ran, refused = cells[0], cells[1]
    assert ran.language == "python"
    assert refused.outcome == "skipped"
    assert "refused" in refused.notes[0]
    assert copied == "changed"


def test_a_continued_session_has_a_fresh_kernel_where_it_had_one(
    app: TaskWeaverApp, fresh: TaskWeaverApp
) -> None:
    run_session(app, "x = 1; open('kept', 'w').write('x')")
    saved = run_session(app, "print('x' in globals(), open('kept').read())")

    assert [cell.outcome for cell in replayed(saved, fresh)] == ["same", "same"]


def test_variables_that_were_restored_are_restored_in_the_replay(
    app: TaskWeaverApp, fresh: TaskWeaverApp
) -> None:
    session = app.get_session("s1")
    session.run_code("python", "x = [1]; y = x")
    session.snapshot()
    session.stop()
    session = app.get_session("s1")
    session.run_code("python", "x = 'not restored'")
    session.restore_variables()
    session.run_code("python", "print(x is y, x)")
    session.stop()

    cells = replayed(SavedSession(session.session_dir), fresh)

    assert [cell.outcome for cell in cells] == ["same"] * 3


def test_code_that_was_stopped_is_stopped_again(app: TaskWeaverApp, fresh: TaskWeaverApp) -> None:
    session = app.get_session("s1")
    has_begun = threading.Event()
    with session.emitter.handle_events_ctx(_OnOutput(has_begun)):
        submitted = session.submit_code("python", "x = 1; print('begun')\nwhile True: pass")
        assert has_begun.wait(LIMIT_SECONDS)
        submitted.cancel()
        submitted.wait(LIMIT_SECONDS)
    session.run_code("python", "print(x)")
    session.stop()

    stopped, after = replayed(SavedSession(session.session_dir), fresh)

    assert stopped.outcome == "not compared"
    assert "stopped then" in stopped.notes[0]
    assert after.outcome == "same"


def test_until_ends_it_early(app: TaskWeaverApp, fresh: TaskWeaverApp) -> None:
    saved = run_session(app, "1", "2", "3")
    replay = Replay(saved, opening(fresh), until=2)

    assert replay.count_cells() == 2
    assert [cell.number for cell in replay.cells()] == [1, 2]


def test_it_is_live_and_can_be_stopped(app: TaskWeaverApp, fresh: TaskWeaverApp) -> None:
    saved = run_session(app, "import pathlib, time\nprint('begun')", "print('never again')")
    endless = saved.folder / "cwd"
    assert endless.is_dir()
    began: list[int] = []
    has_output = threading.Event()
    replay = Replay(
        saved,
        opening(fresh),
        on_begin=lambda cell: began.append(cell.number),
        event_handler=_OnOutput(has_output, lambda: replay.stop()),
    )

    cells = list(replay.cells())

    assert has_output.is_set()
    assert replay.is_stopped
    assert cells == []
    assert began == [1]


class _OnOutput(SessionEventHandler):
    """Notes that code has written, and does something then."""

    def __init__(self, heard: threading.Event, do: Callable[[], object] = lambda: None) -> None:
        self._heard = heard
        self._do = do

    def handle(self, event: TaskWeaverEvent) -> None:
        if event.t is PostEventType.post_execution_output:
            self._heard.set()
            self._do()
