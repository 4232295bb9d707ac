"""PNG pictures, checked and made small: with the standard library, in bounded memory and time.

Pictures come from code that may be hostile. A picture is read row by row, so that one which
unfolds to gigabytes costs no more memory than a row of it, and reading ends at a limit of time.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import TypeAlias

MAX_SIDE = 10_000
MAX_PIXELS = 16_000_000

Color: TypeAlias = tuple[int, int, int]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_SHOWN_CHUNKS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_WHITE = 255
"""What is seen through a picture; black words on nothing can be read then."""


@dataclass(frozen=True, slots=True)
class Png:
    """A picture whose parts are as they should be; its pixels have not been looked at."""

    width: int
    height: int
    depth: int
    kind: int
    is_interlaced: bool
    palette: bytes
    transparency: bytes
    data: tuple[bytes, ...]

    def content(self) -> bytes:
        """A file that shows the same, made by us of what is needed for that alone."""
        header = struct.pack(
            ">IIBBBBB", self.width, self.height, self.depth, self.kind, 0, 0, self.is_interlaced
        )
        parts = [(b"IHDR", header), (b"PLTE", self.palette), (b"tRNS", self.transparency)]
        parts += [(b"IDAT", piece) for piece in self.data]
        return (
            _SIGNATURE
            + b"".join(_chunk(name, piece) for name, piece in parts if piece)
            + _chunk(b"IEND", b"")
        )


def read_png(content: bytes) -> Png | None:
    """Check the parts of a picture; None when it is none, or larger than any screen needs."""
    if not content.startswith(_SIGNATURE):
        return None
    parts: dict[bytes, list[bytes]] = {}
    try:
        for name, piece in _chunks(content):
            parts.setdefault(name, []).append(piece)
        [header] = parts[b"IHDR"]
        width, height, depth, kind, packing, filtering, interlacing = struct.unpack(
            ">IIBBBBB", header
        )
    except (KeyError, ValueError, struct.error):
        return None
    is_known = depth in _DEPTHS.get(kind, ()) and packing == filtering == 0 and interlacing < 2
    is_bounded = 0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE and width * height <= MAX_PIXELS
    palette = b"".join(parts.get(b"PLTE", ()))
    if not is_known or not is_bounded or b"IDAT" not in parts or (kind == 3 and not palette):
        return None
    transparency = b"".join(parts.get(b"tRNS", ()))[:256]
    data = tuple(parts[b"IDAT"])
    return Png(width, height, depth, kind, bool(interlacing), palette[:768], transparency, data)


def thumbnail(png: Png, width: int, height: int, seconds: float) -> list[list[Color]] | None:
    """Return the picture in so many pixels, each the mean of those it stands for.

    None when it is damaged, interlaced, or takes more than so many seconds of our time.
    """
    if png.is_interlaced:
        return None
    deadline = time.thread_time() + seconds
    edges = [column * png.width // width for column in range(width + 1)]
    sums = [[0] * 4 for _ in range(width)]
    pixels: list[list[Color]] = []
    count = 0
    try:
        for number, row in enumerate(_rows(png), 1):
            if time.thread_time() > deadline:
                return None
            _add_row(sums, _as_rgba(png, row), edges)
            count += 1
            if number * height // png.height > len(pixels):
                means = [_mean(total, max(1, edges[n + 1] - edges[n]) * count)
                         for n, total in enumerate(sums)]  # fmt: skip
                # A picture with fewer rows than pixels has some of them more than once.
                pixels += [means] * (number * height // png.height - len(pixels))
                sums = [[0] * 4 for _ in range(width)]
                count = 0
    except (ValueError, zlib.error):
        return None
    return pixels if len(pixels) == height else None


def _chunk(name: bytes, piece: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(name + piece))
    return struct.pack(">I", len(piece)) + name + piece + check


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the chunks that make the picture; raises ValueError where they are damaged."""
    position = len(_SIGNATURE)
    while position < len(content):
        if position + 12 > len(content):
            raise ValueError("it is cut off")
        (size,) = struct.unpack_from(">I", content, position)
        name = content[position + 4 : position + 8]
        piece = content[position + 8 : position + 8 + size]
        end = position + 8 + size
        if len(piece) != size or end + 4 > len(content):
            raise ValueError("it is cut off")
        if name in _SHOWN_CHUNKS:
            if struct.unpack_from(">I", content, end)[0] != zlib.crc32(name + piece):
                raise ValueError("it is damaged")
            yield name, piece
        position = end + 4
        if name == b"IEND":
            return


def _rows(png: Png) -> Iterator[bytes]:
    """Yield the rows of pixels as bytes, unfiltered."""
    bits = png.depth * _CHANNELS[png.kind]
    size = (png.width * bits + 7) // 8
    step = max(1, bits // 8)
    before = bytes(size)
    unpacker = zlib.decompressobj()
    pieces = iter(png.data)
    waiting = b""
    for _ in range(png.height):
        row = bytearray()
        while len(row) <= size:
            if not waiting:
                waiting = unpacker.unconsumed_tail or next(pieces, b"")
                if not waiting:
                    raise ValueError("it is cut off")
            row += unpacker.decompress(waiting, size + 1 - len(row))
            waiting = unpacker.unconsumed_tail
        before = _unfiltered(row[0], bytes(row[1:]), before, step)
        yield before


def _unfiltered(kind: int, row: bytes, above: bytes, step: int) -> bytes:
    match kind:
        case 0:
            return row
        case 1:
            return _sums_from_left(row, step)
        case 2:
            return _sums_from_above(row, above)
        case 3:
            return _averages(row, above, step)
        case 4:
            return _paeth(row, above, step)
    raise ValueError("it is damaged")


def _sums_from_left(row: bytes, step: int) -> bytes:
    result = bytearray(len(row))
    for channel in range(step):
        sums = accumulate(row[channel::step], lambda left, value: (left + value) & 255)
        result[channel::step] = bytes(sums)
    return bytes(result)


def _sums_from_above(row: bytes, above: bytes) -> bytes:
    """Add byte by byte, all of them at once: as numbers whose top bits are added apart."""
    a, b = int.from_bytes(row, "little"), int.from_bytes(above, "little")
    low = int.from_bytes(b"\x7f" * len(row), "little")
    total = ((a & low) + (b & low)) ^ ((a ^ b) & ~low)
    return (total & ((1 << 8 * len(row)) - 1)).to_bytes(len(row), "little")


def _averages(row: bytes, above: bytes, step: int) -> bytes:
    result = bytearray(len(row))
    for channel in range(step):
        left = 0
        values = []
        for value, up in zip(row[channel::step], above[channel::step], strict=True):
            left = (value + (left + up >> 1)) & 255
            values.append(left)
        result[channel::step] = bytes(values)
    return bytes(result)


def _paeth(row: bytes, above: bytes, step: int) -> bytes:
    result = bytearray(len(row))
    for channel in range(step):
        left = corner = 0
        values = []
        for value, up in zip(row[channel::step], above[channel::step], strict=True):
            from_left, from_up = up - corner, left - corner
            from_corner = abs(from_left + from_up)
            from_left, from_up = abs(from_left), abs(from_up)
            if from_left > from_up or from_left > from_corner:
                left = up if from_up <= from_corner else corner
            left = (value + left) & 255
            corner = up
            values.append(left)
        result[channel::step] = bytes(values)
    return bytes(result)


def _as_rgba(png: Png, row: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """The red, green, blue and alpha of each pixel of a row."""
    if png.depth == 16:
        row = row[::2]
    elif png.depth < 8:
        row = _spread(row, png.depth, png.width, is_scaled=png.kind == 0)
    opaque = bytes([255]) * png.width
    match png.kind:
        case 0:
            return row, row, row, opaque
        case 2:
            return row[0::3], row[1::3], row[2::3], opaque
        case 4:
            return row[0::2], row[0::2], row[0::2], row[1::2]
        case 6:
            return row[0::4], row[1::4], row[2::4], row[3::4]
    padded = png.palette + bytes(768 - len(png.palette))
    alphas = png.transparency + bytes([255]) * (256 - len(png.transparency))
    red, green, blue = (row.translate(padded[channel::3]) for channel in range(3))
    return red, green, blue, row.translate(alphas)


def _spread(row: bytes, depth: int, width: int, *, is_scaled: bool) -> bytes:
    """One byte for each pixel of which several are in a byte."""
    return b"".join(map(_pixels_of_bytes(depth, is_scaled).__getitem__, row))[:width]


@cache
def _pixels_of_bytes(depth: int, is_scaled: bool) -> list[bytes]:
    most = (1 << depth) - 1
    factor = 255 // most if is_scaled else 1
    return [
        bytes((value >> 8 - depth * (n + 1) & most) * factor for n in range(8 // depth))
        for value in range(256)
    ]


def _add_row(
    sums: list[list[int]], channels: tuple[bytes, bytes, bytes, bytes], edges: list[int]
) -> None:
    for number, total in enumerate(sums):
        start, end = edges[number], max(edges[number + 1], edges[number] + 1)
        for channel in range(4):
            total[channel] += sum(channels[channel][start:end])


def _mean(total: list[int], count: int) -> Color:
    red, green, blue, alpha = (value / count for value in total)
    seen = alpha / 255
    through = _WHITE * (1 - seen)
    return (
        min(255, round(red * seen + through)),
        min(255, round(green * seen + through)),
        min(255, round(blue * seen + through)),
    )
