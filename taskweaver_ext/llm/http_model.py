"""What all models behind a vendor's HTTP API share; the vendors' modules say what differs."""

from __future__ import annotations

import abc
import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol

from taskweaver_ext.llm.bounded_answer import UNCOMPRESSED, bound_answer
from taskweaver_ext.llm.chat_model import (
    JsonSchema,
    Message,
    ModelEvent,
    ModelStream,
    TextDelta,
    ThinkingDelta,
)
from taskweaver_ext.llm.endpoint import Endpoint
from taskweaver_ext.llm.model_settings import ModelSettings
from taskweaver_ext.llm.reply_stream import Deliver, ReplyStream
from taskweaver_ext.llm.request_options import OptionFallback, RequestBody, RequestOptions
from taskweaver_ext.llm.vendor_errors import (
    LONGEST_READ,
    is_bad_request,
    is_context_too_long,
    not_a_stream,
    provider_message,
    translate,
)

NO_KEY = "no-key"
"""Sent where the provider needs none, since the SDKs would otherwise search for one."""


class HttpConnection:
    """The one connection under a vendor's HTTP client, cut from any thread.

    Closing a response or a client from another thread does not wake a read that is
    already blocked, and before the response headers there is no response to close.
    Shutting the socket down wakes both, and it is also what the provider notices. The
    socket is found by the tracing hook of the HTTP client, which is the same in all
    versions of the library that the SDKs build on.

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
        """Return whether `cut` was called."""
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


class EventReader(Protocol):
    """Turn the vendor's events into ours, one at a time."""

    def read(self, event: Any) -> Iterator[ModelEvent]:  # noqa: ANN401  a vendor's object
        """Yield what the event adds to the reply."""


class HttpModel(abc.ABC):
    """A model reached through a vendor's SDK.

    Each stream has a client and a connection of its own, so that cutting one
    stream cannot touch another.
    """

    fallbacks: ClassVar[tuple[OptionFallback, ...]]
    """What to try, in this order, when an endpoint of the vendor's kind refuses an option."""

    def __init__(self, settings: ModelSettings, *, api_base: str) -> None:
        self.settings = settings
        self.endpoint = Endpoint.at(api_base, model=settings.model, api_key=settings.api_key)
        self.options = RequestOptions(self.fallbacks)

    @property
    def name(self) -> str:
        """Return the model and the address of its provider."""
        return f"{self.settings.model} at {self.endpoint.place}"

    @property
    def context_tokens(self) -> int | None:
        """Return the configured size of the context; providers do not tell."""
        return self.settings.context_tokens

    def stream(
        self,
        messages: Sequence[Message],
        *,
        schema: JsonSchema | None = None,
        max_tokens: int | None = None,
    ) -> ModelStream:
        """Prepare a reply; see `ChatModel.stream`."""
        body = self.request_body(messages, schema, self.settings.room_for_reply(max_tokens))
        source = _HttpReply(self, body)
        return ReplyStream(source, model_name=self.name, limits=self.settings.limits)

    def close(self) -> None:  # noqa: B027  not abstract: there is nothing to let go of
        """Do nothing: each stream closes its own connection."""

    @abc.abstractmethod
    def request_body(
        self, messages: Sequence[Message], schema: JsonSchema | None, max_tokens: int
    ) -> RequestBody:
        """Return the request as the vendor's API wants it."""

    @abc.abstractmethod
    def open_client(self, connection: HttpConnection) -> AbstractContextManager[Any]:
        """Return the SDK's client, its traffic followed by `connection`.

        Raises:
            ModelSetupError: The SDK is not installed.
        """

    @abc.abstractmethod
    def begin(self, client: Any, body: RequestBody) -> Any:  # noqa: ANN401  SDK objects
        """Make the request and return the SDK's stream of events."""

    @abc.abstractmethod
    def event_reader(self, notices: tuple[str, ...]) -> EventReader:
        """Return a reader for the events of one reply."""

    def http_options(self, sdk: Any, connection: HttpConnection) -> dict[str, Any]:  # noqa: ANN401
        """Return the options that every SDK's client takes."""
        endpoint, limits = self.endpoint, self.settings.limits
        silence = max(limits.first_token_seconds, limits.between_tokens_seconds)
        http_client = sdk.DefaultHttpxClient(
            event_hooks={
                "request": [connection.follow],
                "response": [lambda response: bound_answer(response, endpoint)],
            },
            headers=UNCOMPRESSED,
            auth=(endpoint.user, endpoint.password.reveal()) if endpoint.user else None,
            # A redirect would take the key along.
            follow_redirects=False,
            # Only a backstop: the stream's own limits come first.
            timeout=sdk.Timeout(silence + 5, connect=limits.connect_seconds),
        )
        return {"http_client": http_client, "max_retries": 0}


class _HttpReply:
    """The `ReplySource` of one request."""

    def __init__(self, model: HttpModel, body: RequestBody) -> None:
        self._model = model
        self._body = body
        self._connection = HttpConnection()

    def cut(self) -> None:
        self._connection.cut()

    def run(self, deliver: Deliver) -> None:
        has_begun = False
        try:
            with self._model.open_client(self._connection) as client:
                deliver(None)  # importing the SDK took a while, and is not the model's silence
                for event in self._reply(client):
                    has_begun = has_begun or isinstance(event, TextDelta | ThinkingDelta)
                    if not deliver(event):
                        break
        except Exception as error:  # noqa: BLE001  SDKs let the errors of their parts through
            raise translate(error, self._model.endpoint, has_begun=has_begun) from None

    def _reply(self, client: Any) -> Iterator[ModelEvent]:  # noqa: ANN401
        vendor_events, notices = self._begin(client)
        self._check_that_it_streams(vendor_events)
        reader = self._model.event_reader(notices)
        with vendor_events:
            for event in vendor_events:
                yield from reader.read(event)

    def _begin(self, client: Any) -> tuple[Any, tuple[str, ...]]:  # noqa: ANN401
        """Make the request, again without an option for each one the endpoint refuses."""
        options = self._model.options
        while True:
            body, notices = options.adapt(self._body)
            try:
                return self._model.begin(client, body), notices
            except Exception as error:
                if self._connection.is_cut or not is_bad_request(error):
                    raise
                said = provider_message(error, self._model.endpoint)
                if is_context_too_long(error) or not options.learn(said, body):
                    raise

    def _check_that_it_streams(self, vendor_events: Any) -> None:  # noqa: ANN401
        """Raise if the answer is a page or one object: an SDK would find no event in it."""
        response = vendor_events.response
        kind = response.headers.get("content-type", "")
        is_object = "application/json" in kind and "content-length" in response.headers
        if "text/html" not in kind and not is_object:
            return
        body = ""
        for piece in response.iter_text():
            body += piece
            if len(body) > LONGEST_READ:
                break
        raise not_a_stream(response, body, self._model.endpoint)


def _shut_down(connection: socket.socket | None) -> None:
    if connection is None:
        return
    with contextlib.suppress(OSError):  # already closed, or never connected
        # Not the TLS socket's own method, which would first take the reader's state away.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
