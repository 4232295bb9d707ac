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

    def complete(self, fields: Mapping[str, str]) -> None:
        """Complete what is shown, now that the whole reply is known."""
        for field, attachment_type in self._types.items():
            value = fields.get(field, "")
            shown = "".join(self._shown[field]) if field in self._shown else None
            if shown is not None and not value.startswith(shown):
                # The stream was read otherwise than the whole: the whole is right.
                self._post.post.del_attachment([attachment_type])
                del self._ids[field]
                shown = None
            if value or shown is not None:
                self._attach(field, value[len(shown or "") :], is_end=True)
        if self._message_field in fields:
            self._complete_message(fields[self._message_field])

    def _complete_message(self, value: str) -> None:
        shown = "".join(self._shown.get(self._message_field, ()))
        if not value.startswith(shown):
            self._post.post.message = ""
            shown = ""
        self._post.update_message(value[len(shown) :], is_end=True)

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
