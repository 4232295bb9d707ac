"""Models behind the Anthropic protocol, through the vendor's SDK."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from taskweaver_ext.llm.chat_model import (
    Finished,
    FinishReason,
    JsonSchema,
    Message,
    ModelEvent,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
)
from taskweaver_ext.llm.http_model import NO_KEY, EventReader, HttpConnection, HttpModel
from taskweaver_ext.llm.model_errors import ModelSetupError
from taskweaver_ext.llm.request_options import RequestBody, without_option

_FALLBACKS = (
    without_option("output_config", "output_format", "json_schema", "schema", "structured output"),
    without_option("temperature"),
    without_option("top_p"),
    without_option("stop_sequences"),
)

_REASONS: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}

_SDK_ARGUMENTS = frozenset({"model", "messages", "system", "max_tokens", "stop_sequences"})
"""The rest goes into `extra_body`: which options the SDK knows by name changes between versions."""


class AnthropicModel(HttpModel):
    """A model reached over the Anthropic protocol."""

    fallbacks = _FALLBACKS

    def request_body(
        self, messages: Sequence[Message], schema: JsonSchema | None, max_tokens: int
    ) -> RequestBody:
        """Return the request; system messages travel apart from the conversation."""
        settings = self.settings
        body: RequestBody = {
            "model": settings.model,
            "messages": [
                {"role": message.role, "content": message.content}
                for message in messages
                if message.role != "system"
            ],
            "max_tokens": max_tokens,
            "temperature": settings.temperature,
        }
        system = "\n\n".join(message.content for message in messages if message.role == "system")
        if system:
            body["system"] = system
        if settings.top_p > 0:
            body["top_p"] = settings.top_p
        if settings.stop_token:
            body["stop_sequences"] = list(settings.stop_token)
        # The protocol knows no looser form than a schema.
        if schema is not None and settings.response_format != "text":
            body["output_config"] = {"format": {"type": "json_schema", "schema": dict(schema)}}
        return body

    def open_client(self, connection: HttpConnection) -> AbstractContextManager[Any]:
        """Return the SDK's client."""
        try:
            import anthropic
        except ImportError:
            raise ModelSetupError(
                "llm.api_type 'anthropic' needs the package anthropic: "
                "pip install 'taskweaver_ext[anthropic]'"
            ) from None
        key = self.settings.api_key.reveal() or NO_KEY
        options = self.http_options(anthropic, connection)
        return anthropic.Anthropic(base_url=self.endpoint.address, api_key=key, **options)

    def begin(self, client: Any, body: RequestBody) -> Any:  # noqa: ANN401  SDK objects
        """Make the request and return the SDK's stream of events."""
        named = {name: value for name, value in body.items() if name in _SDK_ARGUMENTS}
        others = {name: value for name, value in body.items() if name not in _SDK_ARGUMENTS}
        return client.messages.create(**named, extra_body=others, stream=True)

    def event_reader(self, notices: tuple[str, ...]) -> EventReader:
        """Return a reader for the events of one reply."""
        return _MessageReader(notices)


class _MessageReader:
    """Turn the events of one message into ours; anything in them may be missing."""

    def __init__(self, notices: tuple[str, ...]) -> None:
        self._notices = notices
        self._prompt_tokens: int | None = None
        self._cached_tokens = 0
        self._completion_tokens: int | None = None

    def read(self, event: Any) -> Iterator[ModelEvent]:  # noqa: ANN401  a vendor's object
        kind = getattr(event, "type", None)
        if kind == "message_start":
            self._count(getattr(getattr(event, "message", None), "usage", None))
        elif kind == "content_block_delta":
            yield from _deltas(getattr(event, "delta", None))
        elif kind == "message_delta":
            self._count(getattr(event, "usage", None))
            reason = getattr(getattr(event, "delta", None), "stop_reason", None)
            if reason:
                yield Finished(_REASONS.get(reason, "other"), self._usage(), self._notices)

    def _count(self, usage: object) -> None:
        new = _tokens(usage, "input_tokens")
        if new is not None:
            cached = _tokens(usage, "cache_read_input_tokens") or 0
            written = _tokens(usage, "cache_creation_input_tokens") or 0
            self._prompt_tokens = new + cached + written
            self._cached_tokens = cached
        completion_tokens = _tokens(usage, "output_tokens")
        if completion_tokens is not None:
            self._completion_tokens = completion_tokens

    def _usage(self) -> TokenUsage | None:
        if self._prompt_tokens is None or self._completion_tokens is None:
            return None
        return TokenUsage(self._prompt_tokens, self._completion_tokens, self._cached_tokens)


def _tokens(usage: object, name: str) -> int | None:
    count = getattr(usage, name, None)
    return count if isinstance(count, int) else None


def _deltas(delta: object) -> Iterator[ModelEvent]:
    thinking = getattr(delta, "thinking", None)
    if isinstance(thinking, str) and thinking:
        yield ThinkingDelta(thinking)
    text = getattr(delta, "text", None)
    if isinstance(text, str) and text:
        yield TextDelta(text)
