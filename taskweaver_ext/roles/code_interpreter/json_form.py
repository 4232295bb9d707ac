"""Replies of the code interpreter's model in JSON: thought, reply_type, reply_content."""

from __future__ import annotations

from collections.abc import Sequence

from taskweaver_ext.ces.programs.languages import canonical_name
from taskweaver_ext.conversation import Post
from taskweaver_ext.events.emitter import PostEventProxy
from taskweaver_ext.llm.chat_model import JsonSchema
from taskweaver_ext.roles.base.correction import UnusableReplyError
from taskweaver_ext.roles.base.live_fields import shown_fields
from taskweaver_ext.roles.base.model_caller import ModelReply
from taskweaver_ext.roles.base.prompts import as_reply, reply_schema
from taskweaver_ext.roles.base.reply_json import ReplyFieldStream, parse_reply
from taskweaver_ext.roles.code_interpreter.generated import (
    ATTACHMENTS,
    MESSAGE,
    Form,
    GeneratedCode,
    GeneratedText,
    ReplyReader,
    find_code_block,
)
from taskweaver_ext.streaming.code_cleaning import clean_code

TEXT = "text"


class JsonForm(Form):
    """TaskWeaver's form: one JSON object with three texts."""

    prompt_name = "json_form"

    def schema(self) -> JsonSchema | None:
        """Return the JSON schema; what should stream early comes first."""
        return reply_schema(
            {
                "thought": {"type": "string", "description": "What the code will do, and why."},
                "reply_type": {"type": "string", "enum": [*self._languages, TEXT]},
                "reply_content": {
                    "type": "string",
                    "description": "The code alone, or the answer in words.",
                },
            }
        )

    def reader(self, post: PostEventProxy) -> JsonReader:
        """Begin to read a reply."""
        return JsonReader(post, self._languages)

    def reply_text(self, post: Post) -> str:
        """Return what the model had written for a post."""
        fields = shown_fields(post, ATTACHMENTS)
        if "reply_content" not in fields:
            fields |= {"reply_type": TEXT, "reply_content": post.message}
        return as_reply(fields)


class JsonReader(ReplyReader):
    """One reply as it arrives."""

    def __init__(self, post: PostEventProxy, languages: Sequence[str]) -> None:
        super().__init__(post, languages)
        self._fields = ReplyFieldStream(ATTACHMENTS)
        self._reply_type = ""

    def feed(self, text: str) -> None:
        """Show the next piece of the reply."""
        for piece in self._fields.feed(text):
            if piece.name == "reply_type":
                self._reply_type += piece.text
            if piece.name != "reply_content":
                self._live.add(piece.name, piece.text)
            elif self._reply_type.strip().lower() == TEXT:
                self._live.add(MESSAGE, piece.text)
            else:
                self._show_code(self._fence.feed(piece.text))

    def finish(self, reply: ModelReply) -> GeneratedCode | GeneratedText:
        """Make sense of the whole reply, or raise UnusableReplyError."""
        fields = parse_reply(reply.text, ATTACHMENTS) or _fields_of_block(reply)
        if fields is None:
            what = "is no JSON with the fields of the schema" if reply.text.strip() else "is empty"
            raise UnusableReplyError(reply.problem or f"The reply {what}.")
        content = fields.get("reply_content", "")
        if not content.strip():
            raise UnusableReplyError(reply.problem or "The reply lacks reply_content.")
        language = canonical_name(fields.get("reply_type", "").strip() or "python")
        if language == TEXT:
            del fields["reply_content"]
            self._live.complete({**fields, MESSAGE: content})
            return GeneratedText(content)
        if language not in self._languages:
            known = ", ".join([*self._languages, TEXT])
            raise UnusableReplyError(f"reply_type must be one of {known}, not {language!r}.")
        code = clean_code(content)
        self._show_code(self._fence.close())
        self._panel.open(language)
        self._live.complete({**fields, "reply_type": language, "reply_content": code})
        return GeneratedCode(language, code, self._panel)

    def _show_code(self, code: str) -> None:
        if code:
            self._panel.open(canonical_name(self._reply_type.strip() or "python"))
            self._panel.feed_code(code)
            self._live.add("reply_content", code)


def _fields_of_block(reply: ModelReply) -> dict[str, str] | None:
    """Accept a whole reply in words with one block of code in it."""
    block = None if reply.problem else find_code_block(reply.text)
    if block is None or not block[1].strip():
        return None
    return {"reply_type": block[0], "reply_content": block[1]}
