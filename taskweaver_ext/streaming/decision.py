"""Read a model's decision as it streams: tool, name of the program, objective, contract.

Memory is bounded and the work linear: code passes through, and a decision of more
than a million characters is refused.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Literal, TypeAlias

from taskweaver_ext.ces.execution.contract import ExecutionFailure
from taskweaver_ext.errors import ProtocolError
from taskweaver_ext.streaming.code_cleaning import FenceStripper
from taskweaver_ext.text.json_stream import JsonStringPiece, JsonStringScanner

MAX_DECISION_LENGTH = 1_000_000
MAX_VALUE_LENGTH = 10_000

DecisionPart: TypeAlias = Literal[
    "tool_id", "code_exec.objective", "code_exec.program.name", "code_exec.code"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPaths:
    """Where in the decision its parts are (`text.json_stream`); an empty path means nowhere."""

    tool_id: str = "tool_call.tool_id"
    program_name: str = "tool_call.params.prog_name"
    objective: str = "notes"
    contract: str = "tool_call.params.contract"
    code: str = ""


CHANNEL_DECISION = DecisionPaths()
"""The decision that comes beside a channel of code."""


class DecisionReader:
    """Read a decision as it streams: its short strings, its code, and in the end its contract."""

    def __init__(self, paths: DecisionPaths) -> None:
        self._contract_path = paths.contract
        self._parts: dict[str, DecisionPart] = {
            paths.tool_id: "tool_id",
            paths.program_name: "code_exec.program.name",
            paths.objective: "code_exec.objective",
            paths.code: "code_exec.code",
        }
        self._parts.pop("", None)
        self._scanner = JsonStringScanner(*self._parts)
        self._text = io.StringIO()
        self._length = 0
        self._value = ""  # of the short string that is being read
        self._fence = FenceStripper()
        self.is_over = False
        self.problem: ExecutionFailure | None = None
        """Why it cannot be used."""

    @property
    def has_begun(self) -> bool:
        """Whether anything of it has come."""
        return self._length > 0

    def feed(self, text: str) -> list[tuple[DecisionPart, str]]:
        """Return the pieces of code, and the other strings that are complete now."""
        if not self.has_begun:
            text = text[text.find("{") :] if "{" in text else ""
        if self.is_over or not text:
            return []
        self._length += len(text)
        if self._length > MAX_DECISION_LENGTH:
            self._break("decision_too_large", "The decision is too long to be read.")
            return []
        self._text.write(text)
        try:
            pieces = self._scanner.feed(text)
        except ProtocolError as error:
            pieces = []
            # What follows the closing brace, such as the end of a fence, does not matter.
            if not self._scanner.finished:
                self._break("invalid_decision", str(error))
        if self._scanner.finished:
            self.is_over = True
        return [part for piece in pieces for part in self._parts_of(piece)]

    def finish(self) -> None:
        """Take note that no more comes."""
        if not self.is_over and self.has_begun:
            try:
                self._scanner.close()
            except ProtocolError as error:
                self._break("invalid_decision", str(error))
        self.is_over = True

    def contract(self) -> object:
        """Return what stands at the contract's place; None when nothing does."""
        if not self.has_begun or not self._contract_path:
            return None
        decoder = json.JSONDecoder(strict=False)
        try:
            value, _ = decoder.raw_decode(self._text.getvalue())
        except (ValueError, RecursionError):
            return None
        for key in self._contract_path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def _break(self, code: str, message: str) -> None:
        self.problem = ExecutionFailure(code=code, message=message, where="decision")
        self.is_over = True

    def _parts_of(self, piece: JsonStringPiece) -> list[tuple[DecisionPart, str]]:
        part = self._parts[piece.path]
        if part == "code_exec.code":
            code = self._fence.feed(piece.text)
            if piece.completed:
                code += self._fence.close()
                self._fence = FenceStripper()
            return [(part, code)]
        self._value = (self._value + piece.text)[:MAX_VALUE_LENGTH]
        if not piece.completed:
            return []
        value, self._value = self._value, ""
        return [(part, value)]
