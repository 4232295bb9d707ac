"""A disk that is full costs a session its journal, and nothing else."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.events.journal_reader import JournalReader
from taskweaver_ext.events.types import SessionEventType
from taskweaver_ext.llm.scripted import ScriptedModel
from tests.support.conversations import Listener, answer, code, plan
from tests.support.executions import LIMIT_SECONDS
from tests.support.needs import MissingError, need


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder with room for 256 KB."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount() -> None:
        command = ["mount", "-t", "tmpfs", "-o", "size=256k", "small-disk", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
        if done.returncode:
            raise MissingError(f"a small disk cannot be mounted: {done.stderr}")

    need("small disk", mount)
    yield folder
    subprocess.run(["umount", str(folder)], check=True, timeout=LIMIT_SECONDS)


def test_code_runs_on_and_is_heard_when_the_disk_is_full(
    tmp_path: Path, small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flood = "for number in range(100_000): print(number, 'ü')\n'value'"
    model = ScriptedModel([plan("print"), code(flood), answer("done")])
    listener = Listener()
    settings = {"workspace.workspace_path": str(small_disk)}
    with caplog.at_level(logging.WARNING), TaskWeaverApp(tmp_path, settings, model=model) as app:
        session = app.get_session("s1")
        with session.emitter.subscribe(listener, after=0):
            chat_round = session.send_message("print")
            result = session.run_code("bash", "echo still here")

    assert chat_round.state == "finished", chat_round.error
    assert result.stdout == ["still here\n"]
    expected = "".join(f"{number} ü\n" for number in range(100_000)) + "still here\n"
    assert listener.output() == expected
    notices = [one.msg for one in listener.events if one.t is SessionEventType.session_notice]
    assert len(notices) == 1
    assert "journal" in notices[0]
    assert caplog.text.count("cannot be written (No space left") == 1
    with JournalReader(session.session_dir) as reader:
        kept = list(reader.events())
        assert reader.skipped_lines == 0
    assert kept == listener.events[: len(kept)]
