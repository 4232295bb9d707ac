"""What a model wrote for the code interpreter, whatever the form in which it did."""

from __future__ import annotations

import abc
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from taskweaver_ext.ces.execution.contract import ExecutionFailure, PromisedFile
from taskweaver_ext.ces.execution.results import ExecutionId
from taskweaver_ext.conversation import AttachmentType, Post
from taskweaver_ext.events.emitter import PostEventProxy
from taskweaver_ext.llm.chat_model import JsonSchema
from taskweaver_ext.roles.base.live_fields import LiveFields
from taskweaver_ext.roles.base.model_caller import ModelReply
from taskweaver_ext.streaming.code_cleaning import FenceStripper
from taskweaver_ext.streaming.decision import CHANNEL_DECISION, DecisionPaths
from taskweaver_ext.streaming.exec_widget import ExecWidget
from taskweaver_ext.streaming.text_blocks import TextBlockSplitter

ATTACHMENTS = {
    "thought": AttachmentType.thought,
    "reply_type": AttachmentType.reply_type,
    "reply_content": AttachmentType.reply_content,
}
"""Where a post shows the fields of a reply."""
MESSAGE = "message"
"""The field that is the post's message."""

NO_DECISION = DecisionPaths(tool_id="", program_name="", objective="", contract="", code="")


@dataclass(frozen=True, slots=True)
class GeneratedText:
    """An answer in words; there is nothing to run."""

    text: str


@dataclass(frozen=True, slots=True)
class GeneratedCode:
    """Code that is to be checked and run."""

    language: str
    code: str
    panel: Panel


class Panel:
    """The execution panel of one post: silent until it is known that there is code, and which."""

    def __init__(self, post: PostEventProxy, agent: str) -> None:
        self._post = post
        self._agent = agent
        self._widget: ExecWidget | None = None
        self._code_waiting: list[str] = []

    @property
    def contract(self) -> tuple[PromisedFile, ...]:
        """The files that are promised."""
        return self._widget.contract if self._widget else ()

    def open(self, language: str, tool_id: str | None = None) -> None:
        """Say which language the code is in; with a tool's id, its decision follows."""
        if self._widget is None:
            self._widget = ExecWidget(
                ExecutionId(self._post.post.id),
                self._post.emit_code_exec,
                time.monotonic,
                tool_id=tool_id,
                paths=NO_DECISION if tool_id is None else CHANNEL_DECISION,
                requires_contract=tool_id is not None,
                language=language,
                agent=self._agent,
            )
            for text in self._code_waiting:
                self._widget.feed_code(text)
            self._code_waiting.clear()

    def feed_decision(self, text: str) -> None:
        """Take the next piece of the decision."""
        if self._widget is not None:
            self._widget.feed_decision(text)

    def feed_code(self, text: str) -> None:
        """Take the next piece of the code."""
        if self._widget is None:
            self._code_waiting.append(text)
        else:
            self._widget.feed_code(text)

    def finish_generation(self) -> ExecutionFailure | None:
        """Complete the code; return what stands against running it, if anything does."""
        return self._widget.generation_finished() if self._widget else None

    def break_off(self, reason: str) -> None:
        """Say that the code will never be complete."""
        if self._widget is not None:
            self._widget.stream_broken(reason)

    def start_execution(self) -> None:
        """Say that the code runs now."""
        if self._widget is not None:
            self._widget.execution_started()

    def finish_execution(self, failure: ExecutionFailure | None) -> None:
        """Say how it ended, or why it did not run."""
        if self._widget is not None:
            self._widget.execution_finished(failure)


class ReplyReader(abc.ABC):
    """One reply as it arrives: `feed` for each piece, then `finish` or `abandon`."""

    def __init__(self, post: PostEventProxy, languages: Sequence[str]) -> None:
        self._languages = languages
        self._live = LiveFields(post, ATTACHMENTS, MESSAGE)
        self._panel = Panel(post, post.post.send_from)
        self._fence = FenceStripper()

    @abc.abstractmethod
    def feed(self, text: str) -> None:
        """Show the next piece of the reply."""

    @abc.abstractmethod
    def finish(self, reply: ModelReply) -> GeneratedCode | GeneratedText:
        """Make sense of the whole reply.

        Raises:
            UnusableReplyError: It lacks something.
        """

    def abandon(self, reason: str) -> None:
        """Take note that the reply is of no use."""
        self._panel.break_off(reason)


class Form(abc.ABC):
    """A form in which a model can reply."""

    prompt_name: ClassVar[str]
    """Which text of the prompt file describes it."""

    def __init__(self, languages: Sequence[str]) -> None:
        self._languages = tuple(languages)

    @abc.abstractmethod
    def schema(self) -> JsonSchema | None:
        """Return the JSON that the reply is to be, if it is to be JSON."""

    @abc.abstractmethod
    def reader(self, post: PostEventProxy) -> ReplyReader:
        """Begin to read a reply."""

    @abc.abstractmethod
    def reply_text(self, post: Post) -> str:
        """Return what the model had written for a post."""


def find_code_block(text: str) -> tuple[str, str] | None:
    """Return language and code of the one block of code in a free answer; None unless it is one."""
    splitter = TextBlockSplitter()
    blocks: dict[int, tuple[str, str]] = {}
    for piece in (*splitter.feed(text), *splitter.close()):
        if piece.kind == "code":
            _, code = blocks.get(piece.index, ("", ""))
            blocks[piece.index] = (piece.language or "python", code + piece.text)
    return next(iter(blocks.values())) if len(blocks) == 1 else None
