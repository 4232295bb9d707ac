"""What a model is told about an execution: everything that matters, within a budget."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from taskweaver_ext.ces.execution.contract import ContractCheck
from taskweaver_ext.ces.execution.results import ExecutionArtifact, ExecutionResult, ExecutionStatus
from taskweaver_ext.text.terminal import fold
from taskweaver_ext.text.truncation import shorten_middle

MAX_RESULT_CHARS = 6000
MAX_LISTED_ARTIFACTS = 20

_STATUS_NAMES = {ExecutionStatus.ERROR: "FAILURE"}


def status_name(result: ExecutionResult) -> str:
    """Return how it ended, in the one word that TaskWeaver uses where it has one."""
    return _STATUS_NAMES.get(result.status, result.status.name)


def describe_result(
    result: ExecutionResult, check: ContractCheck | None = None, max_chars: int = MAX_RESULT_CHARS
) -> str:
    """Return the outcome of an execution as text of at most about `max_chars` characters.

    Progress bars are folded into their last state. What is too long loses its
    middle, and the place of the whole text is named.
    """
    places = result.full_output_paths
    sections = [
        ("Error", result.error or "", ""),
        ("Value of the last line", result.output, ""),
        ("Standard output", "".join(result.stdout), str(places.get("stdout", ""))),
        ("Standard error", "".join(result.stderr), str(places.get("stderr", ""))),
        ("Log", "\n".join(f"{tag} [{level}] {text}" for level, tag, text in result.log), ""),
    ]
    present = [(title, fold(text).rstrip("\n"), where) for title, text, where in sections if text]
    lines = [f"Status: {status_name(result)}"]
    room = max_chars
    for index, (title, text, where) in enumerate(present):
        # Each section may use an equal share of what those before it have left.
        share = room // (len(present) - index)
        shortened = shorten_middle(text, share, where=where)
        room -= len(shortened)
        lines.append(f"{title}:\n{shortened}")
    lines += _describe_files(result.artifact, check)
    lines += [f"Note: {notice.message}" for notice in result.notices]
    if not result.variables_survived:
        lines.append("Note: the variables of earlier code are lost; define them again.")
    if len(lines) == 1 and result.is_success:
        lines.append("It ran without any output.")
    return "\n".join(lines)


def artifact_paths(artifacts: Sequence[ExecutionArtifact], cwd: Path) -> list[str]:
    """Return where the files of an execution are; relative names are in the working directory."""
    return [str(cwd / one.file_name) for one in artifacts if one.file_name]


def _describe_files(
    artifacts: Sequence[ExecutionArtifact], check: ContractCheck | None
) -> list[str]:
    lines = [
        f"File made: {one.name} ({one.type}): {one.file_name or one.original_name}"
        for one in artifacts[:MAX_LISTED_ARTIFACTS]
    ]
    if check is None:
        return lines
    lines += [f"Promised file, made: {file.path}" for file in check.kept]
    lines += [f"Promised file, not kept: {one.path}: {one.message}" for one in check.problems]
    if check.internal:
        names = ", ".join(check.internal[:MAX_LISTED_ARTIFACTS])
        lines.append(f"Other files made or changed ({check.internal_count}): {names}")
    return lines
