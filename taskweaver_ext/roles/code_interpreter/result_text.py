"""What a model is told about an execution: everything that matters, within a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

from taskweaver_ext.ces.execution.contract import ContractCheck
from taskweaver_ext.ces.execution.results import ExecutionArtifact, ExecutionResult, ExecutionStatus
from taskweaver_ext.text.terminal import fold
from taskweaver_ext.text.truncation import shorten_middle
from taskweaver_ext.tools.shown_output import ShownOutput

MAX_RESULT_CHARS = 6000
MAX_LISTED_ARTIFACTS = 20

Shorten: TypeAlias = Callable[[int], str]
"""Gives a text in so many characters."""

NOT_RUN, REFUSED = "NONE", "REFUSED"
"""What stands in the place of a status where code failed verification, or was not allowed."""
NEVER_RUN = frozenset({NOT_RUN, REFUSED})

_STATUS_NAMES = {ExecutionStatus.ERROR: "FAILURE"}


def status_name(result: ExecutionResult) -> str:
    """Return how it ended, in the one word that TaskWeaver uses where it has one."""
    return _STATUS_NAMES.get(result.status, result.status.name)


def describe_result(
    result: ExecutionResult,
    shown: ShownOutput | None = None,
    check: ContractCheck | None = None,
    max_chars: int = MAX_RESULT_CHARS,
) -> str:
    """Return the outcome of an execution as text of at most about `max_chars` characters.

    Progress bars are folded into their last state. What is too long loses its
    middle, and the place of the whole text is named.

    Args:
        shown: What it wrote and displayed, in order; None when only the result has it, where
            each stream is told for itself.
    """
    log = "\n".join(f"{tag} [{level}] {text}" for level, tag, text in result.log)
    sections = [
        *_describe_output(result, shown),
        ("Value of the last line", _shortening(result.output)),
        ("Error", _shortening(result.error or "")),
        ("Log", _shortening(log)),
    ]
    present = [(title, shorten) for title, shorten in sections if shorten(max_chars)]
    lines = [f"Status: {status_name(result)}"]
    room = max_chars
    for index, (title, shorten) in enumerate(present):
        # Each section may use an equal share of what those before it have left.
        text = shorten(room // (len(present) - index))
        room -= len(text)
        lines.append(f"{title}:\n{text}")
    lines += _describe_files(result.artifact, check)
    lines += [f"Note: {notice.message}" for notice in result.notices]
    if not result.variables_survived:
        lines.append("Note: the variables of earlier code are lost; define them again.")
    if len(lines) == 1 and result.is_success:
        lines.append("It ran without any output.")
    return "\n".join(lines)


def _describe_output(
    result: ExecutionResult, shown: ShownOutput | None
) -> list[tuple[str, Shorten]]:
    """What it wrote: in its order, if all of it was heard."""
    places = result.full_output_paths
    if shown is not None and all(notice.kind != "display_skipped" for notice in result.notices):
        return [("Output", partial(shown.text, where=", ".join(map(str, places.values()))))]
    return [
        ("Standard output", _shortening("".join(result.stdout), places.get("stdout"))),
        ("Standard error", _shortening("".join(result.stderr), places.get("stderr"))),
    ]


def _shortening(text: str, where: Path | None = None) -> Shorten:
    return partial(shorten_middle, fold(text).rstrip("\n"), where=str(where or ""))


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
