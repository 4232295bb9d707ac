"""Replies of the code interpreter's model in channels: thinking, a decision, and the code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from taskweaver_ext.ces.programs.languages import canonical_name
from taskweaver_ext.conversation import Post
from taskweaver_ext.errors import ProtocolError
from taskweaver_ext.events.emitter import PostEventProxy
from taskweaver_ext.roles.base.correction import UnusableReplyError
from taskweaver_ext.roles.base.live_fields import shown_fields
from taskweaver_ext.roles.base.model_caller import ModelReply
from taskweaver_ext.roles.base.reply_json import parse_reply
from taskweaver_ext.roles.code_interpreter.generated import (
    ATTACHMENTS,
    MESSAGE,
    Form,
    GeneratedCode,
    GeneratedText,
    ReplyReader,
    find_code_block,
)
from taskweaver_ext.streaming.channels import ChannelEvent, ChannelParser
from taskweaver_ext.text.json_stream import JsonStringScanner

THINKING, DECISION, CODE = "thinking", "ReactDecisionOutV2", "code"
TOOL_PREFIX = "exec_tools.execute_code_"

_TOOL_ID = "tool_call.tool_id"
_ANSWER = "final_answer"


class ChannelForm(Form):
    """Three channels: what the model thinks, what it decides (JSON), and the code as it is."""

    prompt_name = "channel_form"

    def schema(self) -> None:
        """Return None: the reply as a whole is no JSON."""

    def reader(self, post: PostEventProxy) -> ChannelReader:
        """Begin to read a reply."""
        return ChannelReader(post, self._languages)

    def reply_text(self, post: Post) -> str:
        """Return what the model had written for a post."""
        texts = shown_fields(post, ATTACHMENTS)
        thinking = _channel(THINKING, texts.get("thought", ""))
        if "reply_content" not in texts:
            decision: dict[str, Any] = {"action": "complete", _ANSWER: post.message}
            return thinking + _channel(DECISION, json.dumps(decision, ensure_ascii=False))
        tool_id = TOOL_PREFIX + texts.get("reply_type", "python")
        call = {"tool_id": tool_id, "params": {"prog_name": "program", "contract": []}}
        decision = {"action": "call_tool", "notes": "", "tool_call": call}
        code = _channel(CODE, texts["reply_content"])
        return thinking + _channel(DECISION, json.dumps(decision, ensure_ascii=False)) + code


class ChannelReader(ReplyReader):
    """One reply as it arrives."""

    def __init__(self, post: PostEventProxy, languages: Sequence[str]) -> None:
        super().__init__(post, languages)
        self._parser = ChannelParser((THINKING, DECISION, CODE))
        self._texts = {THINKING: "", DECISION: "", CODE: ""}
        self._scanner: JsonStringScanner | None = JsonStringScanner(_TOOL_ID, _ANSWER)
        self._has_begun_decision = False
        self._tool_id = ""
        self._is_tool_known = False

    def feed(self, text: str) -> None:
        """Show the next piece of the reply."""
        for event in self._parser.feed(text):
            self._receive(event)

    def finish(self, reply: ModelReply) -> GeneratedCode | GeneratedText:
        """Make sense of the whole reply, or raise UnusableReplyError."""
        for event in self._parser.close(broken=bool(reply.problem)):
            self._receive(event)
        if reply.problem and self._parser.open_channel:
            raise UnusableReplyError(reply.problem)
        self._show_code(self._fence.close())
        decision = parse_reply(self._texts[DECISION], ("action", "notes", _ANSWER)) or {}
        answer = decision.get(_ANSWER, "")
        if answer.strip() and not self._tool_id:
            self._live.complete({"thought": self._texts[THINKING], MESSAGE: answer})
            return GeneratedText(answer)
        if not self._texts[DECISION].strip() and not self._texts[CODE].strip():
            self._accept_block(reply)
        language = canonical_name(self._tool_id.removeprefix(TOOL_PREFIX))
        if not self._tool_id or language not in self._languages:
            tools = ", ".join(TOOL_PREFIX + name for name in self._languages)
            raise UnusableReplyError(reply.problem or f"The decision must name one of {tools}.")
        if failure := self._panel.finish_generation():
            raise UnusableReplyError(f"{failure.message} ({failure.code})")
        texts = {"thought": self._texts[THINKING], "reply_type": language}
        self._live.complete({**texts, "reply_content": self._texts[CODE]})
        return GeneratedCode(language, self._texts[CODE], self._panel)

    def _receive(self, event: ChannelEvent) -> None:
        if event.channel == THINKING:
            self._texts[THINKING] += event.text
            self._live.add("thought", event.text)
        elif event.channel == DECISION:
            self._read_decision(event.text)
        elif event.channel == CODE:
            self._show_code(self._fence.feed(event.text))

    def _read_decision(self, text: str) -> None:
        if not self._has_begun_decision:
            text = text[text.find("{") :] if "{" in text else ""
            self._has_begun_decision = bool(text)
        self._texts[DECISION] += text
        if self._is_tool_known:
            self._panel.feed_decision(text)
        if self._scanner is None or not text:
            return
        try:
            pieces = self._scanner.feed(text)
        except ProtocolError:
            self._scanner = None  # the panel says what is wrong with it
            return
        for piece in pieces:
            if piece.path == _ANSWER:
                self._live.add(MESSAGE, piece.text)
                continue
            self._tool_id += piece.text
            if piece.completed and not self._is_tool_known:
                self._is_tool_known = True
                self._open_panel()

    def _open_panel(self) -> None:
        if self._tool_id.startswith(TOOL_PREFIX):
            language = canonical_name(self._tool_id.removeprefix(TOOL_PREFIX))
            self._panel.open(language, self._tool_id)
            self._panel.feed_decision(self._texts[DECISION])

    def _show_code(self, code: str) -> None:
        if code:
            self._texts[CODE] += code
            self._panel.feed_code(code)
            self._live.add("reply_content", code)

    def _accept_block(self, reply: ModelReply) -> None:
        """Accept a whole reply in words with one block of code in it, and no channels."""
        block = None if reply.problem else find_code_block(reply.text)
        if block is None:
            what = "The reply has no channels." if reply.text.strip() else "The reply is empty."
            raise UnusableReplyError(reply.problem or what)
        self._tool_id = TOOL_PREFIX + block[0]
        self._panel.open(block[0])
        self._show_code(block[1])


def _channel(name: str, text: str) -> str:
    return f"<channel:{name}>{text}</channel:{name}>\n"
