"""What code displays, as lines of a screen: tables, Markdown, formulas, trees, pictures.

Of a display's representations the one is shown that says most to a person. Large parts are files
of the session, of which a bounded beginning is read.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from taskweaver_ext.ces.execution.artifacts import IMAGE_SUFFIXES
from taskweaver_ext.ces.execution.files_beneath import open_beneath
from taskweaver_ext.console.markdown import MAX_CHARS, Drawing
from taskweaver_ext.console.pictures import MAX_PICTURE_BYTES, MAX_ROWS, PictureDrawer
from taskweaver_ext.console.rows import Painter
from taskweaver_ext.text.html_markdown import html_to_markdown
from taskweaver_ext.text.latex_text import latex_to_text
from taskweaver_ext.text.terminal import fold, strip_terminal
from taskweaver_ext.tools.display_text import best_representation, json_tree

MAX_HTML_CHARS = 1_000_000
"""Longer HTML is cut; what is read of it still has to be drawn."""

_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_DATA_TABLE = 'class="dataframe'
"""What pandas, polars and others call a table of data."""
_TEXTS = ("text/markdown", "text/html", "text/latex", "text/plain")


class DisplayView:
    """Draws displays for one terminal."""

    def __init__(self, painter: Painter, pictures: PictureDrawer) -> None:
        self.pictures = pictures
        self.height = MAX_ROWS
        """How many rows a picture may take."""
        self.session_dir: Path | None = None
        """Where the files of the session are."""
        self._painter = painter

    def lines(self, bundle: Mapping[str, Any], files: Mapping[str, str], width: int) -> list[str]:
        """Return the lines of a display for a width; none of a picture that cannot be shown."""
        if (bundle.keys() | files.keys()) & IMAGE_SUFFIXES.keys():
            return self._picture(bundle, files, width)
        read = {kind: self._text_file(files[kind]) for kind in _TEXTS if kind in files}
        return self._text({**bundle, **{kind: text for kind, text in read.items() if text}}, width)

    def _picture(
        self, bundle: Mapping[str, Any], files: Mapping[str, str], width: int
    ) -> list[str]:
        for kind in _PICTURES:
            content = b""
            if isinstance(value := bundle.get(kind), str):
                content = _decoded(value)
            elif kind in files:
                content = self._file(files[kind], MAX_PICTURE_BYTES)
            if content and (lines := self.pictures.lines(content, width, self.height)):
                return lines
        return []

    def _text(self, bundle: Mapping[str, Any], width: int) -> list[str]:
        html = bundle.get("text/html")
        if isinstance(html, str) and _DATA_TABLE in html:
            return self._markdown(html_to_markdown(html[:MAX_HTML_CHARS]), width, is_data=True)
        kind, value = best_representation(bundle)
        match kind:
            case "markdown":
                return self._markdown(value, width)
            case "html":
                text = html_to_markdown(value[:MAX_HTML_CHARS])
                return self._markdown(text, width, is_data="<table" in value)
            case "latex":
                return strip_terminal(latex_to_text(value)).split("\n")
            case "json":
                return strip_terminal(json_tree(value)).split("\n")
            case "plain":
                text = fold(value, keep_colors=self._painter.has_color).rstrip("\n")
                return text.split("\n") if text else []

    def _markdown(self, text: str, width: int, *, is_data: bool = False) -> list[str]:
        drawing = Drawing(width, self._painter.has_color, is_framed=True, is_data=is_data)
        return drawing.rows(text[:MAX_CHARS]) if text.strip() else []

    def _text_file(self, name: str) -> str:
        return self._file(name, MAX_HTML_CHARS).decode("utf-8", "replace")

    def _file(self, name: str, max_bytes: int) -> bytes:
        """The content of a file of the session; empty when it is not there."""
        if self.session_dir is None:
            return b""
        try:
            with open(open_beneath(self.session_dir, name), "rb") as file:
                return file.read(max_bytes + 1)
        except OSError:
            return b""


def _decoded(value: str) -> bytes:
    if len(value) > 2 * MAX_PICTURE_BYTES:
        return b""
    try:
        return base64.b64decode("".join(value.split()), validate=True)
    except (binascii.Error, ValueError):
        return b""
