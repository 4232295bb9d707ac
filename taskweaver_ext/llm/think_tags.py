"""Tell what a model thinks from what it replies, where both come in one text.

Open models think between `<think>` tags at the beginning of their reply, and not every server
takes that apart. Pure: pieces of text in, events out, wherever the pieces are cut.
"""

from __future__ import annotations

from collections.abc import Iterator

from taskweaver_ext.llm.chat_model import ModelEvent, TextDelta, ThinkingDelta

OPENING = "<think>"
CLOSING = "</think>"
MAX_BLANKS = 100


class ThinkTagSplitter:
    """Turn the text of one reply into thinking and reply; tags further down are text."""

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


def _tag_begun_at_the_end_of(text: str) -> int:
    """Return how many characters at the end may be the beginning of the closing tag."""
    lengths = range(min(len(text), len(CLOSING) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(CLOSING[:length])), 0)
