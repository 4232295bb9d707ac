"""The planner's replies: one JSON object, or a channel of thoughts and one with the object."""

from __future__ import annotations

from collections.abc import Iterable

from taskweaver_ext.config.settings import ReplyForm
from taskweaver_ext.conversation import AttachmentType, Post
from taskweaver_ext.roles.base.live_fields import LiveFields, shown_fields
from taskweaver_ext.roles.base.prompts import as_reply
from taskweaver_ext.roles.base.reply_json import FieldPiece, ReplyFieldReader
from taskweaver_ext.streaming.channels import ChannelEvent, ChannelParser

ATTACHMENTS = {
    "plan_reasoning": AttachmentType.plan_reasoning,
    "init_plan": AttachmentType.init_plan,
    "plan": AttachmentType.plan,
    "current_plan_step": AttachmentType.current_plan_step,
    "stop": AttachmentType.stop,
}
FIELDS = (*ATTACHMENTS, "send_to", "message")
FORM_NAMES: dict[ReplyForm, str] = {"json": "json_form", "channels": "channel_form"}
"""Which text of the prompt file describes a form."""

_THINKING, _DECISION = "thinking", "ReactDecisionOutV2"


class PlannerReader:
    """One reply as it arrives, in either form."""

    def __init__(self, live: LiveFields, reply_form: ReplyForm) -> None:
        self._live = live
        self._parser = ChannelParser((_THINKING, _DECISION)) if reply_form == "channels" else None
        self._fields = ReplyFieldReader(FIELDS)
        self._thinking: list[str] = []

    def feed(self, text: str) -> None:
        """Show the next piece of the reply."""
        if self._parser is None:
            self._show(self._fields.feed(text))
        else:
            for event in self._parser.feed(text):
                self._receive(event)

    def finish(self) -> dict[str, str] | None:
        """Return the fields of the whole reply; None when it has none."""
        if self._parser is not None:
            for event in self._parser.close():
                self._receive(event)
        self._show(self._fields.close())
        fields = self._fields.texts
        if fields is not None and self._thinking:
            fields["plan_reasoning"] = "".join(self._thinking)
        return fields

    def _receive(self, event: ChannelEvent) -> None:
        if event.channel == _THINKING:
            self._thinking.append(event.text)
            self._live.add("plan_reasoning", event.text)
        else:  # the decision, or an object without the channel around it
            self._show(self._fields.feed(event.text))

    def _show(self, pieces: Iterable[FieldPiece]) -> None:
        for piece in pieces:
            names = [piece.name] if piece.name else FIELDS
            for name in names:
                if name != "plan_reasoning" or not self._thinking:
                    if piece.restarts:
                        self._live.restart(name)
                    self._live.add(name, piece.text)


def reply_text(post: Post, reply_form: ReplyForm) -> str:
    """Return what the model had written for a post."""
    fields = shown_fields(post, ATTACHMENTS) | {"send_to": post.send_to, "message": post.message}
    if reply_form == "json":
        return as_reply(fields)
    thinking = fields.pop("plan_reasoning", "")
    return (
        f"<channel:{_THINKING}>{thinking}</channel:{_THINKING}>\n"
        f"<channel:{_DECISION}>{as_reply(fields)}</channel:{_DECISION}>"
    )
