"""The files that an execution promises to make, and whether it kept its word.

A model names the files before its code runs; people see the list, and after
the run each file is looked at again. Paths are relative to the session's
folder. They are written by a model and created by its code, so neither is
believed (`files_beneath.py`).
"""

from __future__ import annotations

import functools
import json
import mimetypes
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeAlias, TypeGuard

from taskweaver_ext.ces.execution.files_beneath import (
    FolderListing,
    list_files,
    open_beneath,
    path_parts,
)

MAX_PROMISED_FILES = 100
MAX_INTERNAL_FILES = 50

Visibility: TypeAlias = Literal["external", "internal"]

_MIME_TYPE = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}", re.ASCII)
_FAILURE_CODE = re.compile(r"([a-z][a-z0-9_]{0,63}): +(\S.*)", re.DOTALL)
_MAX_MESSAGE_LENGTH = 2000

# Python's own table lacks these; the machine's tables differ from one to the next.
_MORE_MIME_TYPES = {
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".ipynb": "application/x-ipynb+json",
    ".jsonl": "application/jsonl",
    ".log": "text/plain",
    ".md": "text/markdown",
    ".parquet": "application/vnd.apache.parquet",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".toml": "application/toml",
    ".webp": "image/webp",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PromisedFile:
    """A file that the code is going to make."""

    name: str
    path: str
    """Relative to the session's folder, with `/` between its parts."""
    description: str
    mime_type: str
    visibility: Visibility = "external"
    """Whether it is for people, or for later code only."""


@dataclass(frozen=True, slots=True)
class ContractProblem:
    """Why a contract cannot be accepted."""

    code: Literal[
        "missing_artifacts",
        "invalid_artifacts_json",
        "invalid_artifacts",
        "invalid_artifact_spec",
        "invalid_filename",
    ]
    message: str


@dataclass(frozen=True, slots=True)
class FileProblem:
    """Why a promised file is not what was promised."""

    path: str
    code: str
    """`missing`, `empty` or `escaped`; other checks of files add their own."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractCheck:
    """What became of a contract."""

    kept: tuple[PromisedFile, ...]
    problems: tuple[FileProblem, ...]
    internal: tuple[str, ...] = ()
    """Files that were made or changed without being promised, at most `MAX_INTERNAL_FILES`."""
    internal_count: int = 0
    """How many they are altogether."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionFailure:
    """Why an execution failed, for people, panels and the model."""

    code: str
    message: str
    where: str = "exec_execution"
    managed: bool = True
    """Whether it was expected and handled, so that the session goes on."""


def parse_contract(value: object) -> tuple[PromisedFile, ...] | ContractProblem:
    """Read a contract: a list of objects, or the JSON text of one.

    Each object has `filepath` and `description`, and may have `name`, `mime`
    and `visibility`. An empty list promises nothing, and is a contract.
    """
    if value is None:
        return ContractProblem("missing_artifacts", "The contract (a list of files) is missing.")
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, list):
        message = "The contract must be a list of files, or a JSON array."
        return ContractProblem("invalid_artifacts_json", message)
    if len(value) > MAX_PROMISED_FILES:
        message = f"The contract promises more than {MAX_PROMISED_FILES} files."
        return ContractProblem("invalid_artifacts", message)
    promised: dict[str, PromisedFile] = {}
    for item in value:
        if not isinstance(item, dict):
            message = "Each file of the contract must be an object."
            return ContractProblem("invalid_artifacts", message)
        file = _parse_file(item)
        if isinstance(file, ContractProblem):
            return file
        if file.path in promised:
            message = f"The contract promises {file.path!r} twice."
            return ContractProblem("invalid_artifact_spec", message)
        promised[file.path] = file
    return tuple(promised.values())


def check_contract(
    folder: Path, promised: Sequence[PromisedFile], before: FolderListing | None = None
) -> ContractCheck:
    """Look at what became of the promised files, and at what else was made.

    Args:
        before: The folder before the run; without it no internal files are listed.
    """
    kept: list[PromisedFile] = []
    problems: list[FileProblem] = []
    for file in promised:
        problem = _check_file(folder, file.path)
        if problem is None:
            kept.append(file)
        else:
            problems.append(problem)
    others = _changed_files(folder, before) - {file.path for file in promised}
    return ContractCheck(
        kept=tuple(kept),
        problems=tuple(problems),
        internal=tuple(map(_printable, sorted(others)[:MAX_INTERNAL_FILES])),
        internal_count=len(others),
    )


def execution_failure(
    *,
    has_run_well: bool,
    error: str | None = None,
    problems: Sequence[FileProblem] = (),
    where: str = "exec_execution",
) -> ExecutionFailure | None:
    """Choose the failure to report: of the run, then of missing files, then of wrong ones.

    An error of the form `some_code: words` carries its own code.
    """
    if not has_run_well:
        code, message = "execution_failed", (error or "").strip()
        if coded := _FAILURE_CODE.fullmatch(message):
            code, message = coded.groups()
        message = message[:_MAX_MESSAGE_LENGTH] or "Execution failed (non-zero exit)"
        return ExecutionFailure(code=code, message=message, where=where)
    missing = [problem.path for problem in problems if problem.code == "missing"]
    if missing:
        message = f"Promised files were not made: {', '.join(missing)}"
        return ExecutionFailure(code="missing_files", message=message, where=where)
    if problems:
        message = "; ".join(f"{problem.path}: {problem.message}" for problem in problems)
        return ExecutionFailure(code="artifact_validation_failed", message=message, where=where)
    return None


def _parse_file(item: Mapping[str, Any]) -> PromisedFile | ContractProblem:
    path, description = item.get("filepath"), item.get("description")
    if not _is_text(path) or not _is_text(description):
        message = "Each file of the contract needs a filepath and a description."
        return ContractProblem("invalid_artifact_spec", message)
    visibility = item.get("visibility", "external")
    if visibility not in ("external", "internal"):
        message = "The visibility of a file is either 'external' or 'internal'."
        return ContractProblem("invalid_artifact_spec", message)
    parts = path_parts(path)
    if parts is None:
        message = (
            f"{path[:200]!r} is no path for a promised file: it must be relative "
            "and stay inside the session's folder."
        )
        return ContractProblem("invalid_filename", message)
    name = item.get("name") or PurePosixPath(path).stem
    mime_type = item.get("mime") or _guess_mime_type(parts[-1])
    if not _is_text(name) or not _is_text(mime_type) or not _MIME_TYPE.fullmatch(mime_type):
        message = f"The name or the MIME type of {path[:200]!r} makes no sense."
        return ContractProblem("invalid_artifact_spec", message)
    return PromisedFile(
        name=_encodable(name),
        path="/".join(parts),
        description=_encodable(description),
        mime_type=mime_type,
        visibility=visibility,
    )


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value.strip())


def _encodable(text: str) -> str:
    """Return a text with a mark in place of half surrogate pairs, which JSON lets through."""
    return text.encode(errors="replace").decode()


@functools.cache
def _mime_table() -> mimetypes.MimeTypes:
    return mimetypes.MimeTypes()


def _guess_mime_type(file_name: str) -> str:
    suffix = PurePosixPath(file_name).suffix.lower()
    known = _MORE_MIME_TYPES.get(suffix) or _mime_table().types_map[True].get(suffix)
    return known or "application/octet-stream"


def _printable(path: str) -> str:
    """Return a file name with a mark in place of bytes that are no text."""
    return os.fsencode(path).decode(errors="replace")


def _check_file(folder: Path, path: str) -> FileProblem | None:
    try:
        descriptor = open_beneath(folder, path)
    except (FileNotFoundError, NotADirectoryError):
        return FileProblem(path, "missing", "was not made")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        return FileProblem(path, "escaped", reason[0].lower() + reason[1:])
    try:
        is_empty = os.fstat(descriptor).st_size == 0
    finally:
        os.close(descriptor)
    return FileProblem(path, "empty", "is empty") if is_empty else None


def _changed_files(folder: Path, before: FolderListing | None) -> set[str]:
    if before is None or not before.is_complete:
        return set()  # what was there before is not known
    after = list_files(folder).files
    return {path for path, state in after.items() if before.files.get(path) != state}
