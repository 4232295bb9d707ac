"""What roles know of a round: the code in it, and the round without some of it.

Pure: rounds in, rounds out. What a person shared travels in the message of the person's post, and
once more as an attachment that says which run it tells of: so it can be taken out again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from taskweaver_ext.conversation import Attachment, AttachmentType, Post, PostId, Round
from taskweaver_ext.roles.base.role import USER
from taskweaver_ext.roles.code_interpreter.shown_reply import TEXT

TAKEN_OUT = "[The user has taken this code and what came of it out of the conversation.]"
"""Stands in the place of code that the agent wrote and is to know no longer."""


@dataclass(frozen=True, slots=True)
class SharedBlock:
    """Something that goes to the agent with the next message."""

    text: str
    run: PostId | None = None
    """The post of the run that it tells of, if it tells of one."""
    code: str = ""
    """What was run."""

    def to_attachment(self) -> Attachment:
        """Return what keeps it apart within a post."""
        extra = {"run": self.run, "code": self.code}
        return Attachment.create(AttachmentType.shared_memory_entry, self.text, extra=extra)


def codes_of(one: Round) -> tuple[list[tuple[PostId, str]], list[tuple[PostId, str]]]:
    """Return the code of a round, by post: what a person had run before it, and the agent's own."""
    shared = [
        (PostId(extra["run"]), str(extra.get("code", "")))
        for post in one.post_list
        for extra in (_run_of(attachment) for attachment in post.attachment_list)
        if extra is not None
    ]
    own = [(post.id, code) for post in one.post_list if (code := _code_of(post))]
    return shared, own


def knows_code(one: Round, post_id: PostId) -> bool:
    """Whether the code of a post is part of a round."""
    shared, own = codes_of(one)
    return post_id in dict((*shared, *own))


def without_code(one: Round, post_id: PostId) -> Round:
    """Return the round as if the code of a post, and what came of it, had never been in it."""
    posts = [_without(post, post_id) for post in one.post_list]
    return replace(one, post_list=posts)


def _without(post: Post, post_id: PostId) -> Post:
    if post.id == post_id and _code_of(post):
        return Post(post.id, post.send_from, post.send_to, TAKEN_OUT)
    message, kept = post.message, []
    for attachment in post.attachment_list:
        run = _run_of(attachment)
        if run is not None and run["run"] == post_id:
            message = message.replace(f"{attachment.content}\n", "", 1)
        else:
            kept.append(attachment)
    return replace(post, message=message, attachment_list=kept)


def _run_of(attachment: Attachment) -> dict[str, Any] | None:
    """Return what an attachment says of a run that was shared; None if it is no such one."""
    extra = attachment.extra
    is_run = attachment.type is AttachmentType.shared_memory_entry and isinstance(extra, dict)
    return extra if is_run and extra.get("run") else None


def _code_of(post: Post) -> str:
    """Return the code that a role wrote in a post; empty if it wrote none."""
    if post.send_from == USER or post.get_attachment(AttachmentType.invalid_response):
        return ""
    kinds = post.get_attachment(AttachmentType.reply_type)
    contents = post.get_attachment(AttachmentType.reply_content)
    if not contents or (kinds and kinds[-1].content.strip() == TEXT):
        return ""
    return contents[-1].content
