"""Where the code of sessions works: in a folder of the person's, or in one of the session's own."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from pathlib import Path

import pytest

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.errors import ConfigError, SessionError
from taskweaver_ext.events.types import SessionEventType
from taskweaver_ext.session.folders import SECONDS_PER_DAY, remove_old_folders
from taskweaver_ext.session.replay import Replay
from taskweaver_ext.session.saved import SavedSession, delete_session
from tests.support.conversations import Listener, make_app


@pytest.fixture
def person(tmp_path: Path) -> Path:
    """A folder of a person, with something in it."""
    folder = tmp_path / "person"
    (folder / "sub").mkdir(parents=True)
    (folder / "precious.txt").write_text("mine")
    return folder


def listing(folder: Path) -> dict[str, bytes | None]:
    """Everything in a folder, files with what they hold."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def where_code_works(session_output: Listener) -> str:
    return session_output.output().strip()


def test_a_session_of_a_program_has_a_folder_of_its_own(tmp_path: Path) -> None:
    with make_app(tmp_path / "p") as app:
        session = app.get_session()

        assert session.cwd == session.session_dir / "cwd"
        assert not session.works_here
        kinds = [event.t for event in session.emitter.events()]
        assert SessionEventType.session_folder not in kinds


def test_a_program_chooses_the_folder_and_nothing_of_ours_appears_there(
    tmp_path: Path, person: Path
) -> None:
    before = listing(person)
    with make_app(tmp_path / "p") as app:
        session = app.get_session(cwd=person)
        heard = Listener()
        session.run_code("python", "import os; print(os.getcwd())", heard)
        session.run_code("bash", "pwd", heard)
        session.snapshot()
        session.export(tmp_path / "session.md")

        assert where_code_works(heard).splitlines() == [str(person)] * 2
        assert session.works_here
        assert not (session.session_dir / "cwd").exists()
    assert listing(person) == before


def test_the_setting_here_means_the_folder_of_the_program(
    tmp_path: Path, person: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(person)
    with make_app(tmp_path / "p", session__cwd="here") as app:
        assert app.get_session().cwd == person


def test_a_continued_session_works_where_it_did(tmp_path: Path, person: Path) -> None:
    with make_app(tmp_path / "p") as app:
        session_id = app.get_session(cwd=person).session_id
    with make_app(tmp_path / "p", session__cwd="here") as app:
        session = app.get_session(session_id)

        assert session.cwd == person
        assert session.folder_problem == ""
        folders = [e.msg for e in session.emitter.events() if e.t.name == "session_folder"]
        assert folders == [str(person)]  # told once: nothing has changed


def test_a_continued_session_whose_folder_is_gone_says_so_and_goes_on(
    tmp_path: Path, person: Path
) -> None:
    with make_app(tmp_path / "p") as app:
        session_id = app.get_session(cwd=person).session_id
    shutil.rmtree(person)

    with make_app(tmp_path / "p") as app:
        session = app.get_session(session_id)
        heard = Listener()
        session.run_code("python", "import os; print(os.getcwd())", heard)

        assert where_code_works(heard) == str(session.session_dir / "cwd")
        [notice] = [e.msg for e in session.emitter.events() if e.msg == session.folder_problem]
        for part in (str(person), "is not there", str(session.cwd), "--cwd"):
            assert part in notice
    assert not person.exists()


def test_a_continued_session_can_be_moved_and_stays_there(tmp_path: Path, person: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with make_app(tmp_path / "p") as app:
        session_id = app.get_session(cwd=person).session_id
    with make_app(tmp_path / "p") as app:
        assert app.get_session(session_id, cwd=other).cwd == other
        with pytest.raises(SessionError, match=f"works in {other}"):
            app.get_session(session_id, cwd=person)
    with make_app(tmp_path / "p") as app:
        assert app.get_session(session_id).cwd == other


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_a_folder_that_cannot_be_used_is_refused_and_leaves_no_session(
    tmp_path: Path, kind: str
) -> None:
    place = tmp_path / kind
    if kind == "file":
        place.touch()
    with make_app(tmp_path / "p") as app:
        with pytest.raises(ConfigError, match=r"is not there|is no folder") as refused:
            app.get_session("s1", cwd=place)
        assert "--cwd" in str(refused.value)
        assert not (app.config.workspace.workspace_path / "sessions" / "s1").exists()


@pytest.mark.parametrize("mode", ["sandbox", "container"])
def test_confined_code_is_not_given_the_home_folder(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    with make_app(tmp_path / "p", execution_service__kernel_mode=mode) as app:
        with pytest.raises(ConfigError, match=f"working folder of a {mode}") as refused:
            app.get_session(cwd=home)
        for way in ("--cwd", "session.cwd"):
            assert way in str(refused.value)


def test_a_project_that_keeps_its_sessions_in_itself_gives_confined_code_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "p"
    (project / "workspace" / "sessions").mkdir(parents=True)
    monkeypatch.chdir(project)
    with make_app(project, execution_service__kernel_mode="sandbox", session__cwd="here") as app:
        session = app.get_session()

        assert session.cwd == session.session_dir / "cwd"
        assert "workspace.workspace_path" in session.folder_problem


def test_neither_deleting_nor_age_removes_the_persons_folder(tmp_path: Path, person: Path) -> None:
    with make_app(tmp_path / "p") as app:
        deleted = app.get_session(cwd=person).session_dir
        old = app.get_session(cwd=person).session_dir
        workspace = app.config.workspace.workspace_path
    before = listing(person)

    delete_session(deleted)
    long_ago = os.stat(old).st_mtime - 100 * SECONDS_PER_DAY
    for place in (*old.iterdir(), old):
        os.utime(place, (long_ago, long_ago))
    removed = remove_old_folders(workspace, 7)

    assert removed == [old]
    assert not deleted.exists()
    assert listing(person) == before


def test_files_are_placed_at_once_and_never_in_the_place_of_others(
    tmp_path: Path, person: Path
) -> None:
    outside = tmp_path / "precious.txt"
    outside.write_text("another")
    with make_app(tmp_path / "p") as app:
        session = app.get_session(cwd=person)
        heard = Listener()
        with session.emitter.handle_events_ctx(heard):
            names = session.add_files([outside, person / "precious.txt", outside])

        assert names == ["precious-2.txt", "precious.txt", "precious-2.txt"]
        assert (person / "precious.txt").read_text() == "mine"
        assert (person / "precious-2.txt").read_text() == "another"
        added = [e for e in heard.events if e.t is SessionEventType.session_files_added]
        assert [e.extra for e in added] == [{"files": names}]
        assert "there is another precious.txt already" in added[0].msg
        assert any("precious-2.txt" in block for block in session.context_blocks)
        assert sorted(path.name for path in person.iterdir()) == [
            "precious-2.txt",
            "precious.txt",
            "sub",
        ]


def test_the_agents_knowledge_of_added_files_outlives_the_process(
    tmp_path: Path, person: Path
) -> None:
    with make_app(tmp_path / "p") as app:
        session = app.get_session(cwd=person)
        session.add_files([person / "precious.txt"])
    with make_app(tmp_path / "p") as app:
        continued = app.get_session(session.session_id)

        assert any("precious.txt" in block for block in continued.context_blocks)


def test_a_bundle_holds_what_the_session_names_and_not_the_persons_folder(
    tmp_path: Path, person: Path
) -> None:
    given = tmp_path / "given.csv"
    given.write_text("1,2")
    with make_app(tmp_path / "p") as app:
        session = app.get_session("s1", cwd=person)
        session.add_files([given])
        session.run_code("python", "print(1)")
        done = session.export(tmp_path / "s.zip", with_files=True)

        imported = app.import_session(tmp_path / "s.zip")
        saved = SavedSession(imported.folder)

    with zipfile.ZipFile(tmp_path / "s.zip") as bundle:
        names = bundle.namelist()
    assert "session/cwd/given.csv" in names
    assert not [name for name in names if "precious" in name]
    assert any("is your folder and not packed" in note for note in done.notes)
    assert (imported.folder / "cwd" / "given.csv").read_text() == "1,2"
    assert saved.folders()[-1] is None  # it goes on in a folder of its own, wherever it came from


def test_a_bundle_cannot_name_a_folder_of_those_who_import_it(tmp_path: Path, person: Path) -> None:
    """Otherwise an export, or a replay, would carry their files away."""
    with make_app(tmp_path / "p") as app:
        session = app.get_session("s1", cwd=person)
        session.add_files([person / "precious.txt"])
        session.export(tmp_path / "s.zip")
    with make_app(tmp_path / "q") as app:
        imported = app.import_session(tmp_path / "s.zip")
        continued = app.get_session(imported.session_id)

        assert continued.cwd == imported.folder / "cwd"
        again = continued.export(tmp_path / "again.zip", with_files=True)
    with zipfile.ZipFile(tmp_path / "again.zip") as bundle:
        assert not [name for name in bundle.namelist() if "precious" in name]
    assert any("precious.txt" in note for note in again.notes)


def test_a_replay_works_on_copies_in_a_fresh_folder(tmp_path: Path, person: Path) -> None:
    (person / "sub" / "data.txt").write_text("42")
    with make_app(tmp_path / "p") as app:
        session = app.get_session("s1", cwd=person)
        session.add_files([person / "sub" / "data.txt"])
        session.run_code("python", "print(open('sub/data.txt').read())")
        session.run_code("python", "import os; print(os.getcwd())")
    before = listing(person)
    with TaskWeaverApp(tmp_path / "p", {"workspace.workspace_path": str(tmp_path / "w")}) as app:
        replay = Replay(SavedSession(session.session_dir), lambda: app.get_session("s1"))
        outcomes = [(cell.outcome, json.dumps(cell.to_json())) for cell in replay.cells()]

    assert [outcome for outcome, _ in outcomes] == ["same", "same"], outcomes
    assert listing(person) == before
