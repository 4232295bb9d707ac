"""A session as Markdown: to be read as it is, or on any page that shows Markdown."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, assert_never

from taskweaver_ext.session.blocks import (
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
from taskweaver_ext.session.export.markdown_text import (
    escaped_words,
    fenced,
    inline_code,
    message_markdown,
    notice_markdown,
    quoted,
)
from taskweaver_ext.session.export.source import (
    PICTURE_TYPES,
    ExportSource,
    gap_text,
    json_text,
    label_of,
    picture_bytes,
    question_text,
)
from taskweaver_ext.text.html_markdown import html_to_markdown

AddPicture: TypeAlias = Callable[[str, bytes], str]
"""Takes a picture's name and content, and returns the address to show it from."""


def markdown_pieces(source: ExportSource, add_picture: AddPicture) -> Iterator[str]:
    """Yield the text of a Markdown file, piece by piece."""
    title = escaped_words(source.title) or "Session"
    yield f"# {title}\n\nSession {inline_code(source.session_id)}\n"
    for block in source.blocks():
        if text := _block_text(block, source, add_picture):
            yield f"\n{text}\n"


def data_address(name: str, content: bytes) -> str:
    """Return an address that holds the picture itself, where no file can be beside the text."""
    kind = mimetypes.guess_type(name)[0] or "image/png"
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def _block_text(block: Block, source: ExportSource, add_picture: AddPicture) -> str:
    match block:
        case Message():
            heading = "---\n\n" if block.role == "User" else ""
            return heading + message_markdown(block)
        case SessionNotice():
            return notice_markdown(block)
        case LateText():
            late = inline_code(block.execution_id)
            return f"*late output of {late}*\n\n{fenced(block.output.text, 'text')}"
        case Cell():
            return _cell_text(block, source, add_picture)
        case _:
            assert_never(block)


def _cell_text(cell: Cell, source: ExportSource, add_picture: AddPicture) -> str:
    parts = [f"**[{cell.number}]** {escaped_words(label_of(cell))}"]
    parts.append(fenced(cell.code, cell.language))
    ends = [fenced(cell.error, "text")] if cell.error else []
    ends += [f"*Note:* {escaped_words(notice)}" for notice in cell.notices]
    for index, output in enumerate(cell.outputs):
        if isinstance(output, TextOutput) and output.is_late:
            parts += ends
            ends = []
        name = f"{cell.number}-{index + 1}"
        parts.append(_output_text(output, cell, name, source, add_picture))
    return "\n\n".join(part for part in [*parts, *ends] if part)


def _output_text(
    output: Output, cell: Cell, name: str, source: ExportSource, add_picture: AddPicture
) -> str:
    match output:
        case TextOutput():
            label = "*late*\n\n" if output.is_late else ""
            label += "*stderr*\n\n" if output.stream == "stderr" else ""
            return f"{label}{fenced(output.text, 'text')}"
        case LeftOut():
            return fenced(gap_text(output), "text")
        case LogOutput():
            return inline_code(f"[{output.level}] {output.tag}: {output.message}")
        case QuestionOutput():
            return f"*asked:* {inline_code(question_text(output))}"
        case DisplayOutput():
            return _bundle_text(source.bundle_of(output), name, add_picture)
        case ArtifactOutput(artifact=artifact):
            text = inline_code(source.artifact_text(artifact))
            if picture := source.picture_of(artifact, cell):
                text += f"\n\n{_picture(name, *picture, add_picture)}"
            return text
        case _:
            assert_never(output)


def _bundle_text(bundle: dict[str, Any], name: str, add_picture: AddPicture) -> str:
    """The best of what a display has, for Markdown."""
    for kind in PICTURE_TYPES:
        content = picture_bytes(kind, bundle.get(kind))
        if content is not None:
            return _picture(name, kind, content, add_picture)
    if isinstance(text := bundle.get("text/markdown"), str):
        return quoted(text)
    if isinstance(text := bundle.get("text/html"), str) and (table := html_to_markdown(text)):
        return quoted(table)
    if isinstance(text := bundle.get("text/latex"), str):
        return fenced(text, "latex")
    if "application/json" in bundle:
        return fenced(json_text(bundle["application/json"]), "json")
    if isinstance(text := bundle.get("text/plain"), str):
        return fenced(text, "text")
    return f"*shown:* {inline_code(', '.join(bundle))}" if bundle else ""


def _picture(name: str, kind: str, content: bytes, add_picture: AddPicture) -> str:
    suffix = mimetypes.guess_extension(kind) or ".bin"
    return f"![{name}]({add_picture(name + suffix, content)})"
