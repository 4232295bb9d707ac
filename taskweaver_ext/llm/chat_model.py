"""The model as this package sees it: messages in, one stream of frozen values out.

    with model.stream(messages) as stream:
        for event in stream:
            match event:
                case TextDelta(text):
                    print(text, end="")

Adapters implement `ChatModel`; nothing else knows a vendor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeAlias

JsonSchema: TypeAlias = Mapping[str, Any]

FinishReason: TypeAlias = Literal["stop", "length", "content_filter", "other"]
"""Why the model stopped: done, out of room, withheld by the provider, or something else."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of the conversation that the model is given."""

    role: Literal["system", "user", "assistant"]
    content: str
    """Text that can be sent: half surrogate pairs, as in broken file names, are question marks."""

    def __post_init__(self) -> None:
        sendable = self.content.encode(errors="replace").decode()
        object.__setattr__(self, "content", sendable)


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """What one reply cost, as the provider counts."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    """How many of the prompt's tokens the provider had already seen."""

    @property
    def total_tokens(self) -> int:
        """Return prompt and reply together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the reply."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """The next piece of what the model thinks before it replies; no part of the reply."""

    text: str


@dataclass(frozen=True, slots=True)
class RetryScheduled:
    """Nothing has come yet, and the request will be made again: the reason for the wait."""

    attempt: int
    """The number of the attempt to come; the first retry is 2."""
    wait_seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class PromptRead:
    """Nothing has come yet, but the model is at work: how much of the prompt it has read."""

    read_tokens: int
    total_tokens: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a stream; nothing follows it."""

    reason: FinishReason
    usage: TokenUsage | None = None
    """None when the provider does not count."""
    notices: tuple[str, ...] = ()
    """What was asked of the provider and could not be had, such as a response format."""


ModelEvent: TypeAlias = TextDelta | ThinkingDelta | RetryScheduled | PromptRead | Finished


class ModelStream(Protocol):
    """One reply as it arrives.

    The caller enters it, iterates once and leaves it. Leaving it, at any point,
    stops the provider. A stream that does not end with `Finished` ends with a
    `ModelError`.
    """

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def __iter__(self) -> Iterator[ModelEvent]: ...

    def cancel(self) -> None:
        """Stop the reply, from any thread and at any time.

        The thread that iterates gets `ReplyCancelledError` at once, even in the middle of a wait.
        """


class ChatModel(Protocol):
    """A model that answers conversations. `stream` is safe from several threads at once."""

    @property
    def name(self) -> str:
        """Return what a person should read: the model, and where it runs."""

    @property
    def context_tokens(self) -> int | None:
        """Return how many tokens prompt and reply may have together; None when not known."""

    def stream(
        self,
        messages: Sequence[Message],
        *,
        schema: JsonSchema | None = None,
        max_tokens: int | None = None,
    ) -> ModelStream:
        """Prepare a reply; the request is made when the stream is entered.

        Args:
            schema: The JSON the reply should be. How strictly the model is held to it
                depends on the provider, so the reply may still differ.
            max_tokens: Room for the reply, if it is to be less than the configured one.
        """

    def close(self) -> None:
        """Let go of what the model holds; streams still open are cancelled or fail."""
