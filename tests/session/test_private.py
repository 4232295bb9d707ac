"""Nobody else on the machine can read what a session keeps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.llm.scripted import ScriptedModel
from tests.support.conversations import answer, code, plan


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """Whatever does not say otherwise is open to everybody."""
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[Path]:
    """What of a session others could read: files of the code in `cwd` are the code's affair."""
    return [
        path
        for path in (folder, *folder.rglob("*"))
        if path.lstat().st_mode & 0o077 and "cwd" not in path.relative_to(folder).parts[:-1]
    ]


WRITE_EVERYTHING = """
from IPython.display import display
import threading
display({'image/svg+xml': '<svg/>'}, raw=True)
threading.Timer(0.1, print, ('late',)).start()
print('x' * 3_000_000)
"""


def test_all_that_a_session_keeps_is_its_owners(tmp_path: Path) -> None:
    model = ScriptedModel([plan("write"), code(WRITE_EVERYTHING), answer("done")])
    with TaskWeaverApp(tmp_path, model=model) as app:
        session = app.get_session("s1")
        chat_round = session.send_message("write")
        session.run_code("bash", "head -c 3000000 /dev/zero | tr '\\0' x")
        session.run_code("javascript", "console.log('\\xff'.repeat(3000000))")

    kept = {path.suffix for path in session.session_dir.rglob("*") if path.is_file()}
    assert chat_round.is_done, chat_round.error
    assert {".json", ".stdout", ".svg", ".jsonl"} <= kept
    workspace = session.session_dir.parent.parent
    assert open_to_others(workspace) == []


SHOW_A_PICTURE = """
from IPython.display import display
display({'image/png': 'iVBORw0KGgo' + 'A' * 100_000 + '='}, raw=True)
"""


def test_exports_are_their_owners_until_they_are_opened_to_others(tmp_path: Path) -> None:
    exports = tmp_path / "exports"
    exports.mkdir(mode=0o700)
    with TaskWeaverApp(tmp_path, model=ScriptedModel([])) as app:
        session = app.get_session("s1")
        session.run_code("python", SHOW_A_PICTURE)
        for name in ("s1.md", "s1.ipynb", "s1.zip"):
            session.export(exports / name)

    assert len(list(exports.rglob("*.png"))) == 1
    assert open_to_others(exports) == []


def test_a_folder_of_earlier_times_is_closed_to_others_when_it_is_used(tmp_path: Path) -> None:
    folder = tmp_path / "workspace" / "sessions" / "s1"
    (folder / "cwd").mkdir(parents=True)
    (folder / "ces" / "output").mkdir(parents=True)

    with TaskWeaverApp(tmp_path, model=ScriptedModel([])) as app:
        app.get_session("s1").run_code("python", "1")

    assert [path.stat().st_mode & 0o077 for path in (folder, folder / "cwd", folder / "ces")] == [
        0,
        0,
        0,
    ]
