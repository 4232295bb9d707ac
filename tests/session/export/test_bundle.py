"""A session as a bundle, there and back; bundles that lie, break or grow leave nothing behind."""

from __future__ import annotations

import io
import json
import os
import signal
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.errors import SessionError
from taskweaver_ext.events.journal_lines import JOURNAL
from taskweaver_ext.llm.scripted import ScriptedModel
from taskweaver_ext.session.blocks import Cell, read_blocks
from taskweaver_ext.session.export.import_bundle import import_bundle
from taskweaver_ext.session.saved import SavedSession
from tests.support.conversations import answer
from tests.support.executions import LIMIT_SECONDS
from tests.support.exported import exported, real_session, source_of

HEADER = json.dumps({"format": 1, "session_id": "s1", "project": "", "created_at": 1.0}) + "\n"


def make_bundle(path: Path, files: dict[str, str], session_id: object = "s1") -> Path:
    """A bundle by hand."""
    with zipfile.ZipFile(path, "w") as bundle:
        bundle.writestr("bundle.json", json.dumps({"format": 1, "session_id": session_id}))
        for name, text in files.items():
            bundle.writestr(name, text)
    return path


def left_in(workspace: Path) -> list[str]:
    """Everything that is in a workspace, but the folder of sessions itself."""
    found = sorted(str(path.relative_to(workspace)) for path in workspace.rglob("*"))
    return [name for name in found if name != "sessions"]


def test_a_session_comes_back_on_another_machine(tmp_path: Path) -> None:
    path = tmp_path / "session.zip"
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    with real_session(there) as session:
        session.run_code("python", "for i in range(100_000): print('line', i)")
        session.run_code("python", "open('made.txt', 'w').write('by code')")
        session.export(path)
        before = list(read_blocks(session.emitter.events))

    with TaskWeaverApp(here, model=ScriptedModel([answer("Welcome back.")])) as app:
        done = app.import_session(path)
        saved = SavedSession(done.folder)
        after = list(read_blocks(saved.events))
        chat_round = app.get_session(done.session_id).send_message("hello again")

    assert done.session_id == done.original_id == session.session_id
    assert after[: len(before)] == before
    assert chat_round.post_list[-1].message == "Welcome back."
    assert not (done.folder / "cwd" / "made.txt").exists()
    for found in (done.folder, *done.folder.rglob("*")):
        assert stat.S_IMODE(found.stat().st_mode) & 0o077 == 0, found


def test_files_come_along_when_asked_for_and_links_never(tmp_path: Path) -> None:
    path = tmp_path / "session.zip"
    workspace = tmp_path / "here"
    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session()
        session.run_code("python", "import os\nopen('made.txt', 'w').write('by code')")
        session.run_code("python", "os.symlink('/etc/hostname', 'link'); os.mkfifo('pipe')")
        session.export(path, with_files=True)
    workspace.mkdir()

    done = import_bundle(path, workspace)

    assert [file.name for file in (done.folder / "cwd").iterdir()] == ["made.txt"]
    assert (done.folder / "cwd" / "made.txt").read_text() == "by code"


def test_only_what_was_said_and_made_is_in_a_bundle(tmp_path: Path) -> None:
    path = tmp_path / "session.zip"
    with real_session(tmp_path) as session:
        session.export(path)

    with zipfile.ZipFile(path) as bundle:
        names = set(bundle.namelist())
    assert {"bundle.json", f"session/{JOURNAL}"} <= names
    assert not [name for name in names if "prompt_log" in name or "in_use" in name]


def test_artifacts_come_along_and_are_found_where_they_are_now(tmp_path: Path) -> None:
    path = tmp_path / "session.zip"
    workspace = tmp_path / "here"
    workspace.mkdir()
    figure = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 1])\nplt.show()"
    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session()
        result = session.run_code("python", figure)
        session.export(path)
        page = exported(source_of(session), "html")

    done = import_bundle(path, workspace)

    saved = SavedSession(done.folder)
    [cell] = [block for block in read_blocks(saved.events) if isinstance(block, Cell)]
    assert result.is_success
    assert "data:image/png;base64," in page
    assert list((done.folder / "ces" / "artifacts").iterdir())
    assert cell.outputs


def test_an_id_that_is_taken_becomes_another(tmp_path: Path) -> None:
    path = make_bundle(tmp_path / "b.zip", {f"session/{JOURNAL}": HEADER, "session/s1_r.json": ""})
    workspace = tmp_path / "workspace"

    first, second = (import_bundle(path, workspace) for _ in range(2))

    assert first.session_id == "s1"
    assert second.session_id != "s1"
    assert second.original_id == "s1"
    header = json.loads((second.folder / JOURNAL).read_text().splitlines()[0])
    assert header["session_id"] == second.session_id
    assert (second.folder / f"{second.session_id}_r.json").exists()


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../outside",
        "session/../../outside",
        "session/cwd/../../outside",
        "session//etc/passwd",
        "session/cwd/..\\..\\outside",
        "session/C:/windows",
        "session/.in_use",
        "session/ces/output/a/b",
        "session/cwd/a\x01b",
        "other/journal.jsonl",
        "session/planner_prompt_log_round-1.json",
        "session/cwd/" + "x" * 5_000,
    ],
)
def test_a_path_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    files = {f"session/{JOURNAL}": HEADER, name: "hostile"}
    path = make_bundle(tmp_path / "b.zip", files)
    workspace = tmp_path / "workspace"
    workspace.mkdir()

    with pytest.raises(SessionError, match="which no session has"):
        import_bundle(path, workspace)

    assert left_in(workspace) == []
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO, stat.S_IFSOCK])
def test_links_and_devices_are_refused(tmp_path: Path, kind: int) -> None:
    path = make_bundle(tmp_path / "b.zip", {f"session/{JOURNAL}": HEADER})
    entry = zipfile.ZipInfo("session/cwd/x")
    entry.external_attr = (kind | 0o777) << 16
    with zipfile.ZipFile(path, "a") as bundle:
        bundle.writestr(entry, "/etc/passwd")

    with pytest.raises(SessionError, match="which no session has"):
        import_bundle(path, tmp_path / "workspace")


def lie_about_sizes(data: bytes) -> bytes:
    """Say in the table of contents that every file has one byte."""
    changed = bytearray(data)
    place = changed.find(b"PK\x01\x02")
    while place >= 0:
        changed[place + 24 : place + 28] = (1).to_bytes(4, "little")
        place = changed.find(b"PK\x01\x02", place + 4)
    return bytes(changed)


@pytest.mark.parametrize("change", [bytes, lie_about_sizes])
def test_a_bomb_is_stopped(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("bundle.json", json.dumps({"format": 1, "session_id": "s1"}))
        bundle.writestr(f"session/{JOURNAL}", HEADER)
        bundle.writestr("session/cwd/bomb", b"\0" * 50_000_000)
    path = tmp_path / "b.zip"
    path.write_bytes(change(buffer.getvalue()))
    workspace = tmp_path / "workspace"
    workspace.mkdir()

    with pytest.raises(SessionError):
        import_bundle(path, workspace, max_bytes=1_000_000)

    assert left_in(workspace) == []


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    files = {f"session/cwd/{number}": "" for number in range(50)}
    path = make_bundle(tmp_path / "b.zip", {f"session/{JOURNAL}": HEADER, **files})

    with pytest.raises(SessionError, match="52 files; 20 are allowed"):
        import_bundle(path, tmp_path / "workspace", max_files=20)


@pytest.mark.parametrize("session_id", ["../x", "", "a/b", ".hidden", None, 7, "x" * 200])
def test_an_impossible_id_is_refused(tmp_path: Path, session_id: object) -> None:
    path = make_bundle(tmp_path / "b.zip", {f"session/{JOURNAL}": HEADER}, session_id)

    with pytest.raises(SessionError, match="impossible id"):
        import_bundle(path, tmp_path / "workspace")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "no journal and no rounds"),
        ({f"session/{JOURNAL}": "not json\n"}, "has no header"),
        ({f"session/{JOURNAL}": '{"format": 99, "session_id": "s1"}\n'}, "newer|format"),
        ({f"session/{JOURNAL}": HEADER, "session/cwd/a": "", "session/cwd/a/b": ""}, "imported"),
    ],
)
def test_a_bundle_that_makes_no_session_is_refused(
    tmp_path: Path, content: dict[str, str], message: str
) -> None:
    path = make_bundle(tmp_path / "b.zip", content)
    workspace = tmp_path / "workspace"
    workspace.mkdir()

    with pytest.raises(SessionError, match=message):
        import_bundle(path, workspace)

    assert left_in(workspace) == []


def test_a_cut_or_changed_bundle_leaves_nothing(tmp_path: Path) -> None:
    lines = HEADER + "".join(f'{{"event": "x{number}"}}\n' for number in range(200))
    whole = make_bundle(tmp_path / "b.zip", {f"session/{JOURNAL}": lines}).read_bytes()
    path, workspace = tmp_path / "broken.zip", tmp_path / "workspace"
    workspace.mkdir()
    outcomes = set()
    for place in range(0, len(whole), 97):
        changed = bytes([whole[place] ^ 0xFF])
        for data in (whole[:place], whole[:place] + changed + whole[place + 1 :]):
            path.write_bytes(data)
            try:
                done = import_bundle(path, workspace)
            except SessionError:
                outcomes.add("refused")
                assert not [name for name in os.listdir(workspace) if name != "sessions"]
            else:
                outcomes.add("taken")
                SavedSession(done.folder)  # what is taken can be read

    assert "refused" in outcomes


def test_what_is_no_bundle_says_so(tmp_path: Path) -> None:
    text, folder = tmp_path / "text", tmp_path / "folder"
    text.write_text("hello")
    folder.mkdir()
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(other, "w") as bundle:
        bundle.writestr("hello.txt", "x")

    for path in (text, folder, tmp_path / "missing", other):
        with pytest.raises(SessionError):
            import_bundle(path, tmp_path / "workspace")


def test_newer_formats_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    with zipfile.ZipFile(path, "w") as bundle:
        bundle.writestr("bundle.json", json.dumps({"format": 2, "session_id": "s1"}))

    with pytest.raises(SessionError, match="format 2; this version reads up to 1"):
        import_bundle(path, tmp_path / "workspace")


@pytest.mark.parametrize("name", ["/////", "üüxxx"], ids=["empty", "no text"])
def test_a_bundle_with_a_broken_name_is_refused(tmp_path: Path, name: str) -> None:
    path = make_bundle(tmp_path / "x.zip", {f"session/{JOURNAL}": HEADER})
    with zipfile.ZipFile(path, "a") as bundle:
        bundle.writestr(name, "")
    data = path.read_bytes()
    directory = data.index(b"PK\x01\x02")
    broken = data[directory:].replace(b"\xc3\xbc", b"\xff\xff").replace(b"/////", b"\0////")
    path.write_bytes(data[:directory] + broken)
    workspace = tmp_path / "here"
    workspace.mkdir()

    with pytest.raises(SessionError, match="broken"):
        import_bundle(path, workspace)

    assert left_in(workspace) == []


IMPORT_AND_DIE = """
import os, signal, sys
from pathlib import Path
from taskweaver_ext.session.export import import_bundle

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

os.utime = die  # called once a file is there
import_bundle.import_bundle(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def test_what_a_killed_import_leaves_goes_with_the_next_start(tmp_path: Path) -> None:
    path = make_bundle(tmp_path / "x.zip", {f"session/{JOURNAL}": HEADER})
    workspace = tmp_path / "here"
    program = [sys.executable, "-c", IMPORT_AND_DIE, str(path), str(workspace)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert left_in(workspace)

    with TaskWeaverApp(tmp_path, {"workspace.workspace_path": str(workspace)}):
        pass

    assert left_in(workspace) == []
