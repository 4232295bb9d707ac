"""Models behind the OpenAI protocol, through the vendor's SDK: OpenAI, Azure, and lookalikes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from taskweaver_ext.llm.chat_chunks import ChunkReader
from taskweaver_ext.llm.chat_model import JsonSchema, Message
from taskweaver_ext.llm.http_model import NO_KEY, EventReader, HttpConnection, HttpModel
from taskweaver_ext.llm.model_errors import ModelSetupError
from taskweaver_ext.llm.model_settings import ModelSettings
from taskweaver_ext.llm.request_options import OptionFallback, RequestBody, without_option

_JSON_MENTIONS = ("response_format", "json_schema", "json_object", "structured output", "json mode")

_FALLBACKS = (
    OptionFallback(
        mentions=("max_completion_tokens",),
        concerns=lambda body: "max_tokens" in body,
        apply=lambda body: {
            "max_completion_tokens" if name == "max_tokens" else name: value
            for name, value in body.items()
        },
        notice="the endpoint takes max_completion_tokens in place of max_tokens",
    ),
    OptionFallback(
        mentions=_JSON_MENTIONS,
        concerns=lambda body: body.get("response_format", {}).get("type") == "json_schema",
        apply=lambda body: {**body, "response_format": {"type": "json_object"}},
        notice="the endpoint does not accept a JSON schema; any JSON object was asked for",
    ),
    without_option("response_format", *_JSON_MENTIONS),
    without_option("stream_options"),
    without_option("temperature"),
    without_option("top_p"),
    without_option("seed"),
    without_option("stop"),
)


class OpenAIModel(HttpModel):
    """A model reached over the OpenAI protocol."""

    fallbacks = _FALLBACKS

    def request_body(
        self, messages: Sequence[Message], schema: JsonSchema | None, max_tokens: int
    ) -> RequestBody:
        """Return the request, with the response format that the settings ask for."""
        settings = self.settings
        body = {"model": settings.model, **chat_request(settings, messages, max_tokens)}
        if schema is not None and settings.response_format == "json_object":
            body["response_format"] = {"type": "json_object"}
        if schema is not None and settings.response_format == "json_schema":
            body["response_format"] = json_schema_format(schema)
        return body

    def open_client(self, connection: HttpConnection) -> AbstractContextManager[Any]:
        """Return the SDK's client for OpenAI itself, for Azure, or for a compatible endpoint."""
        settings = self.settings
        try:
            import openai
        except ImportError:
            raise ModelSetupError(
                f"llm.api_type {settings.api_type!r} needs the package openai: pip install openai"
            ) from None
        options = self.http_options(openai, connection)
        key = settings.api_key.reveal() or NO_KEY
        if settings.api_type in ("azure", "azure_ad"):
            is_token = settings.api_type == "azure_ad"
            return openai.AzureOpenAI(
                azure_endpoint=self.endpoint.address,
                api_version=settings.api_version,
                api_key=None if is_token else key,
                azure_ad_token=key if is_token else None,
                **options,
            )
        return openai.OpenAI(base_url=self.endpoint.address, api_key=key, **options)

    def begin(self, client: Any, body: RequestBody) -> Any:  # noqa: ANN401  SDK objects
        """Make the request and return the SDK's stream of chunks."""
        return client.chat.completions.create(**body)

    def event_reader(self, notices: tuple[str, ...]) -> EventReader:
        """Return a reader for the chunks of one reply."""
        return ChunkReader(notices)


def chat_request(
    settings: ModelSettings, messages: Sequence[Message], max_tokens: int
) -> RequestBody:
    """Return what every request of the protocol holds, but for the model and the format."""
    body: RequestBody = {
        "messages": [{"role": message.role, "content": message.content} for message in messages],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": settings.temperature,
        "max_tokens": max_tokens,
    }
    if settings.top_p > 0:
        body["top_p"] = settings.top_p
    if settings.seed is not None:
        body["seed"] = settings.seed
    if settings.stop_token:
        body["stop"] = list(settings.stop_token)
    return body


def json_schema_format(schema: JsonSchema) -> dict[str, Any]:
    """Return the `response_format` that holds the reply to the schema."""
    return {
        "type": "json_schema",
        "json_schema": {"name": "reply", "schema": dict(schema), "strict": True},
    }
