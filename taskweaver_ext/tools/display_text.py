"""What a display says: its text for a model, and its data for whoever can show more.

Of a bundle of representations Markdown is the best text, then plain text, then HTML turned
into Markdown, then LaTeX. JSON, PNG images and status reports are handed on as data beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from taskweaver_ext.ces.inside.kernel.plugin_api import STATUS_MIME
from taskweaver_ext.text.html_markdown import html_to_markdown
from taskweaver_ext.text.json_tree import json_tree

_SAYS_NOTHING = "<IPython.core.display."
"""How the plain text of an object begins that has only a rich representation."""


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


def _text_of(bundle: Mapping[str, Any]) -> str:
    if isinstance(markdown := bundle.get("text/markdown"), str):
        return markdown
    plain, html = bundle.get("text/plain"), bundle.get("text/html")
    if isinstance(plain, str) and not plain.startswith(_SAYS_NOTHING):
        return plain
    if isinstance(html, str):
        return html_to_markdown(html)
    if isinstance(latex := bundle.get("text/latex"), str):
        return latex
    if "application/json" in bundle:
        return json_tree(bundle["application/json"])
    return plain if isinstance(plain, str) else ""
