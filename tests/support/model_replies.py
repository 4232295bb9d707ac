"""Whole replies of a model, for tests that do not look at the pieces."""

from __future__ import annotations

from dataclasses import dataclass

from taskweaver_ext.llm.chat_model import (
    Finished,
    ModelStream,
    PromptRead,
    RetryScheduled,
    TextDelta,
    ThinkingDelta,
)


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply that was read to its end."""

    text: str
    thinking: str
    finished: Finished


def read_reply(stream: ModelStream) -> Reply:
    """Enter the stream, read it to its end and return the whole reply.

    Raises:
        ModelError: The reply did not come to its end.
    """
    text: list[str] = []
    thinking: list[str] = []
    finished = Finished("other")
    with stream:
        for event in stream:
            match event:
                case TextDelta():
                    text.append(event.text)
                case ThinkingDelta():
                    thinking.append(event.text)
                case Finished():
                    finished = event
                case RetryScheduled() | PromptRead():
                    pass
    return Reply("".join(text), "".join(thinking), finished)
