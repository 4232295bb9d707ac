"""A session as one HTML file that holds everything, runs nothing, and loads nothing."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import Any, assert_never

from taskweaver_ext.conversation import UNKNOWN_ROLE
from taskweaver_ext.roles.base.role import USER
from taskweaver_ext.session.blocks import (
    ArtifactOutput,
    Attached,
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
from taskweaver_ext.session.export.html_text import (
    clean_html,
    code_html,
    escaped,
    formula_html,
    markdown_html,
    picture_html,
    terminal_html,
)
from taskweaver_ext.session.export.markdown_text import is_for_readers
from taskweaver_ext.session.export.page_style import content_policy, page_style
from taskweaver_ext.session.export.source import (
    PICTURE_TYPES,
    ExportSource,
    gap_text,
    json_text,
    label_of,
    notice_label,
    picture_bytes,
    question_text,
    time_text,
)


def page_pieces(source: ExportSource) -> Iterator[str]:
    """Yield the text of the page, piece by piece."""
    title = escaped(source.title or f"Session {source.session_id}")
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(content_policy())}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>{page_style()}</style>\n</head>\n<body>\n"
        f"<header>\n<h1><bdi>{title}</bdi></h1>\n"
        f'<p>Session <span class="mono">{escaped(source.session_id)}</span>'
        f" · {time_text(source.began_at)}</p>\n</header>\n"
        "<main>\n"
    )
    for block in source.blocks():
        yield "".join(_block_html(block, source))
    yield "</main>\n<footer>Exported by taskweaver-ext</footer>\n</body>\n</html>\n"


def _block_html(block: Block, source: ExportSource) -> Iterator[str]:
    match block:
        case Message():
            yield from _message_html(block)
        case SessionNotice():
            kind = "failed" if block.kind == "error" else "notice"
            yield f'<article class="{kind}">{_who(notice_label(block), "", block.at)}'
            yield f'<div class="prose verbatim">{escaped(block.text)}</div></article>\n'
        case LateText():
            yield f'<article class="cell"><header>late output of {escaped(block.execution_id)}'
            yield f"</header>{_text_html(block.output)}</article>\n"
        case Cell():
            yield from _cell_html(block, source)
        case _:
            assert_never(block)


def _message_html(message: Message) -> Iterator[str]:
    if message.role == USER:
        look = "person"
    elif message.is_error:
        look = "failed"
    else:
        look = "answer" if message.send_to == USER else "internal"
    is_internal = look == "internal" and message.send_to != UNKNOWN_ROLE
    to = message.send_to if is_internal else ""
    yield f'<article class="{look}">{_who(message.role, to, message.at)}\n'
    for attached in message.attachments:
        yield from _attached_html(attached)
    if message.context:
        yield f"<details><summary>sent along</summary><pre>{escaped(message.context)}</pre>"
        yield "</details>\n"
    if message.text:
        yield f'<div class="prose">{markdown_html(message.text)}</div>'
    yield "</article>\n"


def _who(role: str, to: str, at: float) -> str:
    target = f'<span class="to">→ {escaped(to)}</span>' if to else ""
    moment = f"<time>{time_text(at)}</time>" if at else ""
    return f'<h2 class="who"><bdi>{escaped(role)}</bdi>{target}{moment}</h2>'


def _attached_html(attached: Attached) -> Iterator[str]:
    if is_for_readers(attached):
        name = escaped(attached.type.value.replace("_", " "))
        yield f"<details><summary>{name}</summary>"
        yield f'<div class="prose">{markdown_html(attached.text)}</div></details>\n'


def _cell_html(cell: Cell, source: ExportSource) -> Iterator[str]:
    look = {"success": "ok", "running": "", "not_run": ""}.get(cell.status, "bad")
    language, who, *state = label_of(cell).split(" · ")
    by = ' class="by-person"' if cell.by == "person" else ""
    yield f'<article class="cell {look}" id="cell-{cell.number}">\n<header>'
    yield f'<span class="mono">[{cell.number}]</span><span>{escaped(language)}</span>'
    yield f"<span{by}>{escaped(who)}</span>"
    yield f'<span class="state">{escaped(" · ".join(state))}</span></header>\n'
    yield f'<pre class="code"><code>{code_html(cell.code, cell.language)}</code></pre>\n'
    yield '<div class="outputs">\n'
    ends = [f'<pre class="error" tabindex="0">{terminal_html(cell.error)}</pre>\n'] * bool(
        cell.error
    )
    ends += [f'<div class="gap">{escaped(notice)}</div>\n' for notice in cell.notices]
    for index, output in enumerate(cell.outputs):
        if isinstance(output, TextOutput) and output.is_late:
            yield from ends
            ends = []
        yield _output_html(output, cell, f"output {cell.number}.{index + 1}", source)
    yield from ends
    yield "</div>\n</article>\n"


def _output_html(output: Output, cell: Cell, name: str, source: ExportSource) -> str:
    match output:
        case TextOutput():
            return _text_html(output)
        case LeftOut():
            return f'<div class="gap">{escaped(gap_text(output))}</div>\n'
        case LogOutput():
            words = f"[{output.level}] {output.tag}: {output.message}"
            return f'<pre class="log" tabindex="0">{escaped(words)}</pre>\n'
        case QuestionOutput():
            return f'<div class="asked"><bdi>{escaped(question_text(output))}</bdi></div>\n'
        case DisplayOutput():
            shown = _bundle_html(source.bundle_of(output), name)
            return f'<div class="shown">{shown}</div>\n' if shown else ""
        case ArtifactOutput(artifact=artifact):
            text = f'<div class="file"><bdi>{escaped(source.artifact_text(artifact))}</bdi></div>\n'
            if picture := source.picture_of(artifact, cell):
                text += f'<div class="shown">{picture_html(*picture, artifact.name)}</div>\n'
            return text
        case _:
            assert_never(output)


def _text_html(output: TextOutput) -> str:
    late = '<div class="late-mark">after its end:</div>\n' if output.is_late else ""
    words = terminal_html(output.text)
    return f'{late}<pre class="{output.stream}" tabindex="0">{words}</pre>\n'


def _bundle_html(bundle: dict[str, Any], name: str) -> str:
    """The best of what a display has, for a page."""
    if isinstance(text := bundle.get("text/html"), str) and (cleaned := clean_html(text)):
        return cleaned
    for kind in PICTURE_TYPES:
        content = picture_bytes(kind, bundle.get(kind))
        if content is not None:
            return picture_html(kind, content, name)
    if isinstance(text := bundle.get("text/markdown"), str):
        return f'<div class="prose">{markdown_html(text)}</div>'
    if isinstance(text := bundle.get("text/latex"), str):
        return formula_html(text)
    if "application/json" in bundle:
        words = code_html(json_text(bundle["application/json"]), "json")
        return f'<pre tabindex="0">{words}</pre>'
    if isinstance(text := bundle.get("text/plain"), str):
        return f'<pre tabindex="0">{terminal_html(text)}</pre>'
    return f"<p>{escaped(', '.join(bundle))}</p>" if bundle else ""
