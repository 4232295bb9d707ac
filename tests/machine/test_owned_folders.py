"""Folders say whose they are; what the dead have left is removed, and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from taskweaver_ext.machine import owned_folders
from taskweaver_ext.machine.owned_folders import (
    GivenFolder,
    Owner,
    disown_folder,
    make_owned_folder,
    remove_abandoned_folders,
)


def folder_of_the_dead(parent: Path) -> Path:
    """A folder whose process has ended without removing it."""
    code = """
import pathlib, sys
from taskweaver_ext.machine.owned_folders import make_owned_folder
print(make_owned_folder("test", pathlib.Path(sys.argv[1])))
"""
    made = subprocess.run([sys.executable, "-c", code, parent], capture_output=True, check=True)
    return Path(made.stdout.decode().strip())


def test_what_the_dead_have_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    abandoned, disowned = folder_of_the_dead(tmp_path), folder_of_the_dead(tmp_path)
    disown_folder(disowned)
    others = [
        make_owned_folder("mine", tmp_path),
        tmp_path / "taskweaver-unmarked",
        tmp_path / "of-another-program",
    ]
    for folder in others[1:]:
        folder.mkdir()
    (others[2] / ".owner").write_text((abandoned / ".owner").read_text())
    (tmp_path / "taskweaver-link").symlink_to(others[2])

    removed = remove_abandoned_folders([tmp_path, tmp_path / "nowhere"])

    assert removed == [abandoned]
    assert not abandoned.exists()
    assert all(folder.is_dir() for folder in (*others, disowned))
    shutil.rmtree(others[0])


@pytest.mark.parametrize("content", ["", "nonsense", "a/b/c/d/e", "x" * 10_000])
def test_an_owner_that_is_none_keeps_its_folder(tmp_path: Path, content: str) -> None:
    folder = folder_of_the_dead(tmp_path)
    (folder / ".owner").write_text(content)

    assert remove_abandoned_folders([tmp_path]) == []


def test_an_owner_file_that_is_a_pipe_does_not_hang_us(tmp_path: Path) -> None:
    folder = folder_of_the_dead(tmp_path)
    (folder / ".owner").unlink()
    os.mkfifo(folder / ".owner")

    assert remove_abandoned_folders([tmp_path]) == []


def test_a_folder_of_our_own_is_removed_and_a_given_one_is_not(tmp_path: Path) -> None:
    own, given = GivenFolder(None), GivenFolder(tmp_path)

    for folder in (own, given):
        assert folder.path.is_dir()
        folder.close()

    assert not own.path.exists()
    assert tmp_path.is_dir()


def test_a_folder_of_our_own_is_not_removed_at_the_end_of_a_fork() -> None:
    program = """
import os, sys
from taskweaver_ext.machine.owned_folders import GivenFolder
folder = GivenFolder(None)
if not os.fork():
    sys.exit()
os.wait()
print(folder.path.is_dir())
folder.close()
print(folder.path.is_dir())
"""

    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )

    assert ended.stdout == "True\nFalse\n", ended.stderr


def test_this_process_is_alive() -> None:
    owner = Owner.this_process()

    assert Owner.parse(str(owner)) == owner
    assert not owner.is_dead()


@pytest.mark.parametrize(
    ("changes", "is_dead"),
    [
        ({"started": "1"}, True),  # another process has its number now
        ({"pid": 2**22 + 1}, True),
        ({"boot": "earlier"}, True),
        ({"machine": "another", "boot": "another"}, False),
        ({"machine": "a copy of this one", "pid": 2**22 + 1}, False),
        ({"namespace": "1", "pid": 2**22 + 1}, False),  # in another container
    ],
)
def test_only_who_is_certainly_gone_counts_as_dead(
    changes: dict[str, str | int],
    is_dead: bool,
    machine_ids: Path,
) -> None:
    machine_ids.write_text("0123456789abcdef\n")
    owner = replace(Owner.this_process(), **changes)  # type: ignore[arg-type]

    assert owner.is_dead() is is_dead


@pytest.mark.parametrize("content", [None, "", "uninitialized\n"])
def test_a_machine_without_an_identity_does_not_judge_what_was_before_its_start(
    content: str | None, machine_ids: Path
) -> None:
    if content is not None:
        machine_ids.write_text(content)
    owner = Owner.this_process()

    assert not replace(owner, boot="earlier").is_dead()
    assert replace(owner, started="1").is_dead()


def test_machines_with_the_same_id_are_told_apart_by_their_names(
    machine_ids: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine_ids.write_text("0123456789abcdef\n")
    here = replace(Owner.this_process(), boot="earlier")
    monkeypatch.setattr("platform.node", lambda: "another")

    assert not here.is_dead()
    assert "0123456789abcdef" not in str(here)


def test_what_another_machine_has_in_a_shared_folder_is_left_alone(tmp_path: Path) -> None:
    folder = folder_of_the_dead(tmp_path)
    owner = Owner.parse((folder / ".owner").read_text())
    assert owner is not None
    (folder / ".owner").write_text(str(replace(owner, machine="another", boot="another")))

    assert remove_abandoned_folders([tmp_path]) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_root_removes_what_it_gave_to_another_user_and_nothing_of_that_users(
    tmp_path: Path,
) -> None:
    given, of_another = folder_of_the_dead(tmp_path), folder_of_the_dead(tmp_path)
    for path in (given, of_another, of_another / ".owner"):
        os.chown(path, 1234, 1234)

    assert remove_abandoned_folders([tmp_path]) == [given]


@pytest.fixture
def machine_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the machine's identity is read; there is none yet."""
    monkeypatch.setattr(owned_folders, "_MACHINE_IDS", (tmp_path / "machine-id",))
    return tmp_path / "machine-id"


@pytest.mark.parametrize("label", ["", "x", "a/b/c/d/e", "a/b/c/1", "a/b/c/7/d/e"])
def test_a_label_that_is_not_ours_names_no_owner(label: str) -> None:
    assert Owner.parse(label) is None
