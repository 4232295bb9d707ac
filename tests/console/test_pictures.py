"""Pictures: checked, made small within bounds, and drawn as blocks or sent whole."""

from __future__ import annotations

import io
import struct
import time
import tracemalloc
import zlib
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from taskweaver_ext.console import pictures
from taskweaver_ext.console.pictures import PictureDrawer, PictureLine, PictureRow, half_blocks
from taskweaver_ext.console.png import MAX_SIDE, read_png, thumbnail
from taskweaver_ext.console.rows import wrap
from taskweaver_ext.text.terminal import row_text

SECONDS = 60.0


def saved(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def gradient(mode: str = "RGB", size: tuple[int, int] = (64, 48)) -> Image.Image:
    image = Image.new("RGB", size)
    image.putdata(
        [(x * 4 % 256, y * 5 % 256, (x + y) % 256) for y in range(size[1]) for x in range(size[0])]
    )
    return image.convert(mode)


def chunk(name: bytes, piece: bytes) -> bytes:
    return (
        struct.pack(">I", len(piece)) + name + piece + struct.pack(">I", zlib.crc32(name + piece))
    )


def png_with(width: int, height: int, data: bytes, kind: int = 6, depth: int = 8) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", data), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGB", "RGBA"])
def test_every_kind_of_png_is_made_small_as_pillow_does(mode: str) -> None:
    image = gradient(mode)
    png = read_png(saved(image))
    assert png is not None

    pixels = thumbnail(png, 16, 12, SECONDS)

    expected = image.convert("RGB").resize((16, 12), Image.Resampling.BOX)
    assert pixels is not None
    for y, row in enumerate(pixels):
        for x, pixel in enumerate(row):
            close = zip(pixel, cast(tuple[int, ...], expected.getpixel((x, y))), strict=True)
            assert all(abs(one - other) <= 2 for one, other in close)


def test_every_filter_of_rows_is_undone() -> None:
    width, rows = 4, [bytes([10, 20, 30] * 4), bytes(range(12))]
    left = bytes(rows[1][n] - (rows[1][n - 3] if n > 2 else 0) & 255 for n in range(12))
    up = bytes(rows[1][n] - rows[0][n] & 255 for n in range(12))
    mean = bytes(
        rows[1][n] - ((rows[1][n - 3] if n > 2 else 0) + rows[0][n]) // 2 & 255 for n in range(12)
    )
    for kind, filtered in enumerate([rows[1], left, up, mean]):
        data = zlib.compress(b"\0" + rows[0] + bytes([kind]) + filtered)
        png = read_png(png_with(width, 2, data, kind=2))
        assert png is not None
        pixels = thumbnail(png, 4, 2, SECONDS)
        assert pixels is not None
        assert [value for pixel in pixels[1] for value in pixel] == list(rows[1])


def test_what_is_sent_is_made_anew_of_what_the_picture_needs() -> None:
    image = gradient("P")
    content = saved(image, pnginfo=None, icc_profile=b"profile" * 100)
    png = read_png(content)
    assert png is not None

    again = png.content()

    assert b"iCCP" in content
    assert b"iCCP" not in again
    assert Image.open(io.BytesIO(again)).convert("RGB").tobytes() == image.convert("RGB").tobytes()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GIF89a",
        b"\x89PNG\r\n\x1a\n",
        saved(gradient())[:-30],
        saved(gradient()).replace(b"IDAT", b"IDAX"),
        png_with(MAX_SIDE + 1, 1, b""),
        png_with(MAX_SIDE, MAX_SIDE, b"x"),
        png_with(0, 5, b"x"),
        png_with(5, 5, b"x", kind=3),
        png_with(5, 5, b"x", depth=3),
        png_with(5, 5, b"x", kind=5),
    ],
)
def test_what_is_no_picture_or_too_large_is_not_shown(content: bytes) -> None:
    assert read_png(content) is None
    assert PictureDrawer("true").lines(content, 80, 20) == []


def test_a_picture_that_unfolds_without_end_costs_little_memory() -> None:
    packer = zlib.compressobj(9)
    data = b"".join(packer.compress(bytes(1 << 20)) for _ in range(200)) + packer.flush()
    png = read_png(png_with(4000, 4000, data))
    assert png is not None

    tracemalloc.start()
    try:
        thumbnail(png, 40, 40, 0.5)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 4 << 20


def test_a_picture_that_takes_too_long_is_given_up() -> None:
    png = read_png(saved(gradient(size=(2000, 1000))))
    assert png is not None

    assert thumbnail(png, 40, 20, 0.0) is None


def test_many_pictures_do_not_take_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "thread_time", lambda: now)
    drawer = PictureDrawer("true")

    def draw(_content: bytes, _width: int, _height: int) -> list[str]:
        nonlocal now
        now += 0.9
        return ["drawn"]

    monkeypatch.setattr(drawer, "_drawn", draw)
    shown = [bool(drawer.lines(b"x", 80, 20)) for _ in range(100)]

    assert shown[:3] == [True] * 3
    assert shown[4:].count(True) <= 2
    now += 60
    assert drawer.lines(b"x", 80, 20)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 300))
def test_damaged_pictures_are_harmless(noise: bytes, place: int) -> None:
    content = saved(gradient(size=(8, 8)))
    damaged = content[:place] + noise + content[place + len(noise) :]
    PictureDrawer("256", "kitty").lines(damaged, 40, 10)
    png = read_png(png_with(8, 8, zlib.compress(noise)))
    assert png is not None
    thumbnail(png, 4, 4, SECONDS)


@pytest.mark.parametrize(("width", "height"), [(80, 20), (40, 20), (20, 5)])
@pytest.mark.parametrize("size", [(640, 480), (10, 2000), (2000, 10), (1, 1)])
def test_blocks_fit_their_place(width: int, height: int, size: tuple[int, int]) -> None:
    rows = PictureDrawer("true").lines(saved(gradient(size=size)), width, height)

    assert 0 < len(rows) <= height
    assert all(len(wrap(row, width)) == 1 for row in rows)
    assert [row_text(row) for row in rows] == rows


def test_blocks_are_two_pixels_each_in_the_colors_there_are() -> None:
    pixels = [[(255, 0, 0)], [(8, 8, 8)]]

    assert half_blocks(pixels, "true") == ["\x1b[38;2;255;0;0;48;2;8;8;8m▀\x1b[0m"]
    assert half_blocks(pixels, "256") == ["\x1b[38;5;196;48;5;232m▀\x1b[0m"]


def test_thin_lines_on_white_are_to_be_seen() -> None:
    image = Image.new("RGB", (400, 400), "white")
    for x in range(400):
        image.putpixel((x, 201), (0, 0, 200))

    rows = PictureDrawer("true").lines(saved(image), 40, 20)

    assert "48;2;180;180" in rows[10] or "38;2;180;180" in rows[10]


@pytest.mark.parametrize("kind", ["JPEG", "GIF", "WEBP"])
def test_other_kinds_are_shown_with_pillow_and_sent_as_png(kind: str) -> None:
    content = saved(gradient(), kind)

    [line] = PictureDrawer("true", "kitty").lines(content, 40, 10)

    assert isinstance(line, PictureLine)
    assert read_png(line.picture.content) is not None
    assert len(line.preview) == line.picture.rows
    assert PictureDrawer("true").lines(content, 40, 10)


def test_a_large_picture_is_not_sent_but_shown_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "MAX_SENT_BYTES", 100)

    lines = PictureDrawer("true", "kitty").lines(saved(gradient()), 40, 10)

    assert not any(isinstance(line, PictureLine) for line in lines)
    assert lines


def test_without_colors_only_a_terminal_that_shows_pictures_gets_one() -> None:
    content = saved(gradient())

    assert PictureDrawer("none").lines(content, 40, 10) == []
    [line] = PictureDrawer("none", "iterm2").lines(content, 40, 10)
    assert isinstance(line, PictureLine)
    assert PictureRow.of(" │ ", line.picture) == " │ "
