from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from taskweaver_ext.llm import reply_stream
from taskweaver_ext.llm.chat_model import Finished, ModelEvent, TextDelta, TokenUsage
from taskweaver_ext.llm.model_errors import (
    BrokenStreamError,
    ModelTimeoutError,
    ReplyCancelledError,
)
from taskweaver_ext.llm.model_settings import TimeLimits
from taskweaver_ext.llm.reply_stream import MAX_PENDING, Deliver, ReplyStream
from tests.support.model_replies import read_reply

WAIT_SECONDS = 60
PATIENT = TimeLimits(first_token_seconds=WAIT_SECONDS, between_tokens_seconds=WAIT_SECONDS)


class Source:
    """A reply made by a function; `cut` sets the event that such functions wait on."""

    def __init__(self, run: Callable[[Deliver, threading.Event], None]) -> None:
        self._run = run
        self.was_cut = threading.Event()

    def run(self, deliver: Deliver) -> None:
        self._run(deliver, self.was_cut)

    def cut(self) -> None:
        self.was_cut.set()


def make_stream(
    run: Callable[[Deliver, threading.Event], None], limits: TimeLimits = PATIENT
) -> ReplyStream:
    return ReplyStream(Source(run), model_name="test", limits=limits)


class Clock:
    """A clock for streams that can be put forward, so that a test need not wait."""

    def __init__(self) -> None:
        self.ahead_seconds = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(reply_stream, "time", clock)
    return clock


def stay_silent(deliver: Deliver, was_cut: threading.Event) -> None:
    was_cut.wait(WAIT_SECONDS)


def test_a_complete_reply_does_not_wait_for_a_connection_that_stays_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def finish_and_linger(deliver: Deliver, was_cut: threading.Event) -> None:
        deliver(TextDelta("done"))
        deliver(Finished("stop"))
        was_cut.wait(WAIT_SECONDS)

    monkeypatch.setattr(reply_stream, "USAGE_SECONDS", 0.05)
    reply = read_reply(make_stream(finish_and_linger))

    assert (reply.text, reply.finished) == ("done", Finished("stop"))


def test_a_long_wait_leaves_time_for_the_count_of_tokens(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = TokenUsage(1, 2)

    def finish_late(deliver: Deliver, was_cut: threading.Event) -> None:
        was_cut.wait(0.1)  # the reader waits by now
        clock.ahead_seconds += 2 * WAIT_SECONDS
        deliver(Finished("stop"))
        was_cut.wait(0.1)
        deliver(Finished("stop", usage))

    monkeypatch.setattr(reply_stream, "USAGE_SECONDS", WAIT_SECONDS)

    assert read_reply(make_stream(finish_late)).finished.usage == usage


def test_a_connection_that_breaks_after_the_end_is_no_failure() -> None:
    def finish_and_break(deliver: Deliver, was_cut: threading.Event) -> None:
        deliver(Finished("stop"))
        raise BrokenStreamError("too late to matter")

    assert read_reply(make_stream(finish_and_break)).finished == Finished("stop")


def test_the_last_word_about_the_end_counts() -> None:
    def finish_twice(deliver: Deliver, was_cut: threading.Event) -> None:
        deliver(Finished("stop"))
        deliver(Finished("stop", TokenUsage(1, 2)))

    assert read_reply(make_stream(finish_twice)).finished.usage == TokenUsage(1, 2)


def test_signs_of_life_keep_a_slow_start_from_timing_out(clock: Clock) -> None:
    def read_a_long_prompt(deliver: Deliver, was_cut: threading.Event) -> None:
        for _ in range(3):
            was_cut.wait(0.1)  # the reader waits by now
            clock.ahead_seconds += 0.8 * WAIT_SECONDS
            deliver(None)
        was_cut.wait(0.1)
        deliver(TextDelta("now"))
        deliver(Finished("stop"))

    assert read_reply(make_stream(read_a_long_prompt)).text == "now"


def test_a_slow_reader_holds_the_provider_back_and_does_not_time_out(clock: Clock) -> None:
    total = MAX_PENDING * 3
    given = 0
    is_held_back = threading.Event()

    def talk(deliver: Deliver, was_cut: threading.Event) -> None:
        nonlocal given
        for number in range(total):
            given = number
            if number == MAX_PENDING:
                is_held_back.set()
            deliver(TextDelta("x"))
        deliver(Finished("stop"))

    with make_stream(talk) as stream:
        assert is_held_back.wait(WAIT_SECONDS)
        held_at = given
        clock.ahead_seconds += 2 * WAIT_SECONDS
        events = list(stream)

    assert held_at <= MAX_PENDING
    assert len(events) == total + 1


def test_an_unforeseen_error_reaches_the_reader() -> None:
    def fail(deliver: Deliver, was_cut: threading.Event) -> None:
        raise ZeroDivisionError("a mistake of ours")

    with pytest.raises(ZeroDivisionError):
        read_reply(make_stream(fail))


def test_a_source_that_stops_short_is_a_broken_stream() -> None:
    def stop_short(deliver: Deliver, was_cut: threading.Event) -> None:
        deliver(TextDelta("half"))

    with pytest.raises(BrokenStreamError, match="cut off") as caught:
        read_reply(make_stream(stop_short))

    assert caught.value.received == "half"


def test_a_timeout_cuts_the_source() -> None:
    source = Source(stay_silent)
    limits = TimeLimits(first_token_seconds=0.05)

    with ReplyStream(source, model_name="test", limits=limits) as stream:
        with pytest.raises(ModelTimeoutError):
            next(iter(stream))

        assert source.was_cut.is_set()


def test_a_cancel_before_the_stream_is_entered_counts() -> None:
    stream = make_stream(stay_silent)

    stream.cancel()

    with stream, pytest.raises(ReplyCancelledError):
        next(iter(stream))


def test_a_source_is_told_when_its_reader_has_left() -> None:
    answers: list[bool] = []

    def talk(deliver: Deliver, was_cut: threading.Event) -> None:
        answers.append(deliver(TextDelta("x")))
        was_cut.wait(WAIT_SECONDS)
        answers.append(deliver(TextDelta("y")))

    with make_stream(talk) as stream:
        next(iter(stream))

    assert answers == [True, False]


def test_nothing_follows_the_last_event() -> None:
    def finish(deliver: Deliver, was_cut: threading.Event) -> None:
        deliver(Finished("stop"))

    events: list[ModelEvent] = []
    with make_stream(finish) as stream:
        events.extend(stream)
        events.extend(stream)

    assert events == [Finished("stop")]


def test_reading_outside_the_with_block_is_a_mistake_that_is_named() -> None:
    with pytest.raises(RuntimeError, match="inside its `with` block"):
        next(iter(make_stream(lambda deliver, was_cut: None)))
