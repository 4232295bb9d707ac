"""The one reading of a reply: it feeds panel, attachments and execution alike.

A form of replies is a `Form` (what the model is told, and what it is told it had written) with a
`ReplyReading` (how a reply is read while it arrives). A reading hands everything it
finds to a `ShownReply`, and takes it back there when the model gives something else
instead; it keeps nothing of its own that would be run. Linear in time, whatever the chunks.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence
from typing import ClassVar

from taskweaver_ext.ces.programs.languages import canonical_name
from taskweaver_ext.conversation import Post
from taskweaver_ext.events.emitter import PostEventProxy
from taskweaver_ext.llm.chat_model import JsonSchema
from taskweaver_ext.roles.base.correction import UnusableReplyError
from taskweaver_ext.roles.base.model_caller import ModelReply
from taskweaver_ext.roles.code_interpreter.shown_reply import (
    GeneratedCode,
    GeneratedText,
    ShownReply,
)
from taskweaver_ext.streaming.text_blocks import BlockPiece, TextBlockSplitter


class ReplyReading(abc.ABC):
    """One reply as it arrives: `feed` for each piece, then `finish` or `abandon`."""

    def __init__(
        self, post: PostEventProxy, languages: Sequence[str], code_prefix: str = ""
    ) -> None:
        self._languages = languages
        self._shown = ShownReply(post, languages, code_prefix)
        self._block: LoneBlock | None = LoneBlock(self._shown)

    @abc.abstractmethod
    def feed(self, text: str) -> None:
        """Read and show the next piece of the reply."""

    @abc.abstractmethod
    def finish(self, reply: ModelReply) -> GeneratedCode | GeneratedText:
        """Complete what is shown, and return it.

        Raises:
            UnusableReplyError: It lacks something.
        """

    def abandon(self, reason: str) -> None:
        """Take note that the reply is of no use."""
        self._shown.break_off(reason)

    def _drop_block(self) -> None:
        """Take note that the reply has a form: a block of code beside it is prose."""
        if self._block is not None:
            self._block = None
            self._shown.forget_content()

    def _accept_block(self, reply: ModelReply, otherwise: str) -> None:
        """Let the one block of code in a whole reply in words be the content, or raise."""
        block = self._block
        if block is not None:
            block.close()
        if block is None or not block.is_alone or reply.problem:
            what = otherwise if reply.text.strip() else "The reply is empty."
            raise UnusableReplyError(reply.problem or what)
        self._shown.choose(block.language)


class LoneBlock:
    """The code of a reply in words that has one block of it, shown as it arrives."""

    def __init__(self, shown: ShownReply) -> None:
        self.language = ""
        self._shown = shown
        self._splitter = TextBlockSplitter()
        self._index = -1
        self._count = 0
        self._has_begun = False

    @property
    def is_alone(self) -> bool:
        """Whether there is a block, and only one."""
        return self._count == 1

    def feed(self, text: str) -> None:
        """Read the next piece of the reply."""
        self._receive(self._splitter.feed(text))

    def close(self) -> None:
        """Read what was still waiting."""
        self._receive(self._splitter.close())

    def _receive(self, pieces: Iterable[BlockPiece]) -> None:
        for piece in pieces:
            if piece.kind != "code":
                continue
            if piece.index != self._index:
                self._index = piece.index
                self._count += 1
                self.language = self.language or canonical_name(piece.language or "python")
            if self.is_alone and piece.text:
                self._show(piece.text)

    def _show(self, text: str) -> None:
        self._shown.add_content(text)
        if not self._has_begun and text.strip():
            self._has_begun = True
            if not text.lstrip().startswith("{"):  # which may be a reply in JSON
                self._shown.choose(self.language)


class Form(abc.ABC):
    """A form in which a model can reply."""

    prompt_name: ClassVar[str]
    """Which text of the prompt file describes it."""

    def __init__(self, languages: Sequence[str], code_prefix: str = "") -> None:
        self._languages = tuple(languages)
        self._code_prefix = code_prefix

    @abc.abstractmethod
    def schema(self) -> JsonSchema | None:
        """Return the JSON that the reply is to be, if it is to be JSON."""

    @abc.abstractmethod
    def read(self, post: PostEventProxy) -> ReplyReading:
        """Begin to read a reply."""

    @abc.abstractmethod
    def reply_text(self, post: Post) -> str:
        """Return what the model had written for a post."""
