"""A bundle has the variables of a session on request, and only then."""

from __future__ import annotations

import zipfile
from pathlib import Path

from taskweaver_ext.app import TaskWeaverApp

VARIABLES = "session/variables.snapshot"


def test_variables_go_along_on_request(tmp_path: Path) -> None:
    with TaskWeaverApp(tmp_path, {"workspace.workspace_path": str(tmp_path / "work")}) as app:
        session = app.get_session("s1")
        session.run_code("python", "x = [1]")
        early = session.export(tmp_path / "early.zip", "bundle", with_variables=True)
        session.snapshot()
        session.export(tmp_path / "without.zip", "bundle")
        session.export(tmp_path / "with.zip", "bundle", with_variables=True)
        imported = app.import_session(tmp_path / "with.zip")
        again = app.get_session(imported.session_id)
        again.restore_variables()
        value = again.run_code("python", "x").output

    assert any("/snapshot" in note for note in early.notes)
    with zipfile.ZipFile(tmp_path / "without.zip") as bundle:
        assert VARIABLES not in bundle.namelist()
    with zipfile.ZipFile(tmp_path / "with.zip") as bundle:
        assert VARIABLES in bundle.namelist()
    assert value == "[1]"
