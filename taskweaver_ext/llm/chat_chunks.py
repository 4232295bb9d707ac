"""Read the chunks of the OpenAI streaming protocol, whoever speaks it, however loosely.

Chunks are objects with attributes; anything in them may be missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from taskweaver_ext.llm.chat_model import (
    Finished,
    FinishReason,
    ModelEvent,
    ThinkingDelta,
    TokenUsage,
)
from taskweaver_ext.llm.think_tags import ThinkTagSplitter

_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "length": "length",
    "content_filter": "content_filter",
}

_THINKING_FIELDS = ("reasoning_content", "reasoning")
"""Where servers put what the model thinks; the protocol has no place for it.

Others leave it in the text, between tags.
"""


class ChunkReader:
    """Turn chunks into events; the finish and the usage come in different chunks."""

    def __init__(self, notices: tuple[str, ...] = ()) -> None:
        self._notices = notices
        self._reason: FinishReason | None = None
        self._usage: TokenUsage | None = None
        self._text = ThinkTagSplitter()

    def read(self, chunk: Any) -> Iterator[ModelEvent]:  # noqa: ANN401  a vendor's object
        """Yield what the chunk adds; `Finished` again when the usage follows it."""
        is_news = False
        usage = _usage(getattr(chunk, "usage", None))
        if usage is not None:
            self._usage = usage
            is_news = True
        for choice in getattr(chunk, "choices", None) or ():
            yield from self._deltas(getattr(choice, "delta", None))
            reason = getattr(choice, "finish_reason", None)
            if reason:
                yield from self._text.close()
                self._reason = _REASONS.get(reason, "other")
                is_news = True
        if is_news and self._reason is not None:
            yield Finished(self._reason, self._usage, self._notices)

    def _deltas(self, delta: object) -> Iterator[ModelEvent]:
        for name in _THINKING_FIELDS:
            thinking = getattr(delta, name, None)
            if isinstance(thinking, str) and thinking:
                yield ThinkingDelta(thinking)
                break
        # A refusal is the model's own words in place of its reply.
        for name in ("content", "refusal"):
            text = getattr(delta, name, None)
            if isinstance(text, str) and text:
                yield from self._text.feed(text)


def _usage(usage: object) -> TokenUsage | None:
    prompt_tokens = getattr(usage, "prompt_tokens", None)
    completion_tokens = getattr(usage, "completion_tokens", None)
    if not isinstance(prompt_tokens, int) or not isinstance(completion_tokens, int):
        return None
    cached = getattr(getattr(usage, "prompt_tokens_details", None), "cached_tokens", None)
    return TokenUsage(prompt_tokens, completion_tokens, cached if isinstance(cached, int) else 0)
