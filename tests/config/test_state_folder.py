"""What a project keeps is kept for it alone, outside of it, and what it has is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskweaver_ext.config.loading import load
from taskweaver_ext.config.state_folder import state_folder


def test_two_projects_of_one_name_have_two_folders(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path / "state")}

    one, other = (state_folder(tmp_path / name / "project", environ) for name in ("a", "b"))

    assert one != other
    assert one.parent == other.parent == tmp_path / "state" / "taskweaver-ext"
    assert one.name.startswith("project-")


def test_a_project_has_one_folder_by_whatever_way_it_is_reached(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")

    assert state_folder(tmp_path / "link", {}) == state_folder(tmp_path / "real", {})


@pytest.mark.parametrize("home", ["", "relative/path"])
def test_without_a_place_for_state_it_is_below_the_home_folder(home: str, tmp_path: Path) -> None:
    folder = state_folder(tmp_path, {"XDG_STATE_HOME": home})

    assert folder.is_relative_to(Path.home() / ".local" / "state")


@pytest.mark.parametrize("name", ["..", ".hidden", "a b\n/c", "x" * 300, "/"])
def test_whatever_a_project_is_called_its_folder_has_a_plain_name(name: str) -> None:
    folder = state_folder(Path("/some") / name, {"XDG_STATE_HOME": "/state"})

    assert folder.parent == Path("/state/taskweaver-ext")
    assert len(folder.name) < 60
    assert folder.name[0] not in ".-"


def test_what_a_project_has_at_the_old_places_stays_in_use(tmp_path: Path) -> None:
    (tmp_path / "workspace" / "sessions").mkdir(parents=True)
    (tmp_path / "logs").mkdir()
    (tmp_path / ".taskweaver_history").touch()

    loaded = load(tmp_path, environ={})

    assert loaded.workspace.workspace_path == tmp_path / "workspace"
    assert loaded.workspace.keep_days == 0
    assert loaded.logging.log_folder == tmp_path / "logs"
    assert loaded.history_file == tmp_path / ".taskweaver_history"


def test_an_old_workspace_gives_way_to_one_that_is_set(tmp_path: Path) -> None:
    (tmp_path / "workspace" / "sessions").mkdir(parents=True)

    loaded = load(tmp_path, overrides={"workspace.workspace_path": "mine"}, environ={})

    assert loaded.workspace.workspace_path == tmp_path / "mine"
    assert loaded.workspace.keep_days == 90


def test_what_is_new_is_kept_together_outside_of_the_project(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()

    loaded = load(project, environ={"XDG_STATE_HOME": str(tmp_path / "state")})

    place = loaded.workspace.workspace_path
    assert loaded.logging.log_folder == place / "logs"
    assert loaded.history_file == place / "history"
    assert not place.is_relative_to(project)
