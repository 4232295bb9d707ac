"""Read the chunks of the OpenAI streaming protocol, however loosely a server speaks it.

Chunks are objects with attributes; anything in them may be missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from taskweaver_ext.llm.chat_model import (
    Finished,
    FinishReason,
    ModelEvent,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
)

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


OPENING = "<think>"
CLOSING = "</think>"
MAX_BLANKS = 100


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


class ThinkTagSplitter:
    """Turn the text of one reply into thinking and reply, wherever its pieces are cut.

    Open models think between `<think>` tags at the beginning of their reply, and not every
    server takes that apart; tags further down are text.
    """

    def __init__(self) -> None:
        self._held = ""
        """What may be the beginning of a tag."""
        self._is_thinking = False
        self._has_begun = False
        """Whether it is known how the reply begins."""

    def feed(self, text: str) -> Iterator[ModelEvent]:
        """Take the next piece, and yield what is known of it."""
        if self._has_begun and not self._is_thinking:
            yield TextDelta(text)
            return
        text, self._held = self._held + text, ""
        if not self._has_begun:
            yield from self._begin(text)
        else:
            yield from self._think(text)

    def close(self) -> Iterator[ModelEvent]:
        """Yield what was held back at the end of the reply."""
        held, self._held = self._held, ""
        if held:
            yield ThinkingDelta(held) if self._is_thinking else TextDelta(held)

    def _begin(self, text: str) -> Iterator[ModelEvent]:
        start = text.lstrip()
        # Blanks alone say nothing yet; a reply of nothing but blanks is not kept waiting for ever.
        if OPENING.startswith(start) and len(text) - len(start) < MAX_BLANKS:
            self._held = text
            return
        self._has_begun = True
        if start.startswith(OPENING):
            self._is_thinking = True
            yield from self._think(start.removeprefix(OPENING))
        else:
            yield TextDelta(text)

    def _think(self, text: str) -> Iterator[ModelEvent]:
        thought, tag, reply = text.partition(CLOSING)
        if not tag:
            kept = _tag_begun_at_the_end_of(text)
            thought, self._held = text[: len(text) - kept], text[len(text) - kept :]
        if thought:
            yield ThinkingDelta(thought)
        if tag:
            self._is_thinking = False
            if reply:
                yield TextDelta(reply)


def _usage(usage: object) -> TokenUsage | None:
    prompt_tokens = getattr(usage, "prompt_tokens", None)
    completion_tokens = getattr(usage, "completion_tokens", None)
    if not isinstance(prompt_tokens, int) or not isinstance(completion_tokens, int):
        return None
    cached = getattr(getattr(usage, "prompt_tokens_details", None), "cached_tokens", None)
    return TokenUsage(prompt_tokens, completion_tokens, cached if isinstance(cached, int) else 0)


def _tag_begun_at_the_end_of(text: str) -> int:
    """Return how many characters at the end may be the beginning of the closing tag."""
    lengths = range(min(len(text), len(CLOSING) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(CLOSING[:length])), 0)
