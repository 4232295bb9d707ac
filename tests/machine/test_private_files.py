"""What is private is for its owner alone, whatever the umask was and whatever was there before."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskweaver_ext.machine.private_files import (
    claim_private_folder,
    make_private_folder,
    open_private,
    write_private,
)

PACKAGE = Path(__file__).resolve().parents[2] / "taskweaver_ext"

MAKERS = {"mkdir", "makedirs", "write_text", "write_bytes", "touch"}
"""What makes folders and files that others may look into."""

MAY_MAKE = {
    "machine/private_files.py": "it is the place",
    "machine/owned_folders.py": "inside a temporary folder that is private",
    "llm/fetch.py": "models are no secrets, and its folder is private",
    "cli/init.py": "plugins and examples of a project; its settings are private",
    "cli/doctor.py": "inside a temporary folder that is private",
    "ces/sandbox/control_groups.py": "the system's own folders",
    "ces/kernels/sandbox/program_site.py": "inside a temporary folder that is private",
    "ces/kernels/sandbox/running_sandbox.py": "inside a temporary folder that is private",
    "ces/kernels/gateway/shared_gateway.py": "closes its folder to others itself",
    "ces/kernels/container/program_site.py": "inside a temporary folder that is private",
    "server/files_api.py": "files of the person, in their working folder, as they would make them",
}
"""Modules that make some all the same, and why nobody else can look into them, or may."""


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.usefixtures("umask")
def test_folders_with_those_above_them_and_files_are_private(tmp_path: Path) -> None:
    make_private_folder(tmp_path / "a" / "b")
    write_private(tmp_path / "a" / "b" / "file", "text")

    assert [mode_of(tmp_path / "a"), mode_of(tmp_path / "a" / "b")] == [0o700, 0o700]
    assert mode_of(tmp_path / "a" / "b" / "file") == 0o600


def test_what_is_claimed_is_closed_to_others_and_what_is_a_persons_is_not(tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
    (tmp_path / "file").touch()
    (tmp_path / "file").chmod(0o666)

    claim_private_folder(tmp_path / "ours")
    make_private_folder(tmp_path / "theirs")
    write_private(tmp_path / "file", "text")

    assert mode_of(tmp_path / "ours") == 0o700
    assert mode_of(tmp_path / "theirs") == 0o777
    assert mode_of(tmp_path / "file") == 0o600


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "target")

    with pytest.raises(OSError, match="symbolic links"):
        open_private(tmp_path / "link", os.O_WRONLY | os.O_TRUNC)

    assert (tmp_path / "target").read_text() == "kept"


def test_something_else_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(FileExistsError):
        make_private_folder(tmp_path / "file")
    with pytest.raises(NotADirectoryError):
        make_private_folder(tmp_path / "file" / "below")


def test_no_other_module_makes_folders_and_files() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "inside" not in path.parts and makes_files(ast.parse(path.read_text()))
    }

    assert found == set(MAY_MAKE)


def makes_files(tree: ast.AST) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr in MAKERS for node in ast.walk(tree))
