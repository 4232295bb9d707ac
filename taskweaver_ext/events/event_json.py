"""Every event as a JSON object and back: of sessions here, of executions as `ces` writes them.

A session's event is `{"event", "seq", "at", "round_id", "post_id", "msg", "extra"}`. Its name
says its scope; ids that it has not, and an empty extra, are left out, and so is a text in its
extra that is its `msg` again. An execution's event is as `ces/execution/event_json.py` says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from taskweaver_ext.ces.execution.event_json import (
    UnknownKindError,
    execution_event_from_json,
    execution_event_to_json,
)
from taskweaver_ext.ces.execution.events import ExecutionEvent
from taskweaver_ext.conversation import AttachmentType, PostDict
from taskweaver_ext.errors import ProtocolError
from taskweaver_ext.events.extras import AttachmentExtra, EventExtra, ExecutionEventExtra
from taskweaver_ext.events.types import (
    EXTRA_SHAPES,
    EventScope,
    EventType,
    PostEventType,
    RoundEventType,
    SessionEventType,
    TaskWeaverEvent,
)
from taskweaver_ext.text.json_lines import json_line
from taskweaver_ext.text.json_shapes import has_shape

_SCOPES: Mapping[type[EventType], EventScope] = {
    SessionEventType: EventScope.session,
    RoundEventType: EventScope.round,
    PostEventType: EventScope.post,
}
_TYPES: Mapping[str, EventType] = {kind.value: kind for kinds in _SCOPES for kind in kinds}
_REPEATED: Mapping[EventType, str] = {
    SessionEventType.session_late_output: "text",
    SessionEventType.session_question: "prompt",
    PostEventType.post_execution_output: "text",
}
"""The field of an extra that is the event's `msg` again."""


def event_to_json(event: TaskWeaverEvent | ExecutionEvent) -> dict[str, Any]:
    """Return an event as an object that JSON can hold.

    What a role of a project's own attaches, and JSON has no word for, becomes text.
    """
    if not isinstance(event, TaskWeaverEvent):
        return execution_event_to_json(event)
    values: dict[str, Any] = {"event": event.t.value, "seq": event.seq, "at": event.at}
    if event.round_id is not None:
        values["round_id"] = event.round_id
    if event.post_id is not None:
        values["post_id"] = event.post_id
    if event.msg:
        values["msg"] = event.msg
    if event.extra:
        values["extra"] = _extra_to_json(event.t, event.extra)
    return values


def event_from_json(values: Mapping[str, Any]) -> TaskWeaverEvent | ExecutionEvent:
    """Rebuild an event from what `event_to_json` returned; other fields are ignored.

    Raises:
        ProtocolError: It is no such object; every field is looked at.
    """
    if not isinstance(values, Mapping):
        raise ProtocolError(f"An event is an object, not {values!r:.100}.")
    name = values.get("event")
    kind = _TYPES.get(name) if isinstance(name, str) else None
    return execution_event_from_json(values) if kind is None else _rebuilt(kind, values)


def session_event_from_json(values: Mapping[str, Any]) -> TaskWeaverEvent:
    """The same, where only a session's event makes sense.

    Raises:
        UnknownKindError: It is none that this version knows.
        ProtocolError: It is none.
    """
    event = event_from_json(values)
    if not isinstance(event, TaskWeaverEvent):
        raise ProtocolError(f"{type(event).__name__} is no event of a session.")
    return event


def event_line(event: TaskWeaverEvent | ExecutionEvent) -> str:
    """An event as one line of JSON, plain ASCII: nothing in it can drive a terminal."""
    return json_line(event_to_json(event), separators=(",", ":"))


def _extra_to_json(kind: EventType, extra: EventExtra) -> dict[str, Any]:
    values = cast(dict[str, Any], dict(extra))
    values.pop(_REPEATED.get(kind, ""), None)
    if kind is PostEventType.post_attachment_update:
        attachment = cast(AttachmentExtra, extra)
        values["type"] = attachment["type"].value
        values["extra"] = _plain(attachment["extra"])
    elif kind is PostEventType.post_execution_event:
        values["event"] = execution_event_to_json(cast(ExecutionEventExtra, extra)["event"])
    elif kind is RoundEventType.round_new_post and "post" in values:
        values["post"] = _plain_post(values["post"])
    return values


def _plain_post(post: PostDict) -> dict[str, Any]:
    attachments = [{**one, "extra": _plain(one.get("extra"))} for one in post["attachment_list"]]
    return {**post, "attachment_list": attachments}


def _plain(value: Any) -> Any:  # noqa: ANN401 - an attachment's extra can be anything
    """Return what JSON makes of a value, so that a reader has the same before and after."""
    if value is None or isinstance(value, str):
        return value
    try:
        value = value.to_dict() if hasattr(value, "to_dict") else value
        return json.loads(json.dumps(value, default=_text_of), parse_constant=str)
    except Exception:  # noqa: BLE001 - an object of a project's own can fail at anything
        return _text_of(value)


def _text_of(value: object) -> str:
    """Return what an object says of itself, or at least what it is."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a number of 5,000 digits, a method that raises
        return f"<{type(value).__name__}>"


def _rebuilt(kind: EventType, values: Mapping[str, Any]) -> TaskWeaverEvent:
    fields = {
        "seq": (values.get("seq", 0), int),
        "at": (values.get("at", 0.0), float),
        "round_id": (values.get("round_id"), str | None),
        "post_id": (values.get("post_id"), str | None),
        "msg": (values.get("msg", ""), str),
        "extra": (values.get("extra", {}), dict[str, Any]),
    }
    for name, (value, hint) in fields.items():
        if not has_shape(value, hint):
            raise ProtocolError(f"{name} of {kind.value} cannot be {value!r:.100}.")
    own = {name: value for name, (value, _) in fields.items()}
    own["extra"] = _extra_from_json(kind, own["msg"], own["extra"])
    return TaskWeaverEvent(scope=_SCOPES[type(kind)], t=kind, **own)


def _extra_from_json(kind: EventType, msg: str, values: Mapping[str, Any]) -> EventExtra:
    extra = dict(values)
    shape = EXTRA_SHAPES.get(kind)
    if shape is None:
        return {}
    if kind in _REPEATED:
        extra[_REPEATED[kind]] = msg
    if kind is PostEventType.post_attachment_update:
        extra["type"] = _attachment_type(extra.get("type"))
    elif kind is PostEventType.post_execution_event:
        event = extra.get("event")
        if not isinstance(event, Mapping):
            raise ProtocolError(f"event of {kind.value} cannot be {event!r:.100}.")
        extra["event"] = execution_event_from_json(event)
    if not has_shape(extra, shape):
        raise ProtocolError(f"extra of {kind.value} cannot be {values!r:.200}.")
    return cast(EventExtra, extra)


def _attachment_type(name: object) -> AttachmentType:
    try:
        return AttachmentType(name)
    except ValueError as error:
        raise UnknownKindError(f"There is no attachment type {name!r:.100}.") from error
