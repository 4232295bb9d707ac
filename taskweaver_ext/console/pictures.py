"""Pictures on a terminal: themselves where it shows them, else as blocks in two colours each.

Pictures come from code that may be hostile: they are checked, and looking at them is bounded in
memory and time. PNG needs nothing but the standard library; other kinds need Pillow.
"""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from taskweaver_ext.console.png import MAX_PIXELS, MAX_SIDE, Color, read_png, thumbnail
from taskweaver_ext.text import colors

Protocol: TypeAlias = Literal["kitty", "iterm2"]
ColorDepth: TypeAlias = Literal["none", "256", "true"]

MAX_PICTURE_BYTES = 10 << 20
"""Of a picture that is looked at at all."""
MAX_SENT_BYTES = 2 << 20
"""Of a picture that is sent to a terminal, which may be far away."""
MAX_ROWS = 20

_THUMBNAIL_SECONDS = 0.7
_LEAST_COLUMNS = 8
_PIXELS_PER_COLUMN = 8
"""A small picture is not made larger than a terminal with small letters would show it."""
_CUBE = (0, 95, 135, 175, 215, 255)
_NEARLY_WHITE = 240
_STRENGTH = 3
_MOST_SECONDS = 2.0
"""Looking at pictures takes no more time than this in one go ..."""
_SHARE = 0.25
"""... and no more than this share of it in the long run, however many pictures there are."""


@dataclass(frozen=True, slots=True)
class InlinePicture:
    """A checked picture, and the place it takes on a screen."""

    protocol: Protocol
    columns: int
    rows: int
    content: bytes


class PictureLine(str):
    """A line of output that is a picture: its text says so, where it cannot be shown."""

    picture: InlinePicture
    preview: tuple[str, ...]
    """Lines that stand for it while it may still change."""

    @staticmethod
    def of(picture: InlinePicture, preview: Sequence[str]) -> PictureLine:
        """Make the line of a picture."""
        line = PictureLine("(a picture)")
        line.picture, line.preview = picture, tuple(preview)
        return line


class PictureRow(str):
    """The frame beside a picture; a terminal's screen shows the picture behind it."""

    picture: InlinePicture

    @staticmethod
    def of(frame: str, picture: InlinePicture) -> PictureRow:
        """Make the row of a picture, which is several rows high."""
        row = PictureRow(frame)
        row.picture = picture
        return row


class PictureDrawer:
    """Draws pictures the best way that a terminal has."""

    def __init__(self, depth: ColorDepth = "none", protocol: Protocol | None = None) -> None:
        """Draw for a terminal.

        Args:
            depth: How many colours it has; none: pictures are not drawn as blocks.
            protocol: How it is sent pictures, if it shows them.
        """
        self.depth = depth
        self.protocol = protocol
        self._seconds_left = _MOST_SECONDS
        self._looked_at = 0.0

    def lines(self, content: bytes, width: int, height: int) -> list[str]:
        """Return lines that show a picture in a place; none where that cannot be."""
        if self.depth == "none" and self.protocol is None:
            return []
        if len(content) > MAX_PICTURE_BYTES or width < _LEAST_COLUMNS:
            return []
        began, used = time.monotonic(), time.thread_time()
        rested = _SHARE * (began - self._looked_at)
        self._seconds_left = min(_MOST_SECONDS, self._seconds_left + rested)
        self._looked_at = began
        if self._seconds_left <= 0:
            return []
        lines = self._drawn(content, width, max(2, min(MAX_ROWS, height)))
        self._seconds_left -= time.thread_time() - used
        return lines

    def _drawn(self, content: bytes, width: int, height: int) -> list[str]:
        sent = content
        png = read_png(content)
        if png is None:
            if not (converted := _as_small_png(content)):
                return []
            png, sent = read_png(converted), converted
            if png is None:
                return []
        columns, rows = _place(png.width, png.height, width, height)
        preview: list[str] = []
        if self.depth != "none":
            pixels = thumbnail(png, columns, 2 * rows, _THUMBNAIL_SECONDS)
            preview = half_blocks(_with_strong_lines(pixels), self.depth) if pixels else []
        if self.protocol is None or len(sent) > MAX_SENT_BYTES:
            return preview
        picture = InlinePicture(self.protocol, columns, rows, png.content())
        return [PictureLine.of(picture, preview)]


def half_blocks(pixels: Sequence[Sequence[Color]], depth: ColorDepth) -> list[str]:
    """Return pixels as rows of blocks, each of two pixels above each other."""
    parameters = _true_color if depth == "true" else _color_of_256
    rows = []
    for above, below in zip(pixels[::2], pixels[1::2], strict=True):
        runs = [
            (f"38;{parameters(one)};48;{parameters(other)}", "▀")
            for one, other in zip(above, below, strict=True)
        ]
        rows.append(colors.paint(runs))
    return rows


def _place(width: int, height: int, max_columns: int, max_rows: int) -> tuple[int, int]:
    """How many columns and rows a picture takes; a row is as high as two columns are wide."""
    columns = min(max_columns, max(1, -(-width // _PIXELS_PER_COLUMN)))
    rows = columns * height / width / 2
    if rows > max_rows:
        columns, rows = int(max_rows * 2 * width / height), max_rows
    return max(1, columns), max(1, round(rows))


def _with_strong_lines(pixels: Sequence[Sequence[Color]]) -> list[list[Color]]:
    """Darken what stands on white: thin lines of a plot are next to nothing in a mean."""
    flat = [pixel for row in pixels for pixel in row]
    is_plot = 2 * sum(min(pixel) > _NEARLY_WHITE for pixel in flat) > len(flat)
    if not is_plot:
        return [list(row) for row in pixels]
    return [
        [(_darker(red), _darker(green), _darker(blue)) for red, green, blue in row]
        for row in pixels
    ]


def _darker(value: int) -> int:
    return max(0, 255 - _STRENGTH * (255 - value))


def _true_color(color: Color) -> str:
    return "2;" + ";".join(map(str, color))


@lru_cache(maxsize=4096)
def _color_of_256(color: Color) -> str:
    """The nearest of the 216 colours and 24 greys that terminals agree upon."""
    nearest = [min(range(6), key=lambda n, value=value: abs(_CUBE[n] - value)) for value in color]  # type: ignore[misc]
    cube = tuple(_CUBE[n] for n in nearest)
    grey = max(0, min(23, round((sum(color) / 3 - 8) / 10)))
    if _distance(color, (8 + 10 * grey,) * 3) < _distance(color, cube):
        return f"5;{232 + grey}"
    red, green, blue = nearest
    return f"5;{16 + 36 * red + 6 * green + blue}"


def _distance(one: Color, other: Sequence[int]) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def _as_small_png(content: bytes) -> bytes:
    """A picture of another kind as PNG, no larger than screens need; empty without Pillow."""
    try:
        from PIL import Image
    except ImportError:
        return b""
    try:
        with Image.open(io.BytesIO(content), formats=("JPEG", "GIF", "WEBP")) as image:
            if image.width * image.height > MAX_PIXELS or max(image.size) > MAX_SIDE:
                return b""
            image.draft("RGB", (1024, 1024))  # JPEG is read smaller at once
            image.thumbnail((1024, 1024))
            small = io.BytesIO()
            image.convert("RGBA" if "A" in image.getbands() else "RGB").save(small, "PNG")
            return small.getvalue()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return b""
