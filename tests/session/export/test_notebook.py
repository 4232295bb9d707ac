"""A session as a notebook: valid, with everything that was said and shown, and fit to run again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.llm.scripted import ScriptedModel
from taskweaver_ext.session.export.export import export_session
from tests.support.conversations import answer, code, plan
from tests.support.exported import exported, real_session, session_saying, source_of
from tests.support.markup_texts import MARKUP_TEXTS


def read(path: Path) -> Any:  # noqa: ANN401 - a notebook of nbformat, which is untyped
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(notebook)
    return notebook


def cells_of(notebook: Any, kind: str) -> list[Any]:  # noqa: ANN401
    return [cell for cell in notebook.cells if cell.cell_type == kind]


def test_a_session_is_a_valid_notebook_with_all_of_its_outputs(tmp_path: Path) -> None:
    path = tmp_path / "session.ipynb"
    with real_session(tmp_path) as session:
        done = session.export(path)

    notebook = read(done.path)
    failed, shown, shell, asked = cells_of(notebook, "code")
    words = "\n".join(cell.source for cell in cells_of(notebook, "markdown"))
    assert "Show me everything." in words
    assert "It is **42**." in words
    assert "1. do it" in words
    assert "First I divide." in words
    [error] = failed.outputs
    assert (error.output_type, error.ename, error.evalue) == (
        "error",
        "ZeroDivisionError",
        "division by zero",
    )
    assert "Traceback" in "\n".join(error.traceback)
    kinds = [one.output_type for one in shown.outputs if "File made" not in str(one)]
    assert kinds == [*["stream"] * 2, *["display_data"] * 3, "execute_result"]
    streams = [(one.name, one.text) for one in shown.outputs if one.output_type == "stream"]
    assert streams == [("stdout", "to stdout\n"), ("stderr", "to stderr\n")]
    bundles = [one.data for one in shown.outputs if "data" in one]
    assert any("<td>Ada</td>" in one.get("text/html", "") for one in bundles)
    assert any("some *words*" in one.get("text/markdown", "") for one in bundles)
    assert any("image/png" in one for one in bundles)
    assert shown.outputs[-1].data["text/plain"] == "42"
    assert [cell.execution_count for cell in (failed, shown, shell, asked)] == [1, 2, 3, 4]
    assert shell.source == "%%bash\necho from bash"
    assert [cell.metadata.tags for cell in (shown, asked)] == [["agent"], ["person"]]
    assert "who? Ada" in asked.outputs[0].text


def test_a_notebook_runs_again_and_is_shown_by_jupyter(tmp_path: Path) -> None:
    path = tmp_path / "session.ipynb"
    with real_session(tmp_path) as session:
        session.export(path)
    notebook = read(path)
    notebook.cells = [cell for cell in notebook.cells if "input(" not in cell.source]

    page, _ = HTMLExporter().from_notebook_node(notebook)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, kernel_name="python3", allow_errors=True, timeout=120).execute()

    assert "to stdout" in page
    failed, shown, shell = cells_of(notebook, "code")
    assert failed.outputs[0].ename == "ZeroDivisionError"
    assert shown.outputs[-1].data["text/plain"] == "42"
    assert shell.outputs[0].text == "from bash\n"


def test_code_that_was_refused_is_shown_and_not_a_cell_that_runs(tmp_path: Path) -> None:
    path = tmp_path / "session.ipynb"
    script = [plan("go"), *[code("eval('1')")] * 5, answer("I may not.")]
    with TaskWeaverApp(tmp_path, model=ScriptedModel(script)) as app:
        session = app.get_session()
        session.send_message("evaluate")
        session.export(path)

    notebook = read(path)
    assert cells_of(notebook, "code") == []
    words = "\n".join(cell.source for cell in notebook.cells)
    assert "eval('1')" in words
    assert "not allowed to run" in words


@pytest.mark.parametrize("text", MARKUP_TEXTS)
def test_whatever_is_said_the_notebook_is_valid(tmp_path: Path, text: str) -> None:
    path = tmp_path / "session.ipynb"

    export_session(session_saying(text, tmp_path), path, "ipynb")

    notebook = read(path)
    nbformat.write(notebook, tmp_path / "again.ipynb")  # type: ignore[no-untyped-call]
    assert len(cells_of(notebook, "code")) == 1


def test_a_live_session_and_its_source_say_the_same(tmp_path: Path) -> None:
    with real_session(tmp_path) as session:
        once, twice = (exported(source_of(session), "ipynb") for _ in range(2))

    assert once == twice
