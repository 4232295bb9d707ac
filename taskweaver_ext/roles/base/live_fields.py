"""Show the fields of a reply in a post while the reply arrives."""

from __future__ import annotations

from collections.abc import Mapping

from taskweaver_ext.conversation import AttachmentId, AttachmentType, Post
from taskweaver_ext.events.emitter import PostEventProxy


class LiveFields:
    """Let the attachments and the message of a post grow with the fields of a reply."""

    def __init__(
        self,
        post: PostEventProxy,
        attachments: Mapping[str, AttachmentType],
        message_field: str = "",
    ) -> None:
        """Show fields in a post.

        Args:
            attachments: Which field becomes which attachment; other fields are not shown.
            message_field: The field that is the post's message.
        """
        self._post = post
        self._types = attachments
        self._message_field = message_field
        self._shown: dict[str, list[str]] = {}
        self._ids: dict[str, AttachmentId] = {}

    def add(self, field: str, text: str) -> None:
        """Show some more of a field."""
        if not text:
            return
        if field == self._message_field:
            self._post.update_message(text, is_end=False)
        elif field in self._types:
            self._attach(field, text, is_end=False)
        else:
            return
        self._shown.setdefault(field, []).append(text)

    def restart(self, field: str) -> None:
        """Take back what is shown of a field; what follows is shown in its place."""
        self._shown.pop(field, None)
        taken_back = self._ids.pop(field, None)
        if field == self._message_field:
            self._post.post.message = ""
        elif taken_back is not None:
            kept = [one for one in self._post.post.attachment_list if one.id != taken_back]
            self._post.post.attachment_list = kept

    def replace(self, field: str, text: str, extra: object = None) -> None:
        """Let an attachment that is complete take the place of what is shown of a field."""
        self.restart(field)
        attachment = self._post.update_attachment(text, self._types[field], extra)
        self._ids[field] = attachment.id

    def complete(self, fields: Mapping[str, str]) -> None:
        """Complete what is shown, now that the whole reply is known.

        A role may settle for another value than the reply has (`py` is `python`).
        """
        for field in self._types:
            value = fields.get(field, "")
            rest = self._not_shown(field, value)
            if value or field in self._shown:
                self._attach(field, rest, is_end=True)
        if self._message_field in fields:
            rest = self._not_shown(self._message_field, fields[self._message_field])
            self._post.update_message(rest, is_end=True)

    def _not_shown(self, field: str, value: str) -> str:
        """Return what is left of a value; what is shown of another one is taken back."""
        shown = "".join(self._shown.get(field, ()))
        if not value.startswith(shown):
            self.restart(field)
            return value
        return value[len(shown) :]

    def _attach(self, field: str, text: str, *, is_end: bool) -> None:
        attachment = self._post.update_attachment(
            text, self._types[field], id=self._ids.get(field), is_end=is_end
        )
        self._ids[field] = attachment.id


def shown_fields(post: Post, attachments: Mapping[str, AttachmentType]) -> dict[str, str]:
    """Return the fields of the reply that a post shows in its attachments."""
    return {
        name: attachment.content
        for name, kind in attachments.items()
        for attachment in post.get_attachment(kind)[-1:]
    }
