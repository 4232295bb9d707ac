"""What a display says: its text for a model, and its data for frontends that can show more.

Of a bundle of representations Markdown is the best text, then plain text, then HTML turned
into Markdown, then LaTeX. JSON, PNG images and status reports are handed on as data beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from taskweaver_ext.ces.execution.artifacts import IMAGE_SUFFIXES
from taskweaver_ext.ces.inside.kernel.plugin_api import STATUS_MIME
from taskweaver_ext.text.html_markdown import html_to_markdown
from taskweaver_ext.text.latex_text import latex_to_text

_SAYS_NOTHING = re.compile(
    r"<IPython\.core\.display\..*|<[^\n]{1,400} at 0x[0-9A-Fa-f]{1,16}>", re.DOTALL
)
"""The plain text of an object that has only a rich representation."""
DisplayKind: TypeAlias = Literal["markdown", "plain", "html", "latex", "json"]
MAX_TREE_LINES = 200
MAX_TREE_DEPTH = 8
MAX_TREE_TEXT = 200


@dataclass(frozen=True, slots=True)
class MarkdownOutput:
    """The text is Markdown."""

    markdown: str


@dataclass(frozen=True, slots=True)
class JsonOutput:
    """A JSON value."""

    value: Any

    def tree(self) -> str:
        """The value as an indented tree."""
        return json_tree(self.value)


@dataclass(frozen=True, slots=True)
class ImageOutput:
    """An image, as a model's API takes it."""

    mime_type: str
    base64_data: str


@dataclass(frozen=True, slots=True)
class StatusOutput:
    """What the code reported about its doing."""

    event: Mapping[str, Any]


StructuredOutput: TypeAlias = MarkdownOutput | JsonOutput | ImageOutput | StatusOutput


@dataclass(frozen=True, slots=True)
class DisplayText:
    """A display, read."""

    text: str
    """Ends with a newline, unless it is empty."""
    outputs: tuple[StructuredOutput, ...] = ()


def read_display(bundle: Mapping[str, Any]) -> DisplayText:
    """Read a bundle of representations; a status report hides all others."""
    if isinstance(status := bundle.get(STATUS_MIME), Mapping):
        return DisplayText("", (StatusOutput(status),))
    outputs: list[StructuredOutput] = []
    if "application/json" in bundle:
        outputs.append(JsonOutput(bundle["application/json"]))
    if isinstance(image := bundle.get("image/png"), str):
        outputs.append(ImageOutput("image/png", image.replace("\n", "")))
    if isinstance(markdown := bundle.get("text/markdown"), str):
        outputs.append(MarkdownOutput(markdown))
    text = _text_of(bundle)
    return DisplayText(text + "\n" if text and not text.endswith("\n") else text, tuple(outputs))


def plain_display(bundle: Mapping[str, Any]) -> str:
    """The text of a display for a terminal; none of a picture, whose file is named instead."""
    if bundle.keys() & IMAGE_SUFFIXES.keys():
        return ""
    kind, value = best_representation(bundle)
    return latex_to_text(value) + "\n" if kind == "latex" else read_display(bundle).text


def best_representation(bundle: Mapping[str, Any]) -> tuple[DisplayKind, Any]:
    """Choose what of a bundle says most in words, and tell what it is written in."""
    if isinstance(markdown := bundle.get("text/markdown"), str):
        return "markdown", markdown
    plain = bundle.get("text/plain")
    if isinstance(plain, str) and not _SAYS_NOTHING.fullmatch(plain):
        return "plain", plain
    if isinstance(html := bundle.get("text/html"), str):
        return "html", html
    if isinstance(latex := bundle.get("text/latex"), str):
        return "latex", latex
    if "application/json" in bundle:
        return "json", bundle["application/json"]
    return "plain", plain if isinstance(plain, str) else ""


def _text_of(bundle: Mapping[str, Any]) -> str:
    kind, value = best_representation(bundle)
    if kind == "html":
        return html_to_markdown(value)
    return json_tree(value) if kind == "json" else str(value)


def json_tree(value: object, *, max_lines: int = MAX_TREE_LINES) -> str:
    """Return a JSON value as an indented tree: a line for each key and item, within bounds."""
    lines: list[str] = []
    for line in _tree_lines(value, "", 0):
        if len(lines) == max_lines:
            lines.append("…")
            break
        lines.append(line)
    return "\n".join(lines)


def _tree_lines(value: object, label: str, depth: int) -> Iterator[str]:
    """The lines of a value, whose first begins with its label."""
    indentation = "  " * depth
    prefix = f"{indentation}{label}: " if label else indentation
    if not isinstance(value, dict | list) or not value:
        yield prefix + _leaf(value)
        return
    yield f"{prefix}{_size(value)}"
    if depth >= MAX_TREE_DEPTH:
        return
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield from _tree_lines(item, key if isinstance(key, str) else f"[{key}]", depth + 1)


def _size(value: dict[str, Any] | list[Any]) -> str:
    if isinstance(value, dict):
        return f"{{{len(value)} {'key' if len(value) == 1 else 'keys'}}}"
    return f"[{len(value)} {'item' if len(value) == 1 else 'items'}]"


def _leaf(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return (
        text
        if len(text) <= MAX_TREE_TEXT
        else f"{text[:MAX_TREE_TEXT]}… ({len(text):,} characters)"
    )
