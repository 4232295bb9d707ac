"""Sessions kept as one JSON file per round: TaskWeaver's, and ours of earlier versions.

They are read as the events that such a conversation would have had, so that whatever shows,
exports or continues a session knows one form only. What code wrote is not in these files, only a
description of it, which stands for the output where a person ran the code.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from taskweaver_ext.ces.execution.results import ExecutionId
from taskweaver_ext.config.data_files import read_json
from taskweaver_ext.conversation import AttachmentType, Post, Round, RoundState
from taskweaver_ext.errors import ProtocolError
from taskweaver_ext.events.extras import EventExtra, ExecutionOutputExtra, RoundStartExtra
from taskweaver_ext.events.types import (
    EventScope,
    EventType,
    PostEventType,
    RoundEventType,
    SessionEventType,
    TaskWeaverEvent,
)
from taskweaver_ext.roles.base.role import USER

_ROUND_TIME = re.compile(r"\d{8}-\d{6}")
_KNOWN_TYPES = frozenset(kind.value for kind in AttachmentType)

_logger = logging.getLogger(__name__)


def round_files(folder: Path) -> list[Path]:
    """The files of a session's rounds, oldest first: `<session>_<round>.json`."""
    return sorted(folder.glob(f"{_escaped(folder.name)}_*.json"), key=_age)


def read_rounds(folder: Path) -> Iterator[tuple[Round, float]]:
    """Read the rounds of a folder, each with the time of its end; broken files are left out."""
    for path in round_files(folder):
        try:
            content = read_json(path)
            yield Round.from_dict(_with_known_types(content)), changed_at(path)
        except (OSError, ValueError, ProtocolError) as error:
            _logger.warning("The round in %s cannot be read: %s", path, error)


def events_of_rounds(folder: Path) -> Iterator[TaskWeaverEvent]:
    """The rounds of a folder as numbered events."""
    seq = 0
    for one, at in read_rounds(folder):
        for event in _events_of_round(one):
            seq += 1
            yield replace(event, seq=seq, at=at)


def _events_of_round(one: Round) -> Iterator[TaskWeaverEvent]:
    posts = one.post_list
    is_run = bool(posts) and posts[0].send_from == USER and bool(posts[0].attachment_list)
    details: RoundStartExtra = {
        "kind": "run" if is_run else "message",
        "user_query": one.user_query,
    }
    if posts and not is_run:
        details["post"] = posts[0].to_dict()

    def say(kind: RoundEventType, msg: str, extra: EventExtra) -> TaskWeaverEvent:
        return TaskWeaverEvent(EventScope.round, kind, one.id, None, msg, extra)

    yield TaskWeaverEvent(
        EventScope.session, SessionEventType.session_new_round, None, None, "New round"
    )
    yield say(RoundEventType.round_start, "Round started", details)
    for post in posts if is_run else posts[1:]:
        yield from _events_of_post(one, post)
        yield say(RoundEventType.round_new_post, "", {"post": post.to_dict()})
    if one.error and one.state == "failed":
        yield say(RoundEventType.round_error, one.error, {})
    state: RoundState = "failed" if one.state == "created" else one.state
    yield say(RoundEventType.round_end, "Round ended", {"state": state})


def _events_of_post(one: Round, post: Post) -> Iterator[TaskWeaverEvent]:
    def say(kind: EventType, msg: str, extra: EventExtra) -> TaskWeaverEvent:
        return TaskWeaverEvent(EventScope.post, kind, one.id, post.id, msg, extra)

    yield say(PostEventType.post_start, "Post created", {"role": post.send_from})
    for attachment in post.attachment_list:
        if attachment.type is AttachmentType.execution_result and post.send_from == USER:
            yield say(PostEventType.post_execution_output, *_as_output(post, attachment.content))
        yield say(
            PostEventType.post_attachment_update,
            attachment.content,
            {
                "type": attachment.type,
                "extra": attachment.extra,
                "id": attachment.id,
                "is_end": True,
            },
        )
    if post.message:
        yield say(PostEventType.post_message_update, post.message, {"is_end": True})
    yield say(PostEventType.post_send_to_update, "", {"role": post.send_to})
    yield say(PostEventType.post_end, "", {})


def _as_output(post: Post, text: str) -> tuple[str, ExecutionOutputExtra]:
    return text, {
        "stream": "stdout",
        "text": text,
        "execution_id": ExecutionId(post.id),
        "offset": 0,
    }


def _with_known_types(content: object) -> Mapping[str, Any]:
    """Let attachments of a type that we do not know be text, and texts be texts."""
    if not isinstance(content, dict):
        raise ProtocolError("it holds no object")
    for post in content.get("post_list") or ():
        for attachment in post.get("attachment_list") or () if isinstance(post, dict) else ():
            if not isinstance(attachment, dict):
                raise ProtocolError("an attachment is no object")
            if attachment.get("type") not in _KNOWN_TYPES:
                attachment["type"] = AttachmentType.text.value
            if not isinstance(attachment.get("content"), str):
                attachment["content"] = json.dumps(attachment.get("content"))
    return content


def changed_at(path: Path) -> float:
    """When a file was written; 0 if it has just gone."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _age(path: Path) -> tuple[str, float, str]:
    """Rounds are named by the second in which they began; then the file's time decides."""
    named = _ROUND_TIME.findall(path.name)
    return named[-1] if named else "", changed_at(path), path.name


def _escaped(name: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", name)
