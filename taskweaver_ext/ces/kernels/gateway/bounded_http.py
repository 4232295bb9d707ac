"""HTTP with a server that may be anything: each answer ends in time and takes little memory.

The time limits of HTTP libraries are for one read: a server that sends a byte
now and then is waited for without end. Here a limit is for the whole of an answer, from
the connection on.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from dataclasses import dataclass
from typing import Any

import httpx

LARGEST_ANSWER = 1 << 20
"""Bytes; a list of kernelspecs has a few thousand."""

_LEAST_SECONDS = 0.1

UNCOMPRESSED = {"Accept-Encoding": "identity"}
"""The header that asks for answers whose size can be seen."""


class AnswerError(Exception):
    """A server has answered with what nobody can use; the text says what that is."""


class AnswerTimeoutError(AnswerError):
    """An answer was not complete in time."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer."""

    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def is_success(self) -> bool:
        """Whether the server did as it was asked."""
        return 200 <= self.status < 300

    def json_object(self) -> dict[str, Any]:
        """The JSON object that the body is; an empty one if it is anything else."""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


class BoundedHttp:
    """One server; may be used from any thread.

    A connection serves one request, so that it can be cut at the time limit of that request.
    """

    def __init__(
        self, url: str, headers: dict[str, str], tls: ssl.SSLContext | None, *, trust_env: bool
    ) -> None:
        self._client = httpx.Client(
            base_url=url,
            headers={**headers, **UNCOMPRESSED},
            verify=tls or False,  # False: nothing is encrypted, and no redirect followed
            trust_env=trust_env,
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    def request(
        self, method: str, path: str, seconds: float, json: dict[str, Any] | None = None
    ) -> Answer:
        """Ask, and wait for the whole answer.

        Raises:
            AnswerError: It was too long, compressed or took too long.
            httpx.HTTPError: There was none.
        """
        seconds = max(seconds, _LEAST_SECONDS)
        with _CutAfter(seconds) as cut:
            try:
                with self._client.stream(
                    method,
                    path,
                    json=json,
                    timeout=seconds,
                    extensions={"trace": cut.watch_connection},
                ) as response:
                    answer = _read(response)
            except httpx.HTTPError as error:
                if cut.has_struck or isinstance(error, httpx.TimeoutException):
                    raise _timeout(seconds) from error
                raise
        if cut.has_struck:  # an answer of unknown length seems complete where it was cut
            raise _timeout(seconds)
        return answer

    def close(self) -> None:
        """Close all connections."""
        self._client.close()


def _timeout(seconds: float) -> AnswerTimeoutError:
    return AnswerTimeoutError(f"no whole answer within {seconds:.3g} s")


def _read(response: httpx.Response) -> Answer:
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise AnswerError("it answered with compressed data, which was not asked for")
    body = bytearray()
    for piece in response.iter_raw():
        body += piece
        if len(body) > LARGEST_ANSWER:
            raise AnswerError(f"it answered with more than {LARGEST_ANSWER:,} bytes")
    return Answer(response.status_code, response.headers, bytes(body))


class _CutAfter:
    """Shut the connection of a request down when its time is over.

    Threads:
        A timer's thread cuts; `_lock` guards what it cuts.
    """

    def __init__(self, seconds: float) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.has_struck = False
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.name = "taskweaver-gateway-limit"
        self._timer.daemon = True

    def __enter__(self) -> _CutAfter:
        self._timer.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._timer.cancel()

    def watch_connection(self, event: str, details: dict[str, Any]) -> None:
        """Called by the HTTP library for all it does: know the connection once there is one."""
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            with self._lock:
                self._socket = details["return_value"].get_extra_info("socket")
                if self.has_struck:
                    self._shut_down()

    def _cut(self) -> None:
        with self._lock:
            self.has_struck = True
            self._shut_down()

    def _shut_down(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it may be closed by now
                # Of an encrypted one, the method of the same name would leave out the encryption.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
