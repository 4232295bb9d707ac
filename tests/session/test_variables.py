"""What people and the agent are told when variables are saved and brought back."""

from __future__ import annotations

from pathlib import Path

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.events.types import SessionEventType
from taskweaver_ext.session.session import Session


def notices(session: Session) -> list[str]:
    events = session.emitter.read(0)
    return [event.msg for event in events if event.t is SessionEventType.session_notice]


def test_small_variables_have_a_size(tmp_path: Path) -> None:
    with TaskWeaverApp(tmp_path, {"workspace.workspace_path": str(tmp_path / "work")}) as app:
        session = app.get_session("s1")
        session.run_code("python", "x = 1")
        saved = session.snapshot()

        [told] = notices(session)

    assert saved.size_bytes < 10_000
    assert "0.0" not in told
    assert f"({saved.size_bytes} B)" in told or "KiB)" in told


def test_the_agent_is_told_of_a_new_process_only_if_there_is_one(tmp_path: Path) -> None:
    settings = {"workspace.workspace_path": str(tmp_path / "work")}
    with TaskWeaverApp(tmp_path, settings) as app:
        session = app.get_session("s1")
        session.run_code("python", "x = 1; file = open('log', 'w')")
        session.snapshot()
        session.run_code("python", "x = 2")
        session.restore_variables()
        [at_once] = session.context_blocks
    with TaskWeaverApp(tmp_path, settings) as app:
        session = app.get_session("s1")
        session.restore_variables()
        later = session.context_blocks[-1]

    assert "set back to what they were when they were saved except file." in at_once
    assert "new process" not in at_once
    assert "lost" not in at_once
    assert "in a new process" in later
    assert "except file, which are lost" in later
