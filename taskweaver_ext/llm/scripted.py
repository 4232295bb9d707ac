"""A model that says what it was given to say: for demonstrations and for tests.

It is labelled as such wherever a model's name is shown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from taskweaver_ext.closing import Closeable
from taskweaver_ext.errors import ModelError
from taskweaver_ext.llm.chat_model import (
    Finished,
    FinishReason,
    JsonSchema,
    Message,
    ModelEvent,
    ModelStream,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
)
from taskweaver_ext.llm.model_errors import ReplyCancelledError

SCRIPTED_NAME = "scripted replies (no model)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedReply:
    """One reply to be given."""

    text: str
    thinking: str = ""
    finish_reason: FinishReason = "stop"
    failure: ModelError | None = None
    """Raised once the text is out, in place of an ordinary end."""


ScriptEntry: TypeAlias = str | ScriptedReply | Callable[[Sequence[Message]], str | ScriptedReply]
"""A reply, or a function that makes one from the messages that the model was given."""


class ScriptedModel:
    """Give the replies of a script, one per stream, in pieces and at a readable pace.

    `requests` keeps the messages of every stream, oldest first.
    """

    def __init__(
        self,
        script: Sequence[ScriptEntry],
        *,
        piece_chars: int = 4,
        delay_seconds: float = 0.0,
        context_tokens: int | None = None,
    ) -> None:
        self.requests: list[tuple[Message, ...]] = []
        self._script = list(script)
        self._piece_chars = piece_chars
        self._delay_seconds = delay_seconds
        self._context_tokens = context_tokens
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """Return a label that cannot be mistaken for a model."""
        return SCRIPTED_NAME

    @property
    def context_tokens(self) -> int | None:
        """Return the size that the script pretends to have."""
        return self._context_tokens

    def stream(
        self,
        messages: Sequence[Message],
        *,
        schema: JsonSchema | None = None,
        max_tokens: int | None = None,
    ) -> ModelStream:
        """Begin the next reply of the script, which heeds neither schema nor room.

        Raises:
            ModelError: The script has come to its end.
        """
        with self._lock:
            position = len(self.requests)
            if position >= len(self._script):
                raise ModelError(
                    f"The script ends after {len(self._script)} replies, and one more was asked "
                    "for. Choose a real model to go on."
                )
            self.requests.append(tuple(messages))
            entry = self._script[position]
        reply = entry(messages) if callable(entry) else entry
        if isinstance(reply, str):
            reply = ScriptedReply(text=reply)
        prompt_chars = sum(len(message.content) for message in messages)
        return _ScriptedStream(reply, self._piece_chars, self._delay_seconds, prompt_chars)

    def close(self) -> None:
        """Do nothing: a script holds nothing."""


class _ScriptedStream(Closeable):
    """The `ModelStream` of one scripted reply; it needs no thread, only an event to wait on."""

    def __init__(
        self, reply: ScriptedReply, piece_chars: int, delay_seconds: float, prompt_chars: int
    ) -> None:
        self._reply = reply
        self._piece_chars = piece_chars
        self._delay_seconds = delay_seconds
        self._prompt_chars = prompt_chars
        self._cancelled = threading.Event()
        self._given: list[str] = []

    def close(self) -> None:
        """Stop the reply."""
        self.cancel()

    def __iter__(self) -> Iterator[ModelEvent]:
        for piece in self._pieces(self._reply.thinking):
            yield ThinkingDelta(piece)
        for piece in self._pieces(self._reply.text):
            self._given.append(piece)
            yield TextDelta(piece)
        if self._reply.failure is not None:
            raise self._reply.failure
        yield Finished(self._reply.finish_reason, self._usage())

    def cancel(self) -> None:
        """Stop the reply at the next piece, or in the wait for it."""
        self._cancelled.set()

    def _pieces(self, text: str) -> Iterator[str]:
        for start in range(0, len(text), self._piece_chars):
            if self._cancelled.wait(self._delay_seconds):
                error = ReplyCancelledError("The reply was cancelled.")
                error.received = "".join(self._given)
                raise error
            yield text[start : start + self._piece_chars]

    def _usage(self) -> TokenUsage:
        # Four characters per token, a rule of thumb: no tokens were counted.
        completion_chars = len(self._reply.text) + len(self._reply.thinking)
        return TokenUsage(self._prompt_chars // 4, completion_chars // 4)
