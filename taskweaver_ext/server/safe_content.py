"""Files and displays of running code as answers: nothing in them can act for the person.

A browser shows pictures, sounds and plain text as such. HTML and SVG are documents in a sandbox,
without an origin, cookies or a network; everything else is saved, never shown.
"""

from __future__ import annotations

import mimetypes
import os
import re
from collections.abc import Iterator
from itertools import chain
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

_BLOCK_BYTES = 256 * 1024
_SHOWN = (
    *("image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "application/pdf"),
    *("audio/mpeg", "audio/wav", "audio/ogg", "video/mp4", "video/webm"),
)
_DOCUMENTS = ("text/html", "image/svg+xml")
_OWN_SANDBOX = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval';"
    " style-src 'unsafe-inline'; img-src data: blob:; font-src data:; media-src data: blob:;"
    " worker-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
"""Scripts inside run, and reach nothing."""
_NOTHING_RUNS = "sandbox; default-src 'none'; frame-ancestors 'self'"
_SAY_HEIGHT = b"""
<script>(() => {
  const say = () => {
    const all = document.createRange();
    all.selectNodeContents(document.body);
    const below = parseFloat(getComputedStyle(document.body).marginBottom) || 0;
    const height = all.getBoundingClientRect().bottom + scrollY + below;
    parent.postMessage({ taskweaver_height: height }, "*");
  };
  addEventListener("message", say);
  addEventListener("load", say);
  new MutationObserver(say).observe(document, { attributes: true, childList: true, subtree: true });
})();</script>
"""
"""Ends a document that is shown in a frame, so that the frame can have its height."""


def content_response(
    content: bytes, kind: str, name: str = "", *, is_download: bool = False, is_framed: bool = False
) -> Response:
    """Return some bytes as an answer; HTML for a frame says its height."""
    headers = _headers(kind, name, is_download=is_download)
    return Response(content + _end_of(kind, is_framed=is_framed), headers=headers)


def file_response(
    descriptor: int, name: str, *, kind: str = "", is_download: bool, is_framed: bool = False
) -> Response:
    """Return an opened file as an answer, which closes it."""
    kind = kind or _kind_of(name)
    headers = _headers(kind, name, is_download=is_download)
    size = os.fstat(descriptor).st_size
    end = _end_of(kind, is_framed=is_framed)
    headers["content-length"] = str(size + len(end))
    return StreamingResponse(chain(_pieces(descriptor, size), (end,)), headers=headers)


def _end_of(kind: str, *, is_framed: bool) -> bytes:
    return _SAY_HEIGHT if is_framed and kind == "text/html" else b""


def _headers(kind: str, name: str, *, is_download: bool) -> dict[str, str]:
    kind = kind.partition(";")[0].strip().lower()
    shown = _shown_kind(kind)
    place = "attachment" if is_download or shown == "application/octet-stream" else "inline"
    # Both forms, because old programs know the first one only; control characters are quoted.
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", name)
    file_name = f"; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}" if name else ""
    return {
        "content-type": shown,
        "content-disposition": place + file_name,
        "content-security-policy": _OWN_SANDBOX if kind in _DOCUMENTS else _NOTHING_RUNS,
        "cache-control": "no-store",
    }


def _shown_kind(kind: str) -> str:
    if kind in _DOCUMENTS:
        return f"{kind}; charset=utf-8"
    if kind in _SHOWN:
        return kind
    is_text = kind.startswith("text/") or kind.endswith(("json", "+xml")) or kind in _TEXTS
    return "text/plain; charset=utf-8" if is_text else "application/octet-stream"


_TEXTS = ("application/javascript", "application/xml", "application/x-sh", "application/sql")


def _kind_of(name: str) -> str:
    return mimetypes.guess_type(name)[0] or "application/octet-stream"


def _pieces(descriptor: int, size: int) -> Iterator[bytes]:
    """Yield what the file had when it was opened: no more, and zeros where it became shorter."""
    with open(descriptor, "rb") as file:
        while size > 0:
            piece = file.read(min(size, _BLOCK_BYTES)) or bytes(min(size, _BLOCK_BYTES))
            size -= len(piece)
            yield piece
