"""Promised files are read from a model, and looked at after the run, without trusting either."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from taskweaver_ext.ces.execution.contract import (
    ContractProblem,
    ExecutionFailure,
    FileProblem,
    PromisedFile,
    check_contract,
    execution_failure,
    parse_contract,
)
from taskweaver_ext.ces.execution.files_beneath import FolderListing, list_files, open_beneath
from tests.support.data import DATA

VECTORS = json.loads((DATA / "07_exec_contract.json").read_text())
PRECEDENCE = json.loads((DATA / "10_exec_error_precedence.json").read_text())

NO_TURNS = {
    "qualified_other_turn": "turn_2/files/x.md",
    "missing_turn_id": "x",
}
"""Recorded where every turn has a folder of its own and paths are rewritten into it. Our paths
are relative to the session's folder and stay as they are, so these contracts are fine."""


def promised(path: str) -> PromisedFile:
    return PromisedFile(name="n", path=path, description="d", mime_type="text/plain")


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["id"])
def test_recorded_contracts_are_read_as_recorded(case: dict[str, Any]) -> None:
    parsed = parse_contract(case["contract"])

    if case["id"] in NO_TURNS:
        assert isinstance(parsed, tuple)
        assert [file.path for file in parsed] == [NO_TURNS[case["id"]]]
    elif case["expect"]["error"]:
        assert isinstance(parsed, ContractProblem)
        assert parsed.code == case["expect"]["error"]["code"]
        assert parsed.message
    else:
        [expected] = case["expect"]["normalized"]
        assert parsed == (
            PromisedFile(
                name=expected["name"],
                path=case["contract"][0]["filepath"],
                description=expected["description"],
                mime_type=expected["mime"],
                visibility=expected["visibility"],
            ),
        )


@pytest.mark.parametrize("case", PRECEDENCE["cases"], ids=lambda case: case["id"])
def test_recorded_failures_are_chosen_as_recorded(case: dict[str, Any]) -> None:
    given = case["input"]
    problems = [FileProblem(path, "missing", "was not made") for path in given["missing"]]
    problems += [FileProblem(e["filepath"], e["code"], e["message"]) for e in given["errors"]]

    failure = execution_failure(
        has_run_well=given["run_res"]["ok"],
        error=given["run_res"].get("error"),
        problems=problems,
        where="exec.tool",
    )

    assert failure == (ExecutionFailure(**case["expect"]) if case["expect"] else None)


def test_a_failed_run_wins_over_missing_files_and_they_over_wrong_ones() -> None:
    problems = [FileProblem("b", "empty", "is empty"), FileProblem("a", "missing", "was not made")]

    run = execution_failure(has_run_well=False, error="ValueError: x", problems=problems)
    missing = execution_failure(has_run_well=True, problems=problems)
    wrong = execution_failure(has_run_well=True, problems=problems[:1])

    assert run == ExecutionFailure(code="execution_failed", message="ValueError: x")
    assert missing is not None
    assert (missing.code, missing.message) == ("missing_files", "Promised files were not made: a")
    assert wrong is not None
    assert (wrong.code, wrong.message) == ("artifact_validation_failed", "b: is empty")


def test_a_contract_may_be_json_text_and_may_be_empty() -> None:
    as_text = parse_contract('[{"filepath": "./a//b.csv", "description": "d", "name": "N"}]')

    assert as_text == (
        PromisedFile(name="N", path="a/b.csv", description="d", mime_type="text/csv"),
    )
    assert parse_contract([]) == ()


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../x", "a/../../x", "a/..", "..", ".", "./", "a/", "C:/x", "a\\b", "a\0b"]
    + ["a\nb", "~/../x", "x" * 1025, "\ud800", "//x"],
)
def test_a_path_that_could_leave_the_folder_is_refused(path: str, tmp_path: Path) -> None:
    parsed = parse_contract([{"filepath": path, "description": "d"}])

    assert isinstance(parsed, ContractProblem)
    assert parsed.code == "invalid_filename"
    with pytest.raises(OSError, match="not one beneath the folder"):
        open_beneath(tmp_path, path)


@pytest.mark.parametrize(
    ("item", "code"),
    [
        ({"filepath": "x", "description": " "}, "invalid_artifact_spec"),
        ({"filepath": ["x"], "description": "d"}, "invalid_artifact_spec"),
        ({"filepath": "x", "description": "d", "mime": "text"}, "invalid_artifact_spec"),
        ({"filepath": "x", "description": "d", "mime": 7}, "invalid_artifact_spec"),
        (
            {"filepath": "x", "description": "d", "visibility": ["external"]},
            "invalid_artifact_spec",
        ),
        (7, "invalid_artifacts"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(item: object, code: str) -> None:
    parsed = parse_contract([item])

    assert isinstance(parsed, ContractProblem)
    assert parsed.code == code


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("{}", "invalid_artifacts_json"),
        ({"filepath": "x"}, "invalid_artifacts_json"),
        ("[" * 100_000, "invalid_artifacts_json"),
        ([{"filepath": "x", "description": "d"}] * 2, "invalid_artifact_spec"),
        ([{"filepath": f"{n}", "description": "d"} for n in range(101)], "invalid_artifacts"),
    ],
)
def test_a_contract_that_makes_no_sense_is_refused(value: object, code: str) -> None:
    parsed = parse_contract(value)

    assert isinstance(parsed, ContractProblem)
    assert parsed.code == code


def test_what_cannot_be_encoded_is_replaced() -> None:
    parsed = parse_contract('[{"filepath": "x", "description": "half \\ud83d a pair"}]')

    assert isinstance(parsed, tuple)
    assert parsed[0].description == "half ? a pair"


def test_after_the_run_each_file_is_kept_or_reported_by_name(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    folder = tmp_path / "session"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "kept.txt").write_text("content")
    (folder / "empty.txt").touch()
    (folder / "folder.txt").mkdir()
    (folder / "link.txt").symlink_to(outside / "secret.txt")
    (folder / "inner.txt").symlink_to(folder / "sub" / "kept.txt")
    (folder / "linked").symlink_to(outside)
    os.mkfifo(folder / "pipe.txt")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket.txt"))
    names = ["sub/kept.txt", "missing.txt", "no/such/folder.txt", "empty.txt/x", "empty.txt"]
    names += ["folder.txt", "link.txt", "inner.txt", "linked/secret.txt", "pipe.txt", "socket.txt"]

    check = check_contract(folder, [promised(name) for name in names])

    assert [file.path for file in check.kept] == ["sub/kept.txt"]
    assert {problem.path: problem.code for problem in check.problems} == {
        "missing.txt": "missing",
        "no/such/folder.txt": "missing",
        "empty.txt/x": "missing",
        "empty.txt": "empty",
        "folder.txt": "escaped",
        "link.txt": "escaped",
        "inner.txt": "escaped",
        "linked/secret.txt": "escaped",
        "pipe.txt": "escaped",
        "socket.txt": "escaped",
    }
    assert next(p.message for p in check.problems if p.path == "link.txt") == (
        "the path leads through a symbolic link"
    )


def test_what_was_made_without_being_promised_is_listed(tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_text("old")
    (tmp_path / "changed.txt").write_text("old")
    before = list_files(tmp_path)
    (tmp_path / "changed.txt").write_text("newer")
    (tmp_path / "promised.txt").write_text("x")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "extra.txt").write_text("x")
    (tmp_path / "link.txt").symlink_to("old.txt")
    (tmp_path / os.fsdecode(b"\xff.txt")).write_text("x")

    check = check_contract(tmp_path, [promised("promised.txt")], before)

    assert check.internal == ("changed.txt", "sub/extra.txt", "\ufffd.txt")
    assert check.internal_count == 3
    assert check_contract(tmp_path, [], None).internal == ()


def test_at_most_fifty_internal_files_are_named(tmp_path: Path) -> None:
    before = list_files(tmp_path)
    for number in range(60):
        (tmp_path / f"{number:02}.txt").touch()

    check = check_contract(tmp_path, [], before)

    assert check.internal == tuple(f"{number:02}.txt" for number in range(50))
    assert check.internal_count == 60


def test_without_a_whole_list_of_what_was_there_nothing_is_called_new(tmp_path: Path) -> None:
    (tmp_path / "x").touch()

    assert check_contract(tmp_path, [], FolderListing({}, is_complete=False)).internal == ()
