"""The one connection under a vendor's HTTP client, cut from any thread.

Closing a response or a client from another thread does not wake a read that
is already blocked, and before the response headers there is no response to
close. Shutting the socket down wakes both, and it is also what the provider
notices. The socket is found by the tracing hook of the HTTP client, which is
the same in all versions of the library that the SDKs build on.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Mapping
from typing import Any


class HttpConnection:
    """Follow the socket of one HTTP client, and shut it down on demand.

    Threads:
        `follow` and the tracing run on the client's thread, `cut` on any;
        `_lock` guards the two fields that they share.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_cut = False

    @property
    def is_cut(self) -> bool:
        """Return whether somebody has asked for the connection to end."""
        return self._is_cut

    def follow(self, request: Any) -> None:  # noqa: ANN401  the HTTP library is the SDK's choice
        """Watch the connection that this request is sent on; a `request` event hook."""
        request.extensions["trace"] = self._on_trace

    def cut(self) -> None:
        """Shut the connection down, or the next one as soon as it stands."""
        with self._lock:
            self._is_cut = True
            _shut_down(self._socket)

    def _on_trace(self, event_name: str, details: Mapping[str, Any]) -> None:
        stream: Any = details.get("return_value")
        if not hasattr(stream, "get_extra_info"):
            return
        # Called for the plain connection and again once TLS has replaced its socket.
        with self._lock:
            self._socket = stream.get_extra_info("socket")
            if self._is_cut:
                _shut_down(self._socket)


def _shut_down(connection: socket.socket | None) -> None:
    if connection is None:
        return
    with contextlib.suppress(OSError):  # already closed, or never connected
        # The plain method also on a TLS socket, whose own would first take the reader's state away.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
