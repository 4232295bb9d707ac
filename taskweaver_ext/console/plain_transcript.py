"""A transcript for pipes: what people run themselves writes to our streams as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from taskweaver_ext.ces.execution.results import StreamName
from taskweaver_ext.console.post_view import USER
from taskweaver_ext.console.rows import NO_LIMIT, Painter
from taskweaver_ext.console.transcript import Transcript
from taskweaver_ext.conversation import PostId, RoundId
from taskweaver_ext.events.types import (
    EventExtra,
    ExecutionOutputExtra,
    PostEventType,
    RoleExtra,
)


class PlainTranscript(Transcript):
    """Frames what the agent does; nothing is collapsed, nothing is coloured."""

    def __init__(
        self, write: Callable[[StreamName, str], object], on_answer: Callable[[str], object]
    ) -> None:
        """Begin with nothing.

        Args:
            write: Takes what the user's own code writes.
            on_answer: Takes the agent's answers.
        """
        super().__init__(
            NO_LIMIT, 24, Painter(has_color=False), rows_in_full=NO_LIMIT, on_answer=on_answer
        )
        self._write = write
        self._own_posts: set[PostId] = set()
        """Also those that have ended: what they started may still write."""

    def handle_post(
        self, type: PostEventType, msg: str, extra: EventExtra, post_id: PostId, round_id: RoundId
    ) -> None:
        """Hear what happened to a post."""
        if type is PostEventType.post_start and cast(RoleExtra, extra)["role"] == USER:
            self._own_posts.add(post_id)
        if post_id not in self._own_posts:
            super().handle_post(type, msg, extra, post_id, round_id)
        elif type is PostEventType.post_execution_output:
            output = cast(ExecutionOutputExtra, extra)
            self._write(output["stream"], output["text"])
