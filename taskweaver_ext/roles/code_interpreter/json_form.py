"""Replies of the code interpreter's model in JSON: thought, reply_type, reply_content."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from taskweaver_ext.ces.programs.languages import canonical_name
from taskweaver_ext.conversation import Post
from taskweaver_ext.events.emitter import PostEventProxy
from taskweaver_ext.llm.chat_model import JsonSchema
from taskweaver_ext.roles.base.correction import UnusableReplyError
from taskweaver_ext.roles.base.live_fields import shown_fields
from taskweaver_ext.roles.base.model_caller import ModelReply
from taskweaver_ext.roles.base.prompts import as_reply, reply_schema
from taskweaver_ext.roles.base.reply_json import FieldPiece, ReplyFieldReader
from taskweaver_ext.roles.code_interpreter.reply_reading import Form, ReplyReading
from taskweaver_ext.roles.code_interpreter.shown_reply import (
    ATTACHMENTS,
    CONTENT,
    TEXT,
    THOUGHT,
    TYPE,
    GeneratedCode,
    GeneratedText,
)


class JsonForm(Form):
    """TaskWeaver's form: one JSON object with three texts."""

    prompt_name = "json_form"

    def schema(self) -> JsonSchema | None:
        """Return the JSON schema; what should stream early comes first."""
        return reply_schema(
            {
                THOUGHT: {"type": "string", "description": "What the code will do, and why."},
                TYPE: {"type": "string", "enum": [*self._languages, TEXT]},
                CONTENT: {
                    "type": "string",
                    "description": "The code alone, or the answer in words.",
                },
            }
        )

    def read(self, post: PostEventProxy) -> JsonReading:
        """Begin to read a reply."""
        return JsonReading(post, self._languages, self._code_prefix)

    def reply_text(self, post: Post) -> str:
        """Return what the model had written for a post."""
        fields = shown_fields(post, ATTACHMENTS)
        if CONTENT not in fields:
            fields |= {TYPE: TEXT, CONTENT: post.message}
        return as_reply(fields)


class JsonReading(ReplyReading):
    """One reply as it arrives."""

    def __init__(
        self, post: PostEventProxy, languages: Sequence[str], code_prefix: str = ""
    ) -> None:
        super().__init__(post, languages, code_prefix)
        self._fields = ReplyFieldReader(ATTACHMENTS)
        self._type: list[str] = []

    def feed(self, text: str) -> None:
        """Read and show the next piece of the reply."""
        self._receive(self._fields.feed(text))
        if self._block is not None:
            self._block.feed(text)

    def finish(self, reply: ModelReply) -> GeneratedCode | GeneratedText:
        """Complete what is shown, and return it, or raise UnusableReplyError."""
        self._receive(self._fields.close())
        fields = self._fields.texts
        if fields is None:
            self._accept_block(reply, "The reply is no JSON with the fields of the schema.")
        else:
            self._shown.choose(self._kind())
        kind, content = self._shown.kind, self._shown.content
        thought = {THOUGHT: (fields or {}).get(THOUGHT, "")}
        if not content.strip():
            raise UnusableReplyError(reply.problem or "The reply lacks reply_content.")
        if kind == TEXT:
            self._shown.finish_text({**thought, TYPE: TEXT}, content)
            return GeneratedText(content)
        if kind not in self._languages:
            known = ", ".join([*self._languages, TEXT])
            raise UnusableReplyError(f"reply_type must be one of {known}, not {kind!r}.")
        if failure := self._shown.finish_code(thought):
            raise UnusableReplyError(failure.message)
        return GeneratedCode(self._shown)

    def _kind(self) -> str:
        return canonical_name("".join(self._type).strip() or "python")

    def _receive(self, pieces: Iterable[FieldPiece]) -> None:
        if self._fields.has_begun:
            self._drop_block()
        for piece in pieces:
            if piece.restarts:
                self._restart(piece.name)
            if piece.name == CONTENT:
                self._shown.add_content(piece.text)
            elif piece.name:
                self._shown.add(piece.name, piece.text)
            if piece.name == TYPE:
                self._type.append(piece.text)
                # Given twice, it is settled when all is known: code must not come and go.
                if piece.completed and not self._shown.kind:
                    self._shown.choose(self._kind())

    def _restart(self, name: str) -> None:
        if name in (TYPE, ""):
            self._type.clear()
        if name == "":
            self._shown.restart()
        elif name == CONTENT:
            self._shown.restart_content()
        else:
            self._shown.restart_field(name)
