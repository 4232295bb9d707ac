"""Large parts of displays, put together in files from the pieces in which kernels send them.

`inside/kernel/display_parts.py` sends them. A part costs a piece of memory while it comes; it is
read back only for a caller that wants the bundle itself.
"""

from __future__ import annotations

import base64
import codecs
import contextlib
import mimetypes
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taskweaver_ext.ces.inside.kernel.display_parts import (
    BASE64,
    FORMS,
    JSON,
    MAX_DISPLAY_BYTES,
    PIECE_BYTES,
)
from taskweaver_ext.ces.inside.kernel.message_cost import message_cost
from taskweaver_ext.ces.kernels.client.checked_fields import CheckedFields
from taskweaver_ext.ces.kernels.client.host import PieceReceived
from taskweaver_ext.ces.kernels.client.received_json import MAX_DEPTH, parse_json
from taskweaver_ext.errors import ProtocolError
from taskweaver_ext.machine.private_files import make_private_folder, open_private
from taskweaver_ext.text.json_depth import is_nested_deeper
from taskweaver_ext.text.redaction import Redactor
from taskweaver_ext.text.truncation import shorten_middle

MAX_VALUE_COST = 4 * MAX_DISPLAY_BYTES
"""In bytes of memory: what a text of the largest size can take, and other values may."""

_MAX_OPEN = 64
_MAX_PARTS = 10_000
_MAX_KIND_CHARACTERS = 200
_ENCODED_AT_ONCE = 3 << 18


@dataclass(frozen=True, slots=True)
class LargePart:
    """One part of a bundle, whole, in a file."""

    path: Path
    form: str
    size: int

    def read(self, max_cost: int = MAX_VALUE_COST) -> Any:  # noqa: ANN401 - whatever JSON it is
        """Return the value that the bundle had.

        Raises:
            OSError: The file cannot be read.
            ValueError, ProtocolError: It takes too much memory, or is no value.
        """
        if self.form == BASE64:
            return "".join(
                base64.b64encode(data).decode("ascii") for data in self._pieces(_ENCODED_AT_ONCE)
            )
        content = self.path.read_bytes()
        if self.form != JSON:
            return content.decode("utf-8", "replace")
        if message_cost(content, max_cost) > max_cost:
            raise ValueError("it takes too much memory")
        value = parse_json(content)
        if is_nested_deeper(value, MAX_DEPTH):
            raise ValueError("it is nested too deep")
        return value

    def is_decoded(self, kind: str) -> bool:
        """Whether the file is what programs expect in a file of this kind."""
        return self.form == BASE64 or kind == "image/svg+xml"

    def shortened(self, max_characters: int) -> str:
        """Return the text without its middle; costs no more than what is returned, and a piece."""
        head = tail = ""
        missing_characters = missing_lines = 0
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for data in self._pieces(PIECE_BYTES):
            text = decoder.decode(data)
            if room := max_characters - len(head):
                head, text = head + text[:room], text[room:]
            tail += text
            dropped = tail[: max(0, len(tail) - max_characters)]
            missing_characters += len(dropped)
            missing_lines += dropped.count("\n")
            tail = tail[len(dropped) :]
        return shorten_middle(
            head + tail,
            max_characters,
            missing_chars=missing_characters,
            missing_lines=missing_lines,
        )

    def _pieces(self, size: int) -> Iterator[bytes]:
        with open(self.path, "rb") as file:
            while data := file.read(size):
                yield data


class _Mask:
    """Mask the secrets of one part, however its pieces cut them."""

    def __init__(self, redactor: Redactor) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stream = redactor.stream()

    def feed(self, data: bytes) -> bytes:
        return self._stream.feed(self._decoder.decode(data)).encode()

    def close(self) -> bytes:
        rest = self._stream.feed(self._decoder.decode(b"", final=True))
        return (rest + self._stream.close()).encode()


@dataclass(slots=True)
class _OpenPart:
    """A part of which more may come."""

    path: Path
    form: str
    mask: _Mask | None
    received_bytes: int = 0
    failure: OSError | None = field(default=None)

    def append(self, data: bytes) -> None:
        """Write the next bytes; a failure is kept until the part is wanted."""
        if self.failure is not None:
            return
        try:
            make_private_folder(self.path.parent)
            flag = os.O_APPEND if self.received_bytes else os.O_TRUNC
            with open(open_private(self.path, os.O_WRONLY | flag), "wb") as file:
                file.write(data if self.mask is None else self.mask.feed(data))
        except OSError as error:
            self.failure = error
        self.received_bytes += len(data)

    def finish(self, kind: str) -> LargePart:
        """Give the file its name; raises OSError."""
        if self.failure is not None:
            raise self.failure
        if self.mask is not None:
            with open(open_private(self.path, os.O_WRONLY | os.O_APPEND), "ab") as file:
                file.write(self.mask.close())
        suffix = mimetypes.guess_extension(kind.partition(";")[0]) or ".bin"
        path = self.path.with_name(self.path.name + suffix)
        os.replace(self.path, path)
        return LargePart(path, self.form, path.stat().st_size)


class DisplayParts:
    """The large parts of one execution's displays.

    Belongs to the reader's thread until the execution has ended, then to the caller's.
    """

    def __init__(self, folder: Path, name: str, redactor: Redactor | None) -> None:
        """Begin an execution.

        Args:
            folder: Where the files are made.
            name: What their names begin with.
            redactor: Masks the secrets of texts.
        """
        self._folder = folder
        self._name = name
        self._redactor = redactor
        self._open: dict[int, _OpenPart] = {}
        self._kept: dict[str, LargePart] = {}

    def receive(self, piece: PieceReceived) -> None:
        """Add a piece to its part; raises ProtocolError if no kernel of ours sends such ones."""
        part = self._open.get(piece.number)
        if part is None:
            if len(self._open) >= _MAX_OPEN:  # displays that were interrupted
                self._drop(next(iter(self._open)))
            is_text = self._redactor is not None and piece.form != BASE64
            part = self._open[piece.number] = _OpenPart(
                self._folder / f"{self._name}.display-{piece.number}",
                piece.form,
                _Mask(self._redactor) if is_text and self._redactor else None,
            )
        if part.form != piece.form or part.received_bytes + len(piece.data) > MAX_DISPLAY_BYTES:
            raise ProtocolError("A kernel sent a display in pieces that do not belong together.")
        part.append(piece.data)

    def claim(self, message: CheckedFields) -> tuple[dict[str, LargePart], list[str]]:
        """Return the parts that belong to a message by kind, and what is to be said of others.

        Raises:
            ProtocolError: It names parts as no kernel of ours does.
        """
        claimed: dict[str, LargePart] = {}
        complaints = list(_left_out(message))
        total = 0
        for kind in message.mapping("parts"):
            part = message.fields("parts").fields(kind)
            number, size = part.count("number"), part.count("size")
            opened = self._open.pop(number, None)
            total += size
            if part.text("form") not in FORMS or total > MAX_DISPLAY_BYTES:
                raise ProtocolError("A kernel sent a display that is larger than any.")
            if opened is None:  # very many were sent at once
                complaints.append(f"{kind[:_MAX_KIND_CHARACTERS]} of a display is lost.")
                continue
            if (opened.form, opened.received_bytes) != (part.text("form"), size):
                raise ProtocolError("A kernel sent a display without the pieces that it named.")
            if (kept := self._finish(opened, kind, complaints)) is not None:
                claimed[kind] = kept
        return claimed, complaints

    def _finish(self, opened: _OpenPart, kind: str, complaints: list[str]) -> LargePart | None:
        shown_kind = kind[:_MAX_KIND_CHARACTERS]
        if len(self._kept) >= _MAX_PARTS:
            complaints.append(f"Only the first {_MAX_PARTS:,} large parts of displays are kept.")
        else:
            try:
                part = opened.finish(kind)
                self._kept[str(part.path)] = part
                return part
            except OSError as error:
                complaints.append(
                    f"{shown_kind} of a display ({opened.received_bytes:,} bytes) is lost, because"
                    f" it could not be written: {error}. Free space there and run the code again."
                )
        _remove(opened.path)
        return None

    def part(self, path: str) -> LargePart:
        """The part in a file."""
        return self._kept[path]

    def close(self, keep: Collection[str] | None = None) -> None:
        """Remove what belongs to no display; with `keep`, all files but these."""
        for number in list(self._open):
            self._drop(number)
        for path in self._kept:
            if keep is not None and path not in keep:
                _remove(Path(path))

    def _drop(self, number: int) -> None:
        _remove(self._open.pop(number).path)


def _left_out(message: CheckedFields) -> Iterator[str]:
    left_out = message.value("left_out", [])
    if not isinstance(left_out, list) or len(left_out) > _MAX_OPEN:
        raise ProtocolError("A kernel sent a list of what it left out that is none.")
    for each in left_out:
        part = CheckedFields(each, "A kernel")
        yield (
            f"Of a display, {part.text('kind')[:_MAX_KIND_CHARACTERS]} of {part.count('size'):,}"
            f" bytes was cut or left out: up to {MAX_DISPLAY_BYTES:,} bytes of one are kept. Write"
            " it to a file in the working directory, or display less of it."
        )


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
