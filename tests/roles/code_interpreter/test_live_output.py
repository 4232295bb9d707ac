"""Events of output say which part of the record they are, however their pieces were joined."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from taskweaver_ext.ces.execution.events import OutputProduced
from taskweaver_ext.ces.execution.results import ExecutionId, StreamName
from taskweaver_ext.conversation import RoundId
from taskweaver_ext.events.emitter import SessionEventEmitter
from taskweaver_ext.events.extras import ExecutionOutputExtra
from taskweaver_ext.events.types import PostEventType
from taskweaver_ext.roles.code_interpreter.live_output import LiveOutput

ID = ExecutionId("e1")
PIECES = st.lists(
    st.tuples(
        st.sampled_from(["stdout", "stderr"]),
        st.sampled_from(["a", "é", "\ufffd", "long " * 10_000]),
        st.integers(0, 2),
    ),
    max_size=20,
)


@settings(max_examples=50, deadline=None)
@given(pieces=PIECES)
def test_offsets_are_true_where_some_of_the_record_is_left_out(
    pieces: list[tuple[StreamName, str, int]],
) -> None:
    emitter = SessionEventEmitter()
    emitter.start_round(RoundId("r1"))
    post = emitter.create_post_proxy("User")
    records: dict[StreamName, bytes] = {"stdout": b"", "stderr": b""}
    shown: dict[StreamName, str] = {"stdout": "", "stderr": ""}
    with LiveOutput(post, ID, Path("/nowhere"), on_question_void=lambda _: None) as output:
        for stream, text, left_out in pieces:
            data = b"\xff" if text == "\ufffd" else text.encode()  # a byte that is no text
            records[stream] += b"?" * left_out
            event = OutputProduced(
                execution_id=ID,
                stream=stream,
                text=text,
                offset=len(records[stream]),
                size=len(data),
            )
            records[stream] += data
            shown[stream] += text
            output.on_event(event)

    heard: dict[StreamName, str] = {"stdout": "", "stderr": ""}
    for one in emitter.read(0, max_bytes=1 << 30):
        if one.t is PostEventType.post_execution_output:
            extra = cast(ExecutionOutputExtra, one.extra)
            heard[extra["stream"]] += one.msg
            end = extra["offset"] + extra["size"]
            part = records[extra["stream"]][extra["offset"] : end]
            assert part.decode("utf-8", "replace") == one.msg
    assert heard == shown
