"""What is to be seen of an execution in the end, as a model is told."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from taskweaver_ext.ces.execution.events import (
    DisplayProduced,
    DisplayUpdated,
    ExecutionEvent,
    OutputCleared,
    OutputProduced,
)
from taskweaver_ext.ces.execution.results import ExecutionId, StreamName
from taskweaver_ext.tools.display_text import ImageOutput
from taskweaver_ext.tools.shown_output import ShownOutput

ID = ExecutionId("e")


def wrote(text: str, stream: StreamName = "stdout") -> ExecutionEvent:
    return OutputProduced(execution_id=ID, stream=stream, text=text)


def displayed(text: str, display_id: str | None = None) -> ExecutionEvent:
    return DisplayProduced(execution_id=ID, bundle={"text/plain": text}, display_id=display_id)


def updated(text: str, display_id: str) -> ExecutionEvent:
    return DisplayUpdated(execution_id=ID, bundle={"text/plain": text}, display_id=display_id)


def cleared(*, wait: bool = False) -> ExecutionEvent:
    return OutputCleared(execution_id=ID, wait=wait)


def seen(*events: ExecutionEvent, max_chars: int = 1000) -> str:
    shown = ShownOutput(max_chars)
    for event in events:
        shown.receive(event)
    return shown.text(where="there")


def test_text_and_displays_stand_in_their_order_each_on_its_own_line() -> None:
    events = (wrote("a\nb"), wrote("err", "stderr"), displayed("shown"), wrote("c"))

    assert seen(*events) == "a\nb\nerr\nshown\nc"
    assert seen(wrote("a\n"), wrote("\n"), displayed(""), wrote("\nb\n")) == "a\n\n\nb"


def test_a_bar_on_one_stream_is_told_once_whatever_the_other_says_meanwhile() -> None:
    events = [
        event for n in range(3) for event in (wrote(f"\r{n}/2", "stderr"), wrote(f"step {n}\n"))
    ]

    assert seen(*events) == "step 0\nstep 1\nstep 2\n2/2"


def test_an_update_replaces_what_it_updates_where_that_stands() -> None:
    events = (
        displayed("0 %", "d"),
        wrote("working\n"),
        updated("50 %", "d"),
        updated("100 %", "d"),
    )

    assert seen(*events) == "100 %\nworking"
    assert seen(updated("of an earlier cell", "x"), wrote("y")) == "of an earlier cell\ny"


def test_clearing_takes_away_what_was_shown_at_once_or_when_more_comes() -> None:
    assert seen(wrote("a\nb"), displayed("c"), cleared(), wrote("d")) == "d"
    assert seen(wrote("a\n"), cleared(wait=True)) == "a"
    assert seen(wrote("a\n"), cleared(wait=True), wrote("b\n"), wrote("c\n")) == "b\nc"
    assert seen(displayed("a", "d"), cleared(), updated("b", "d")) == "b"


def test_pictures_that_were_replaced_or_cleared_are_not_told() -> None:
    shown = ShownOutput(1000)
    for n in range(3):
        shown.receive(cleared(wait=True))
        shown.receive(
            DisplayProduced(execution_id=ID, bundle={"image/png": str(n)}, display_id="p")
        )
    shown.receive(DisplayUpdated(execution_id=ID, bundle={"image/png": "last"}, display_id="p"))

    assert shown.outputs == (ImageOutput("image/png", "last"),)


def test_what_is_too_long_loses_its_middle_and_says_how_much_and_where() -> None:
    lines = [f"line {n:06}" for n in range(50_000)]

    text = seen(*(wrote("\n".join(lines[i : i + 10]) + "\n") for i in range(0, 50_000, 10)))

    assert len(text) <= 1000
    head, marker, tail = text.partition("[... ")
    count = int(tail.partition(" lines (")[0].replace(",", ""))
    assert head.startswith("line 000000\n")
    assert tail.endswith("line 049999")
    assert "whole output: there" in tail
    assert text.count("line 0") + count == 50_000


@given(
    st.lists(
        st.one_of(
            st.builds(wrote, st.text(max_size=40), st.sampled_from(["stdout", "stderr"])),
            st.builds(displayed, st.text(max_size=40), st.sampled_from([None, "a", "b"])),
            st.builds(updated, st.text(max_size=40), st.sampled_from(["a", "b", "c"])),
            st.builds(cleared, wait=st.booleans()),
        ),
        max_size=40,
    )
)
def test_no_order_of_events_makes_it_longer_than_it_may_be(events: list[ExecutionEvent]) -> None:
    assert len(seen(*events, max_chars=120)) <= 120
