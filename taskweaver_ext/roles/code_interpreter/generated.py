"""What a model wrote for the code interpreter, whatever the form in which it did."""

from __future__ import annotations

import time
from dataclasses import dataclass

from taskweaver_ext.ces.execution.contract import ExecutionFailure, PromisedFile
from taskweaver_ext.ces.execution.results import ExecutionId
from taskweaver_ext.events.emitter import PostEventProxy
from taskweaver_ext.streaming.decision import CHANNEL_DECISION, DecisionPaths
from taskweaver_ext.streaming.exec_widget import ExecWidget
from taskweaver_ext.streaming.text_blocks import TextBlockSplitter

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


def find_code_block(text: str) -> tuple[str, str] | None:
    """Return language and code of the one block of code in a free answer; None unless it is one."""
    splitter = TextBlockSplitter()
    blocks: dict[int, tuple[str, str]] = {}
    for piece in (*splitter.feed(text), *splitter.close()):
        if piece.kind == "code":
            _, code = blocks.get(piece.index, ("", ""))
            blocks[piece.index] = (piece.language or "python", code + piece.text)
    return next(iter(blocks.values())) if len(blocks) == 1 else None
