"""What the models of a session have cost, in tokens."""

from __future__ import annotations

from collections.abc import Sequence

from taskweaver_ext.events.extras import UsageDict
from taskweaver_ext.llm.chat_model import Message, TokenUsage

CHARACTERS_PER_TOKEN = 4
"""Of English and of code; in other scripts a character is counted as a token."""
TOKENS_PER_MESSAGE = 4


class TokenCounter:
    """Add up tokens for the running round and for the whole session."""

    def __init__(self) -> None:
        self.round = TokenUsage(0, 0)
        self.session = TokenUsage(0, 0)
        self.has_estimates = False
        """Whether a provider did not count, and characters were counted instead."""

    def begin_round(self) -> None:
        """Count from zero for the round."""
        self.round = TokenUsage(0, 0)

    def add(self, usage: TokenUsage | None, messages: Sequence[Message], reply: str) -> None:
        """Take what one reply cost; where the provider did not say, estimate it."""
        if usage is None:
            self.has_estimates = True
            usage = TokenUsage(estimate_tokens(messages), _tokens_of(reply))
        self.round = _sum(self.round, usage)
        self.session = _sum(self.session, usage)

    def to_dict(self) -> UsageDict:
        """Return what the whole session has cost; `restore` takes it."""
        return {
            "prompt": self.session.prompt_tokens,
            "completion": self.session.completion_tokens,
            "cached": self.session.cached_tokens,
            "is_estimate": self.has_estimates,
        }

    def restore(self, usage: UsageDict) -> None:
        """Go on counting from what an earlier process has counted."""
        self.session = TokenUsage(usage["prompt"], usage["completion"], usage["cached"])
        self.has_estimates = usage["is_estimate"]

    def describe(self) -> str:
        """Return the count in a few words, for a status line."""
        about = "about " if self.has_estimates else ""
        return (
            f"{about}{self.round.total_tokens:,} tokens in this round, "
            f"{self.session.total_tokens:,} in the session"
        )

    def describe_round(self) -> str:
        """Return the count of the round, with what was read and what was written."""
        about = "about " if self.has_estimates else ""
        used = self.round
        return (
            f"{about}{used.total_tokens:,} tokens: {used.prompt_tokens:,} read, "
            f"{used.completion_tokens:,} written"
        )


def estimate_tokens(messages: Sequence[Message]) -> int:
    """Return roughly how many tokens the messages have."""
    return sum(TOKENS_PER_MESSAGE + _tokens_of(message.content) for message in messages)


def _tokens_of(text: str) -> int:
    plain = len(text.encode("ascii", "ignore"))
    return plain // CHARACTERS_PER_TOKEN + len(text) - plain


def _sum(one: TokenUsage, other: TokenUsage) -> TokenUsage:
    return TokenUsage(
        one.prompt_tokens + other.prompt_tokens,
        one.completion_tokens + other.completion_tokens,
        one.cached_tokens + other.cached_tokens,
    )
