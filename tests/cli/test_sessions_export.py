"""`sessions export` and `import` as people use them, and what they say when something is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from taskweaver_ext.app import TaskWeaverApp
from tests.support.command_line import exit_code_of


@pytest.fixture
def session_id(project: Path) -> str:
    """A session of the project that has ended."""
    with TaskWeaverApp(project) as app:
        session = app.get_session()
        session.run_code("python", "print('hello from code')")
        return session.session_id


def export(project: Path, *arguments: str) -> int:
    return exit_code_of("sessions", "export", "-p", str(project), *arguments)


@pytest.mark.parametrize("to", ["ipynb", "md", "html", "bundle"])
def test_each_format_is_written_and_its_place_is_the_answer(
    project: Path, session_id: str, to: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "exported"

    code = export(project, session_id[:10], "--to", to, "-o", str(path))

    assert code == 0
    assert capsys.readouterr().out == f"{path}\n"
    assert path.stat().st_size > 100


def test_without_a_file_the_session_names_it(
    project: Path, session_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert export(project, session_id, "--to", "html") == 0

    assert "hello from code" in (tmp_path / f"{session_id}.html").read_text()


@pytest.mark.parametrize("to", ["ipynb", "md", "html"])
def test_texts_can_go_to_stdout(
    project: Path, session_id: str, to: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert export(project, session_id, "--to", to, "-o", "-") == 0

    assert b"hello from code" in capfdbinary.readouterr().out


def test_an_open_session_can_be_exported(project: Path, tmp_path: Path) -> None:
    path = tmp_path / "open.ipynb"
    with TaskWeaverApp(project) as app:
        session = app.get_session()
        session.run_code("python", "print('still open')")

        assert export(project, session.session_id, "-o", str(path)) == 0

    cells = json.loads(path.read_text())["cells"]
    assert cells[-1]["outputs"][0]["text"] == "still open\n"


def test_a_file_that_is_there_is_replaced_only_when_asked(
    project: Path, session_id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "there.md"
    path.write_text("mine")

    refused = export(project, session_id, "-o", str(path))
    kept = path.read_text()
    forced = export(project, session_id, "-o", str(path), "--force")

    assert (refused, forced) == (2, 0)
    assert kept == "mine"
    assert "--force" in capsys.readouterr().err
    assert "hello from code" in path.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "docx"], "'docx' is not one of"),
        ([], "--to ipynb|md|html|bundle"),
        (["-o", "-"], "--to ipynb|md|html|bundle"),
        (["-o", "x.docx"], "Let its name end in"),
        (["-o", "/nowhere/at/all.md"], "There is no folder /nowhere/at"),
        (["--to", "bundle", "-o", "-"], "no text"),
        (["--to", "md", "-o", "."], "is a folder"),
        (["--to", "md", "--with-files"], "for --to bundle alone"),
    ],
)
def test_misuse_says_how_it_is_meant(
    project: Path,
    session_id: str,
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert export(project, session_id, *arguments) == 2

    assert message in capsys.readouterr().err


def test_an_unknown_session_names_what_there_is(
    project: Path, session_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(project, "nope", "--to", "md") == 1

    assert session_id in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_an_error(
    project: Path, session_id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"{'x' * 250}.md"

    assert export(project, session_id, "-o", str(path)) == 1

    assert "cannot be written: [Errno 36] File name too long" in capsys.readouterr().err


def test_a_bundle_is_imported_and_shown(
    project: Path, session_id: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bundle, other = tmp_path / "b.zip", tmp_path / "other"
    other.mkdir()
    (other / "taskweaver_config.json").write_text("{}")
    export(project, session_id, "-o", str(bundle))
    capfd.readouterr()

    codes = [exit_code_of("sessions", "import", str(bundle), "-p", str(other)) for _ in range(2)]
    said = capfd.readouterr()
    exit_code_of("sessions", "show", session_id, "-p", str(other))

    assert codes == [0, 0]
    first, second = said.out.split()
    assert first == session_id
    assert second.startswith(f"{session_id}-")
    assert f"there is a session {session_id} already" in said.err
    assert "hello from code" in capfd.readouterr().out


def test_what_is_no_bundle_is_refused(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "x.zip"
    text.write_text("no zip")

    codes = [
        exit_code_of("sessions", "import", name, "-p", str(project))
        for name in (str(text), "missing.zip")
    ]

    assert codes == [1, 1]
    said = capsys.readouterr().err
    assert "is no bundle, or a broken one" in said
    assert "There is no file missing.zip to import." in said
    assert "Errno" not in said
