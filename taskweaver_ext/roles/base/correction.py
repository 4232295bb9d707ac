"""Ask a model once more when its reply could not be used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from taskweaver_ext.conversation import AttachmentType, Post
from taskweaver_ext.errors import TaskWeaverError
from taskweaver_ext.events.emitter import PostEventProxy
from taskweaver_ext.llm.chat_model import Message
from taskweaver_ext.roles.base.model_caller import ModelReply
from taskweaver_ext.roles.base.role import Role
from taskweaver_ext.text.truncation import shorten_middle

MAX_QUOTED_CHARS = 2000


class UnusableReplyError(TaskWeaverError):
    """A reply lacks something; the message tells the model what."""


@contextmanager
def open_post(role: Role) -> Iterator[PostEventProxy]:
    """Begin a post of a role, and end it also when the round cannot go on."""
    post = role.context.emitter.create_post_proxy(role.alias)
    try:
        yield post
    except TaskWeaverError as error:
        post.end(str(error))
        raise


def reject(post: PostEventProxy, reply: ModelReply, problem: str, advice: str) -> None:
    """Let a post hold a reply that cannot be used and what is wrong with it, and nothing else."""
    post.error(problem)
    quoted = shorten_middle(reply.text, MAX_QUOTED_CHARS)
    post.update_attachment(quoted, AttachmentType.invalid_response)
    if reply.end != "broken":  # for which the model can do nothing: it is asked the same again
        post.update_attachment(f"{problem} {advice}", AttachmentType.revise_message)


def rejected_messages(post: Post) -> list[Message]:
    """Return a rejected reply and what was said about it, as the model is to see them.

    Nothing where the model is told nothing about it: it is asked the same again.
    """
    advice = post.get_attachment(AttachmentType.revise_message)
    if not advice:
        return []
    replies = post.get_attachment(AttachmentType.invalid_response)
    return [
        *(Message("assistant", attachment.content or "(nothing)") for attachment in replies),
        *(Message("user", attachment.content) for attachment in advice),
    ]
