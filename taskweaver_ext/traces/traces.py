"""What a session tells those that trace programs: when a round, a model call or a run lasted.

A seam: sessions and roles call `Traces`. Without the setting `tracing.enabled` it is `NoTraces`,
which costs nothing; with it, `traces/open_telemetry.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from taskweaver_ext.ces.execution.results import ExecutionResult
from taskweaver_ext.conversation import PostId, Round, RoundId
from taskweaver_ext.llm.chat_model import Finished, Message

OnReply: TypeAlias = Callable[[Finished | None, str], None]
"""Told how a reply ended, if it did, and its text."""
OnResult: TypeAlias = Callable[[ExecutionResult], None]
"""Told what came of code."""


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """Which model is asked, in the words of those that trace."""

    provider: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedPost:
    """Where in a session something happens; its events have the same ids."""

    session_id: str
    round_id: RoundId
    post_id: PostId
    role: str


class Traces(Protocol):
    """Each block is one span, which ends with the block, however that is left."""

    def round(self, session_id: str, chat_round: Round) -> AbstractContextManager[None]:
        """A round in which roles answer; its state at the end of the block says how it went."""

    def model_call(
        self,
        place: TracedPost,
        llm_alias: str,
        messages: Sequence[Message],
        max_tokens: int | None,
    ) -> AbstractContextManager[OnReply]:
        """One reply of a model."""

    def execution(
        self, place: TracedPost, language: str, code: str
    ) -> AbstractContextManager[OnResult]:
        """One run of code; its execution id is the id of its post."""


class NoTraces:
    """Nobody traces."""

    def round(self, session_id: str, chat_round: Round) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()

    def model_call(
        self,
        place: TracedPost,
        llm_alias: str,
        messages: Sequence[Message],
        max_tokens: int | None,
    ) -> AbstractContextManager[OnReply]:
        """Do nothing."""
        return nullcontext(lambda _finished, _text: None)

    def execution(
        self, place: TracedPost, language: str, code: str
    ) -> AbstractContextManager[OnResult]:
        """Do nothing."""
        return nullcontext(lambda _result: None)
