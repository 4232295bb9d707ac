"""Every event survives JSON, and nothing else is taken for one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, cast, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskweaver_ext.ces.execution.event_json import line_of
from taskweaver_ext.ces.execution.events import ExecutionEvent, ExecutionFinished, StatusReported
from taskweaver_ext.ces.execution.results import ExecutionId, ExecutionStatus, Notice
from taskweaver_ext.conversation import (
    Attachment,
    AttachmentId,
    AttachmentType,
    Post,
    PostId,
    RoundId,
)
from taskweaver_ext.errors import ProtocolError
from taskweaver_ext.events.event_json import (
    event_from_json,
    event_line,
    event_to_json,
    session_event_from_json,
)
from taskweaver_ext.events.extras import AttachmentExtra
from taskweaver_ext.events.types import (
    EXTRA_SHAPES,
    EventScope,
    EventType,
    PostEventType,
    RoundEventType,
    SessionEventType,
    TaskWeaverEvent,
)

TEXTS = st.text(st.characters())  # lone surrogates too
NUMBERS = st.floats(0, 1e10)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
st.register_type_strategy(str, TEXTS)
st.register_type_strategy(float, NUMBERS)  # events have none that JSON has no word for
st.register_type_strategy(object, VALUES)
EXECUTION_EVENTS: st.SearchStrategy[ExecutionEvent] = st.one_of(
    [
        st.builds(
            kind,
            **{
                name: st.dictionaries(TEXTS, VALUES, max_size=3)
                for name in ("bundle", "metadata", "report")
                if name in kind.__dataclass_fields__
            },
            **({"duration_seconds": NUMBERS} if kind is ExecutionFinished else {}),
        )
        for kind in get_args(ExecutionEvent)
    ]
)
POSTS = st.fixed_dictionaries(
    {
        "id": TEXTS,
        "message": TEXTS,
        "send_from": TEXTS,
        "send_to": TEXTS,
        "attachment_list": st.lists(
            st.fixed_dictionaries({"id": TEXTS, "type": TEXTS, "content": TEXTS, "extra": VALUES}),
            max_size=2,
        ),
    }
)
EXTRAS: Mapping[EventType, st.SearchStrategy[Any]] = {
    RoundEventType.round_start: st.fixed_dictionaries(
        {"kind": st.sampled_from(["message", "run"]), "user_query": TEXTS},
        optional={"post": POSTS},
    ),
    RoundEventType.round_new_post: st.fixed_dictionaries({}, optional={"post": POSTS}),
    PostEventType.post_execution_event: st.fixed_dictionaries(
        {"execution_id": TEXTS, "event": EXECUTION_EVENTS}
    ),
    PostEventType.post_attachment_update: st.fixed_dictionaries(
        {
            "type": st.sampled_from(AttachmentType),
            "extra": VALUES,
            "id": TEXTS,
            "is_end": st.booleans(),
        }
    ),
    PostEventType.post_code_exec: st.fixed_dictionaries(
        {
            "marker": st.just("subsystem"),
            "sub_type": st.sampled_from(["code_exec.code", "code_exec.status"]),
            "format": st.sampled_from(["text", "json"]),
            "title": TEXTS,
            "index": st.integers(),
            "completed": st.booleans(),
            "execution_id": TEXTS,
        },
        optional={"payload": VALUES, "language": TEXTS},
    ),
}
REPEATS = {"text", "prompt"}
"""Fields of an extra that are the event's message again."""


@st.composite
def session_events(draw: st.DrawFn) -> TaskWeaverEvent:
    scope = draw(st.sampled_from(EventScope))
    kinds: Mapping[EventScope, Any] = {
        EventScope.session: SessionEventType,
        EventScope.round: RoundEventType,
        EventScope.post: PostEventType,
    }
    kind: EventType = draw(st.sampled_from(kinds[scope]))
    message = draw(TEXTS)
    shape = EXTRA_SHAPES.get(kind)
    extra: dict[str, Any] = {}
    if kind in EXTRAS:
        extra = draw(EXTRAS[kind])
    elif shape is not None:
        extra = {**draw(st.from_type(shape))}
    extra |= dict.fromkeys(REPEATS & extra.keys(), message)
    return TaskWeaverEvent(
        scope,
        kind,
        None if scope is EventScope.session else RoundId(draw(TEXTS)),
        PostId(draw(TEXTS)) if scope is EventScope.post else None,
        message,
        cast(Any, extra),
        seq=draw(st.integers(0)),
        at=draw(NUMBERS),
    )


@given(session_events() | EXECUTION_EVENTS)
def test_an_event_comes_back_from_json_as_it_was(event: TaskWeaverEvent | ExecutionEvent) -> None:
    line = event_line(event)

    assert line.isascii()
    assert line.index("\n") == len(line) - 1
    assert event_from_json(json.loads(line)) == event


@given(session_events(), st.data())
def test_an_event_with_a_wrong_field_is_refused_or_whole(
    event: TaskWeaverEvent, data: st.DataObject
) -> None:
    values = event_to_json(event)
    broken = data.draw(st.sampled_from(sorted(values)))
    values[broken] = data.draw(VALUES)

    try:
        rebuilt = event_from_json(values)
    except ProtocolError:
        return
    assert event_to_json(rebuilt)["event"] == values["event"]


@given(VALUES)
def test_what_is_no_event_is_refused_by_name(value: Any) -> None:  # noqa: ANN401
    with pytest.raises(ProtocolError):
        event_from_json(value)


def test_text_that_is_there_twice_is_written_once() -> None:
    event = TaskWeaverEvent(
        EventScope.post,
        PostEventType.post_execution_output,
        RoundId("r"),
        PostId("p"),
        "hello",
        {"stream": "stdout", "text": "hello", "execution_id": ExecutionId("e"), "offset": 7},
    )

    assert event_to_json(event) == {
        "event": "post_execution_output",
        "seq": 0,
        "at": 0.0,
        "round_id": "r",
        "post_id": "p",
        "msg": "hello",
        "extra": {"stream": "stdout", "execution_id": "e", "offset": 7},
    }


def test_an_attachment_that_json_has_no_word_for_becomes_text() -> None:
    attachment = Attachment.create(AttachmentType.text, "x", extra={"path": EventScope.post})
    event = TaskWeaverEvent(
        EventScope.post,
        PostEventType.post_attachment_update,
        RoundId("r"),
        PostId("p"),
        "x",
        {"type": attachment.type, "extra": attachment.extra, "id": attachment.id, "is_end": True},
    )

    rebuilt = session_event_from_json(json.loads(event_line(event)))

    assert "type" in rebuilt.extra
    assert rebuilt.extra["extra"] == {"path": "EventScope.post"}


def test_an_execution_event_is_no_event_of_a_session() -> None:
    kind: Literal["host"] = "host"
    finished = ExecutionFinished(
        execution_id=ExecutionId("e"),
        status=ExecutionStatus.DIED,
        notices=(Notice(kind=kind, message="gone"),),
    )

    with pytest.raises(ProtocolError, match="no event of a session"):
        session_event_from_json(event_to_json(finished))


def test_a_line_is_json_for_every_reader() -> None:
    extra: AttachmentExtra = {
        "type": AttachmentType.text,
        "extra": {"share": float("nan"), "most": [float("inf"), 1.5]},
        "id": AttachmentId("a"),
        "is_end": True,
    }
    kind = PostEventType.post_attachment_update
    event = TaskWeaverEvent(EventScope.post, kind, RoundId("r"), PostId("p"), "", extra)
    report = StatusReported(execution_id=ExecutionId("e"), report={"share": float("nan")})

    def refuse(word: str) -> None:
        pytest.fail(f"{word} is no JSON")

    attached = json.loads(event_line(event), parse_constant=refuse)["extra"]["extra"]
    assert attached == {"share": "NaN", "most": ["Infinity", 1.5]}
    for line in (event_line(report), line_of(report)):
        assert json.loads(line, parse_constant=refuse)["report"] == {"share": "NaN"}


def test_a_post_survives_whatever_a_role_has_attached() -> None:
    odd = Attachment.create(AttachmentType.text, "kept", extra={(1, 2): "no key of JSON"})
    post = Post.create("hello", "Odd", "User", [odd])
    event = TaskWeaverEvent(
        EventScope.round,
        RoundEventType.round_new_post,
        RoundId("r"),
        None,
        "",
        {"post": post.to_dict()},
    )

    again = session_event_from_json(json.loads(event_line(event)))

    rebuilt = Post.from_dict(cast(Any, again.extra)["post"])
    assert (rebuilt.id, rebuilt.message) == (post.id, "hello")
    assert rebuilt.attachment_list[0].content == "kept"


class Contrary:
    """Fails at whatever it is asked."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)

    def __str__(self) -> str:
        raise RuntimeError("no text either")


@pytest.mark.parametrize(
    "odd", [Contrary(), {"in": [Contrary()]}, 10**5000, {"number": 10**5000}], ids=type
)
def test_what_fails_at_everything_is_at_least_named(odd: object) -> None:
    extra: AttachmentExtra = {
        "type": AttachmentType.text,
        "extra": odd,
        "id": AttachmentId("a"),
        "is_end": True,
    }
    kind = PostEventType.post_attachment_update
    event = TaskWeaverEvent(EventScope.post, kind, RoundId("r"), PostId("p"), "said", extra)

    rebuilt = session_event_from_json(json.loads(event_line(event)))

    assert rebuilt.msg == "said"
    assert "<" in str(cast(Any, rebuilt.extra)["extra"])
