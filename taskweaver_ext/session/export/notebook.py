"""A session as a Jupyter notebook (nbformat 4.5), written cell by cell.

Written by hand, not with nbformat: the format is small and fixed, a million cells cost the memory
of one, and exporting needs nothing installed. Tests validate with nbformat.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, assert_never

from taskweaver_ext.ces.execution.results import StreamName
from taskweaver_ext.session.blocks import (
    TERMINAL,
    ArtifactOutput,
    Block,
    Cell,
    DisplayOutput,
    LateText,
    LeftOut,
    LogOutput,
    Message,
    Output,
    QuestionOutput,
    SessionNotice,
    TextOutput,
)
from taskweaver_ext.session.export.markdown_text import fenced, message_markdown, notice_markdown
from taskweaver_ext.session.export.source import (
    ExportSource,
    bundle_value,
    gap_text,
    label_of,
    plain,
    question_text,
    time_text,
    whole_characters,
)

_MAGICS = {"bash": "%%bash", "javascript": "%%script node"}
"""How a notebook runs what is not Python; other languages have the program of their name."""
_EXCEPTION = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?")
_JSON_TYPE = re.compile(r"application/(.*\+)?json")


def notebook_pieces(source: ExportSource) -> Iterator[str]:
    """Yield the text of a notebook, piece by piece."""
    yield '{\n "cells": [\n'
    head = f"# {source.title or 'Session'}\n\nSession `{source.session_id}`"
    yield _json(_markdown_cell("session", head, {}))
    for number, block in enumerate(source.blocks(), 1):
        for cell in _cells_of(block, number, source):
            yield ",\n" + _json(cell)
    about = {
        "kernelspec": {
            "display_name": "Python 3 (ipykernel)",
            "language": "python",
            "name": "python3",
        },
        "language_info": {"name": "python"},
        "taskweaver": {"session_id": source.session_id, "title": source.title},
    }
    yield f'\n ],\n "metadata": {_json(about)},\n "nbformat": 4,\n "nbformat_minor": 5\n}}\n'


def _json(values: dict[str, Any]) -> str:
    """JSON in which half a character, wherever it was, cannot keep a program from saving it."""
    return whole_characters(json.dumps(values, ensure_ascii=False, default=str))


def _cells_of(block: Block, number: int, source: ExportSource) -> Iterator[dict[str, Any]]:
    match block:
        case Message():
            details = {"kind": "message", "role": block.role, "send_to": block.send_to}
            yield _markdown_cell(f"block-{number}", message_markdown(block), details)
        case SessionNotice():
            details = {"kind": block.kind}
            yield _markdown_cell(f"block-{number}", notice_markdown(block), details)
        case LateText():
            text = f"**Late output of {block.execution_id}**\n\n{fenced(block.output.text)}"
            yield _markdown_cell(f"block-{number}", text, {"kind": "late_output"})
        case Cell() if block.has_run and block.language != TERMINAL:
            yield _code_cell(block, f"block-{number}", source)
        case Cell():  # running all must not run what was refused, or had a terminal
            text = f"*{label_of(block)}*\n\n{fenced(block.code, block.language)}"
            if block.error:
                text += f"\n\n{fenced(block.error)}"
            yield _markdown_cell(f"block-{number}", text, _details_of(block))
        case _:
            assert_never(block)


def _markdown_cell(cell_id: str, text: str, details: dict[str, Any]) -> dict[str, Any]:
    return {
        "cell_type": "markdown",
        "id": cell_id,
        "metadata": {"taskweaver": details} if details else {},
        "source": text,
    }


def _code_cell(cell: Cell, cell_id: str, source: ExportSource) -> dict[str, Any]:
    code = cell.code
    if cell.language != "python":
        code = f"{_MAGICS.get(cell.language, f'%%script {cell.language}')}\n{code}"
    return {
        "cell_type": "code",
        "execution_count": cell.number,
        "id": cell_id,
        "metadata": {"tags": [cell.by], "taskweaver": _details_of(cell)},
        "outputs": list(_all_outputs(cell, source)),
        "source": code,
    }


def _details_of(cell: Cell) -> dict[str, Any]:
    return {
        "kind": "cell",
        "by": cell.by,
        "role": cell.role,
        "language": cell.language,
        "status": cell.status,
        "execution_id": cell.execution_id,
        "round_id": cell.round_id,
        "began": time_text(cell.at),
        "duration_seconds": cell.duration_seconds,
        "exit_code": cell.exit_code,
        "is_edited": cell.is_edited,
        "variables_survived": cell.variables_survived,
    }


def _all_outputs(cell: Cell, source: ExportSource) -> Iterator[dict[str, Any]]:
    """What came of a cell, in order: an error before what was written after the end."""
    ends = [_stream("stderr", f"Note: {notice}\n") for notice in cell.notices]
    if cell.error:
        ends.insert(0, _error(cell.error))
    for output in cell.outputs:
        if isinstance(output, TextOutput) and output.is_late:
            yield from ends
            ends = []
        yield from _outputs_of(output, cell, source)
    yield from ends


def _outputs_of(output: Output, cell: Cell, source: ExportSource) -> Iterator[dict[str, Any]]:
    match output:
        case TextOutput():
            yield _stream(output.stream, output.text)
        case LeftOut():
            yield _stream("stdout", gap_text(output))
        case LogOutput():
            yield _stream("stderr", f"[{output.level}] {output.tag}: {plain(output.message)}\n")
        case QuestionOutput():
            yield _stream("stdout", plain(question_text(output)) + "\n")
        case DisplayOutput():
            if data := _data_of(source.bundle_of(output)):
                yield _shown(data, output.metadata, cell.number if output.is_result else None)
        case ArtifactOutput(artifact=artifact):
            data = {"text/plain": plain(source.artifact_text(artifact))}
            if picture := source.picture_of(artifact, cell):
                kind, content = picture
                data[kind] = str(bundle_value(kind, content))
            yield _shown(data, {}, None)
        case _:
            assert_never(output)


def _stream(name: StreamName, text: str) -> dict[str, Any]:
    return {"name": name, "output_type": "stream", "text": text}


def _shown(
    data: dict[str, Any], metadata: dict[str, Any], execution_count: int | None
) -> dict[str, Any]:
    shown: dict[str, Any] = {"data": data, "metadata": metadata, "output_type": "display_data"}
    if execution_count is not None:
        shown |= {"output_type": "execute_result", "execution_count": execution_count}
    return shown


def _data_of(bundle: dict[str, Any]) -> dict[str, Any]:
    """The part of a bundle that a notebook can hold: texts, and JSON under its own types."""
    data: dict[str, Any] = {}
    for kind, value in bundle.items():
        if _JSON_TYPE.fullmatch(kind) or isinstance(value, str):
            data[kind] = value
    return data


def _error(text: str) -> dict[str, Any]:
    """An error as a notebook has it; its name is what the traceback ends with."""
    lines = plain(text).rstrip().split("\n")
    found = _EXCEPTION.fullmatch(lines[-1])
    name, value = (found[1], found[2] or "") if found else ("Error", lines[-1])
    return {"ename": name, "evalue": value, "output_type": "error", "traceback": lines}
