"""Ask a model once more when its reply could not be used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from taskweaver_ext.conversation import AttachmentType, Post
from taskweaver_ext.errors import TaskWeaverError
from taskweaver_ext.event_emitter import PostEventProxy
from taskweaver_ext.llm.chat_model import Message
from taskweaver_ext.roles.role import Role
from taskweaver_ext.text.truncation import shorten_middle

MAX_QUOTED_CHARS = 2000


class UnusableReplyError(TaskWeaverError):
    """A reply lacks something; the message tells the model what."""


@contextmanager
def speaking(role: Role) -> Iterator[PostEventProxy]:
    """Begin a post of a role, and end it also when the round cannot go on."""
    post = role.context.emitter.create_post_proxy(role.alias)
    try:
        yield post
    except TaskWeaverError as error:
        post.end(str(error))
        raise


def reject(post: PostEventProxy, reply: str, problem: str, advice: str) -> None:
    """Let a post hold a reply that cannot be used and what is wrong with it, and nothing else."""
    post.error(problem)
    quoted = shorten_middle(reply, MAX_QUOTED_CHARS).text
    post.update_attachment(quoted, AttachmentType.invalid_response)
    post.update_attachment(f"{problem} {advice}", AttachmentType.revise_message)


def rejected_messages(post: Post) -> list[Message]:
    """Return a rejected reply and what was said about it, as the model is to see them."""
    messages: list[Message] = []
    for attachment in post.get_attachment(AttachmentType.invalid_response):
        messages.append(Message("assistant", attachment.content or "(nothing)"))
    for attachment in post.get_attachment(AttachmentType.revise_message):
        messages.append(Message("user", attachment.content))
    return messages
