"""Replies of the code interpreter's model in channels: thinking, a decision, and the code."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from taskweaver_ext.ces.execution.contract import (
    ContractProblem,
    ExecutionFailure,
    parse_contract,
)
from taskweaver_ext.ces.programs.languages import canonical_name
from taskweaver_ext.conversation import Post
from taskweaver_ext.events.emitter import PostEventProxy
from taskweaver_ext.roles.base.correction import UnusableReplyError
from taskweaver_ext.roles.base.live_fields import shown_fields
from taskweaver_ext.roles.base.model_caller import ModelReply
from taskweaver_ext.roles.base.reply_json import FieldPiece, ReplyFieldReader
from taskweaver_ext.roles.code_interpreter.reply_reading import Form, ReplyReading
from taskweaver_ext.roles.code_interpreter.shown_reply import (
    ATTACHMENTS,
    CONTENT,
    THOUGHT,
    TYPE,
    GeneratedCode,
    GeneratedText,
)
from taskweaver_ext.streaming.channels import OUTSIDE, ChannelEvent, ChannelParser
from taskweaver_ext.streaming.decision import MAX_VALUE_LENGTH

THINKING, DECISION, CODE = "thinking", "ReactDecisionOutV2", "code"
TOOL_PREFIX = "exec_tools.execute_code_"

_ACTION, _ANSWER, _NOTES = "action", "final_answer", "notes"
_TOOL_ID = "tool_call.tool_id"
_PROGRAM = "tool_call.params.prog_name"
_CONTRACT = "tool_call.params.contract"
_COMPLETE = "complete"

_PANEL_PARTS: dict[str, Literal["code_exec.objective", "code_exec.program.name"]] = {
    _NOTES: "code_exec.objective",
    _PROGRAM: "code_exec.program.name",
}


class ChannelForm(Form):
    """Three channels: what the model thinks, what it decides (JSON), and the code as it is."""

    prompt_name = "channel_form"

    def schema(self) -> None:
        """Return None: the reply as a whole is no JSON."""

    def read(self, post: PostEventProxy) -> ChannelReading:
        """Begin to read a reply."""
        return ChannelReading(post, self._languages, self._code_prefix)

    def reply_text(self, post: Post) -> str:
        """Return what the model had written for a post."""
        texts = shown_fields(post, ATTACHMENTS)
        thinking = _channel(THINKING, texts.get(THOUGHT, ""))
        if CONTENT not in texts:
            decision: dict[str, Any] = {_ACTION: _COMPLETE, _ANSWER: post.message}
            return thinking + _channel(DECISION, json.dumps(decision, ensure_ascii=False))
        tool_id = TOOL_PREFIX + texts.get(TYPE, "python")
        call = {"tool_id": tool_id, "params": {"prog_name": "program", "contract": []}}
        decision = {_ACTION: "call_tool", _NOTES: "", "tool_call": call}
        code = _channel(CODE, texts[CONTENT])
        return thinking + _channel(DECISION, json.dumps(decision, ensure_ascii=False)) + code


class ChannelReading(ReplyReading):
    """One reply as it arrives."""

    def __init__(
        self, post: PostEventProxy, languages: Sequence[str], code_prefix: str = ""
    ) -> None:
        super().__init__(post, languages, code_prefix)
        self._parser = ChannelParser((THINKING, DECISION, CODE))
        self._decision = ReplyFieldReader((_ACTION, _NOTES, _ANSWER, _TOOL_ID, _PROGRAM, _CONTRACT))
        self._values: dict[str, list[str]] = {}
        self._thoughts: list[str] = []
        self._thinking_instance = 0
        self._is_answered = False
        self._failure: ExecutionFailure | None = None
        self._is_contract_read = False

    def feed(self, text: str) -> None:
        """Read and show the next piece of the reply."""
        for event in self._parser.feed(text):
            self._receive(event)

    def finish(self, reply: ModelReply) -> GeneratedCode | GeneratedText:
        """Complete what is shown, and return it, or raise UnusableReplyError."""
        for event in self._parser.close(broken=bool(reply.problem)):
            self._receive(event)
        if reply.problem and self._parser.open_channel:
            raise UnusableReplyError(reply.problem)
        self._read_decision(self._decision.close())
        thought = {THOUGHT: "".join(self._thoughts)}
        tool_id = self._value(_TOOL_ID)
        answer = (self._decision.texts or {}).get(_ANSWER, "")
        if answer.strip() and not tool_id:
            self._shown.finish_text(thought, answer)
            return GeneratedText(answer)
        if self._block is not None:
            self._accept_block(reply, "The reply has no channels.")
        elif tool_id:
            self._shown.choose(_language_of(tool_id))
        if self._shown.kind not in self._languages:
            tools = ", ".join(TOOL_PREFIX + name for name in self._languages)
            raise UnusableReplyError(reply.problem or f"The decision must name one of {tools}.")
        if self._block is None:
            self._shown.panel.begin()
            self._read_contract()
        if failure := self._shown.finish_code(thought, self._failure):
            raise UnusableReplyError(f"{failure.message} ({failure.code})")
        return GeneratedCode(self._shown)

    def _value(self, name: str) -> str:
        return "".join(self._values.get(name, ()))

    def _receive(self, event: ChannelEvent) -> None:
        if event.channel == OUTSIDE:
            if self._block is not None:
                self._block.feed(event.text)
        elif event.channel == THINKING:
            self._think(event)
        elif event.text.strip():
            self._drop_block()
        if event.channel == DECISION:
            self._read_decision(self._decision.feed(event.text))
        elif event.channel == CODE and event.completed:
            self._shown.end_part()
        elif event.channel == CODE:
            self._shown.add_content(event.text)

    def _think(self, event: ChannelEvent) -> None:
        is_another = event.instance != self._thinking_instance and bool(self._thoughts)
        self._thinking_instance = event.instance
        text = f"\n{event.text}" if is_another else event.text
        self._thoughts.append(text)
        self._shown.add(THOUGHT, text)

    def _read_decision(self, pieces: Iterable[FieldPiece]) -> None:
        for piece in pieces:
            if piece.restarts:
                for name in [piece.name] if piece.name else [*self._values]:
                    self._values.pop(name, None)
            if piece.text:
                self._values.setdefault(piece.name, []).append(piece.text)
            if piece.completed:
                self._complete(piece.name)
            elif piece.name == _ANSWER and self._is_answered:
                self._shown.add_answer(piece.text)
        if self._decision.is_complete and self._shown.panel.status is not None:
            self._read_contract()

    def _complete(self, name: str) -> None:
        panel = self._shown.panel
        if name == _ACTION:
            self._is_answered = self._value(_ACTION).strip() == _COMPLETE
        elif name == _TOOL_ID and not self._shown.kind:
            self._shown.choose(_language_of(self._value(_TOOL_ID)))
            if self._shown.kind in self._languages:
                panel.begin()
                for waiting in self._values:
                    self._complete(waiting)
        elif name in _PANEL_PARTS and panel.status is not None:
            panel.say(_PANEL_PARTS[name], self._value(name)[:MAX_VALUE_LENGTH])

    def _read_contract(self) -> None:
        """Read what the decision promises, or why it cannot be used; once."""
        if self._is_contract_read:
            return
        self._is_contract_read = True
        if problem := self._decision.problem:
            self._failure = ExecutionFailure(
                code="invalid_decision", message=problem, where="decision"
            )
            return
        contract = parse_contract(self._decision.value(_CONTRACT))
        if isinstance(contract, ContractProblem):
            self._failure = ExecutionFailure(
                code=contract.code, message=contract.message, where="contract"
            )
        else:
            self._shown.panel.promise(contract)


def _language_of(tool_id: str) -> str:
    return canonical_name(tool_id.removeprefix(TOOL_PREFIX))


def _channel(name: str, text: str) -> str:
    return f"<channel:{name}>{text}</channel:{name}>\n"
