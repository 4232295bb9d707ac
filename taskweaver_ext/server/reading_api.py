"""Answers from what a session has kept: blocks, records of output, displays, artifacts, exports."""

from __future__ import annotations

import enum
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response, StreamingResponse

from taskweaver_ext.ces.execution.events import ArtifactProduced, DisplayProduced, DisplayUpdated
from taskweaver_ext.ces.execution.executor import NAME
from taskweaver_ext.ces.execution.files_beneath import open_beneath
from taskweaver_ext.ces.execution.results import ExecutionArtifact
from taskweaver_ext.events.display_files import content_of
from taskweaver_ext.events.journal_lines import RECORDS
from taskweaver_ext.events.types import PostEventType, TaskWeaverEvent
from taskweaver_ext.machine.private_files import open_to_read
from taskweaver_ext.server import api
from taskweaver_ext.server.failures import RefusedError
from taskweaver_ext.server.routes import Call, Operation
from taskweaver_ext.server.safe_content import content_response, file_response
from taskweaver_ext.server.served_session import Cursor, ServedSession
from taskweaver_ext.server.served_sessions import ServedSessions
from taskweaver_ext.session.blocks import read_blocks
from taskweaver_ext.session.export.bundle import write_bundle
from taskweaver_ext.session.export.export import SUFFIXES, text_pieces
from taskweaver_ext.session.export.source import ExportSource
from taskweaver_ext.session.saved import SavedSession

_BLOCK_BYTES = 1 << 20
_MAX_LINE_CHARS = 1000
"""How much of a line that was found is shown."""
_EXPORT_TYPES = {
    "ipynb": "application/x-ipynb+json",
    "md": "text/markdown; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "bundle": "application/zip",
}


class ReadingApi:
    """What can be read of a session, whether it runs or not.

    Threads:
        Each answer is made on a thread that may wait.
    """

    def __init__(self, sessions: ServedSessions) -> None:
        self._sessions = sessions

    def operations(self) -> tuple[Operation, ...]:
        """The table of what is answered here."""
        one = "/sessions/{session_id}"
        return (
            Operation(
                method="GET",
                path=f"{one}/blocks",
                summary="Read a session back: messages, cells with their outputs, notices.",
                answer=self.blocks,
                query=api.BlockQuery,
                returns=api.BlockList,
                refusals=(404,),
            ),
            Operation(
                method="GET",
                path=f"{one}/records/{{execution_id}}",
                summary="Return a range of what code wrote to one stream.",
                answer=self.record,
                query=api.RecordQuery,
                returns=api.RecordPart,
                refusals=(404,),
            ),
            Operation(
                method="GET",
                path=f"{one}/records/{{execution_id}}/whole",
                summary="Return all that code wrote to one stream, as a file.",
                answer=self.whole_record,
                query=api.WholeRecordQuery,
                media_type="text/plain",
                refusals=(404,),
            ),
            Operation(
                method="GET",
                path=f"{one}/records/{{execution_id}}/search",
                summary="Find the lines of what code wrote that hold a text.",
                answer=self.search,
                query=api.SearchQuery,
                returns=api.FoundLines,
                refusals=(404,),
            ),
            Operation(
                method="GET",
                path=f"{one}/displays/{{seq}}",
                summary="Return one part of a display, by the number of its event.",
                answer=self.display,
                query=api.DisplayQuery,
                media_type="*/*",
                refusals=(404,),
            ),
            Operation(
                method="GET",
                path=f"{one}/artifacts/{{seq}}",
                summary="Return a file that code made, by the number of its event.",
                answer=self.artifact,
                query=api.FileQuery,
                media_type="*/*",
                refusals=(404,),
            ),
            Operation(
                method="GET",
                path=f"{one}/export",
                summary="Return a session as a notebook, Markdown, a web page, or a bundle.",
                answer=self.export,
                query=api.ExportQuery,
                media_type="*/*",
                refusals=(404,),
            ),
        )

    def blocks(self, call: Call) -> api.BlockList:
        """Fold the events so far."""
        served = self._sessions.find(call.session_id)
        cursor = Cursor(served.epoch, served.feed.last_seq)

        def read() -> Iterator[TaskWeaverEvent]:
            return (one for one in served.events() if one.seq <= cursor.seq)

        query: api.BlockQuery = call.query
        blocks: list[dict[str, Any]] = []
        total = 0
        for block in read_blocks(read, max_chars=query.max_chars):
            if query.skip <= total < query.skip + query.limit:
                blocks.append(_plain(block))
            total += 1
        return api.BlockList(blocks=blocks, total=total, cursor=str(cursor))

    def record(self, call: Call) -> api.RecordPart:
        """Return whole characters of a range of bytes."""
        query: api.RecordQuery = call.query
        descriptor = self._opened_record(call, query.stream)
        try:
            size = os.fstat(descriptor).st_size
            data = os.pread(descriptor, query.limit, query.offset)
        finally:
            os.close(descriptor)
        start, end = _whole_characters(data, is_at_end=query.offset + len(data) >= size)
        return api.RecordPart(
            stream=query.stream,
            offset=query.offset + start,
            next_offset=query.offset + end,
            size=size,
            text=data[start:end].decode("utf-8", "replace"),
        )

    def whole_record(self, call: Call) -> Response:
        """Return a record as a file."""
        descriptor = self._opened_record(call, call.query.stream)
        name = f"{call.path['execution_id']}.{call.query.stream}.txt"
        return file_response(descriptor, name, kind="text/plain", is_download=True)

    def search(self, call: Call) -> api.FoundLines:
        """Find lines that hold a text, whatever its case unless it has capitals."""
        query: api.SearchQuery = call.query
        flags = re.IGNORECASE if query.text == query.text.lower() else 0
        wanted = re.compile(re.escape(query.text.encode()), flags)
        found: list[api.FoundLine] = []
        total = 0
        with open(self._opened_record(call, query.stream), "rb") as file:
            for number, offset, line in _lines(file.fileno()):
                if wanted.search(line):
                    total += 1
                    if query.skip < total <= query.skip + query.limit:
                        text = line[: 4 * _MAX_LINE_CHARS].decode("utf-8", "replace")
                        found.append(
                            api.FoundLine(line=number, offset=offset, text=text[:_MAX_LINE_CHARS])
                        )
        return api.FoundLines(lines=found, total=total)

    def display(self, call: Call) -> Response:
        """Return one part of a display with a policy of its own."""
        served, event = self._execution_event(call)
        if not isinstance(event, DisplayProduced | DisplayUpdated):
            raise _no_such(f"event {call.path['seq']} shows nothing")
        kind = call.query.type
        if kind in event.files:
            return _file_of(served.folder, event.files[kind], kind, is_framed=call.query.framed)
        if kind not in event.bundle:
            there = ", ".join([*event.bundle, *event.files])
            raise _no_such(f"the display has no {kind[:100]!r}; it has: {there}")
        return content_response(
            content_of(kind, event.bundle[kind]), kind, is_framed=call.query.framed
        )

    def artifact(self, call: Call) -> Response:
        """Return a file that code made."""
        served, event = self._execution_event(call)
        if not isinstance(event, ArtifactProduced):
            raise _no_such(f"event {call.path['seq']} made no file")
        made: ExecutionArtifact = event.artifact
        name = Path(made.original_name or made.file_name or made.name).name
        if made.file_content:
            kind = "image/png" if made.file_content_encoding == "base64" else "text/plain"
            content = content_of(kind, made.file_content)
            is_download = call.query.download
            return content_response(content, made.mime_type, name, is_download=is_download)
        found = _source_of(served).find_file(made.file_name)
        if found is None:
            raise _no_such(f"the file {name[:200]!r} is no longer there")
        is_download = call.query.download
        return _file_of(found.root, found.path, made.mime_type, name, is_download=is_download)

    def export(self, call: Call) -> Response:
        """Return a session in another form."""
        served = self._sessions.find(call.session_id)
        query: api.ExportQuery = call.query
        source = _source_of(served)
        name = f"{served.session_id}{SUFFIXES[query.to]}"
        media_type = _EXPORT_TYPES[query.to]
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        if query.to != "bundle":
            pieces = text_pieces(source, query.to)
            encoded = (piece.encode("utf-8", "replace") for piece in pieces)
            return StreamingResponse(encoded, headers=headers, media_type=media_type)
        descriptor, path = tempfile.mkstemp(prefix="taskweaver-export-")
        removing = BackgroundTask(os.unlink, path)
        try:
            with open(descriptor, "wb") as file:
                write_bundle(source, file, with_files=query.with_files)
        except BaseException:
            os.unlink(path)
            raise
        return FileResponse(path, headers=headers, media_type=media_type, background=removing)

    def _opened_record(self, call: Call, stream: str) -> int:
        served, name = self._sessions.find(call.session_id), call.path["execution_id"]
        if not NAME.fullmatch(name):
            raise _no_such(f"{name[:100]!r} cannot name an execution")
        try:
            return open_to_read(served.folder / RECORDS / f"{name}.{stream}")
        except OSError:
            raise _no_such(f"execution {name!r} has written nothing to {stream}") from None

    def _execution_event(self, call: Call) -> tuple[ServedSession, object]:
        served, number = self._sessions.find(call.session_id), call.path["seq"]
        if not (number.isascii() and number.isdigit() and len(number) < 16):
            raise _no_such(f"{number[:40]!r} is the number of no event")
        event = served.event(int(number))
        if event is None or event.t is not PostEventType.post_execution_event:
            raise _no_such(f"event {number} is none of an execution")
        return served, event.extra.get("event")


def _source_of(served: ServedSession) -> ExportSource:
    """What a session is made of, with the folders in which it has worked."""
    return ExportSource(
        session_id=served.session_id,
        folder=served.folder,
        read=served.events,
        folders=SavedSession(served.folder).folders(),
    )


def _file_of(
    folder: Path,
    place: str,
    kind: str,
    name: str = "",
    *,
    is_download: bool = False,
    is_framed: bool = False,
) -> Response:
    try:
        descriptor = open_beneath(folder.resolve(), place)
    except OSError:
        raise _no_such("the file is no longer there") from None
    return file_response(descriptor, name, kind=kind, is_download=is_download, is_framed=is_framed)


def _no_such(problem: str) -> RefusedError:
    return RefusedError(404, "not_found", f"{problem[:1].upper()}{problem[1:]}.")


def _plain(value: object) -> Any:  # noqa: ANN401 - JSON
    """Return a block as JSON; each part of it says in `block` what it is."""
    if is_dataclass(value) and not isinstance(value, type):
        kind = re.sub(r"(?<!^)(?=[A-Z])", "_", type(value).__name__).lower()
        parts = {entry.name: _plain(getattr(value, entry.name)) for entry in fields(value)}
        return {"block": kind, **parts}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    return value.value if isinstance(value, enum.Enum) else value


def _whole_characters(data: bytes, *, is_at_end: bool) -> tuple[int, int]:
    """Where in a range of UTF-8 its first character begins and its last one ends."""
    start = next((at for at, byte in enumerate(data[:3]) if byte & 0xC0 != 0x80), min(3, len(data)))
    if is_at_end:
        return start, len(data)
    for back in range(1, min(4, len(data) - start) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            length = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return start, len(data) if length == back else len(data) - back
    return start, len(data)


def _lines(descriptor: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield number, offset and text of each line, in bounded memory."""
    number, offset, start, rest = 1, 0, 0, b""
    while block := os.pread(descriptor, _BLOCK_BYTES, offset):
        offset += len(block)
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            yield number, start, line
            number += 1
            start += len(line) + 1
        if len(rest) > _BLOCK_BYTES:  # a line without end is searched in pieces
            yield number, start, rest
            start += len(rest)
            rest = b""
    if rest:
        yield number, start, rest
