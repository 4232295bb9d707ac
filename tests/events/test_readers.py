"""Readers get the events of a session at their own pace, and hold nothing back."""

from __future__ import annotations

import threading
import time

import pytest

from taskweaver_ext.conversation import RoundId
from taskweaver_ext.errors import SessionError
from taskweaver_ext.events.emitter import SessionEventEmitter
from taskweaver_ext.events.types import (
    EventScope,
    RoundEventType,
    SessionEventType,
    TaskWeaverEvent,
)
from tests.support.conversations import Listener
from tests.support.executions import LIMIT_SECONDS

ROUND = RoundId("round-1")


def say(emitter: SessionEventEmitter, msg: str) -> None:
    emitter.emit(TaskWeaverEvent(EventScope.round, RoundEventType.round_new_post, ROUND, None, msg))


class KeptJournal:
    """Keeps everything, as a journal on disk does."""

    def __init__(self, last_seq: int = 0) -> None:
        self.last_seq = last_seq
        self.events: list[TaskWeaverEvent] = []

    def append(self, event: TaskWeaverEvent) -> None:
        self.events.append(event)

    def read(self, after: int, max_bytes: int) -> list[TaskWeaverEvent]:
        return [event for event in self.events if event.seq > after][:3]


def read_all(emitter: SessionEventEmitter, after: int = 0) -> list[TaskWeaverEvent]:
    """Read until there is nothing more."""
    events: list[TaskWeaverEvent] = []
    while piece := emitter.read(after, max_bytes=1000):
        events += piece
        after = piece[-1].seq
    return events


def test_a_reader_gets_what_a_handler_hears_at_its_own_pace() -> None:
    emitter = SessionEventEmitter()
    listener = Listener()
    with emitter.subscribe(listener):
        for number in range(100):
            say(emitter, str(number))

    assert read_all(emitter) == listener.events
    assert read_all(emitter, after=90) == listener.events[90:]
    assert emitter.read(100) == []


def test_a_reader_gets_at_least_one_event_however_large() -> None:
    emitter = SessionEventEmitter()
    say(emitter, "x" * 10_000)
    say(emitter, "y")

    assert [len(event.msg) for event in emitter.read(0, max_bytes=10)] == [10_000]


def test_a_reader_that_comes_too_late_is_told_what_it_missed() -> None:
    emitter = SessionEventEmitter(max_kept_events=3)
    for number in range(10):
        say(emitter, str(number))

    missed, *kept = emitter.read(2)

    assert missed.t is SessionEventType.session_events_missed
    assert missed.extra == {"first_seq": 3, "last_seq": 7}
    assert [event.msg for event in kept] == ["7", "8", "9"]


def test_what_memory_no_longer_has_comes_from_the_journal() -> None:
    emitter = SessionEventEmitter(KeptJournal(), max_kept_events=3)
    for number in range(10):
        say(emitter, str(number))

    assert [event.msg for event in read_all(emitter)] == [str(number) for number in range(10)]


def test_an_event_is_in_the_journal_before_any_handler_hears_it() -> None:
    journal = KeptJournal()
    emitter = SessionEventEmitter(journal)
    written: list[int] = []
    with emitter.subscribe(Listener(lambda event: written.append(journal.events[-1].seq))):
        say(emitter, "a")
        say(emitter, "b")

    assert written == [1, 2]


def test_numbers_go_on_where_the_journal_ends() -> None:
    emitter = SessionEventEmitter(KeptJournal(last_seq=41))
    say(emitter, "next")

    assert [event.seq for event in emitter.read(41)] == [42]


def test_a_reader_that_waits_wakes_with_the_next_event() -> None:
    emitter = SessionEventEmitter()
    assert not emitter.wait(0, seconds=0)
    found: list[bool] = []
    reader = threading.Thread(
        target=lambda: found.append(emitter.wait(0, seconds=LIMIT_SECONDS)), daemon=True
    )
    reader.start()
    say(emitter, "at last")
    reader.join(LIMIT_SECONDS)

    assert found == [True]
    assert emitter.wait(0, seconds=0)


@pytest.mark.parametrize("after", [-1, 1])
def test_reading_after_an_event_that_never_was_is_refused(after: int) -> None:
    emitter = SessionEventEmitter()

    with pytest.raises(SessionError, match="no event"):
        emitter.read(after)
    with pytest.raises(SessionError, match="no event"):
        emitter.wait(after, seconds=0)


def test_events_have_the_time_at_which_they_happened() -> None:
    emitter = SessionEventEmitter()
    before = time.time()
    say(emitter, "now")

    [event] = emitter.read(0)
    assert before <= event.at <= time.time()


def test_the_time_of_events_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    emitter = SessionEventEmitter()
    say(emitter, "before the clock was set")
    monkeypatch.setattr(time, "time", lambda: 1.0)
    say(emitter, "after it was set back")

    first, second = emitter.read(0)
    assert second.at == first.at


def test_eight_threads_emit_without_gaps_and_each_in_its_order() -> None:
    emitter = SessionEventEmitter(KeptJournal())
    listener = Listener()

    def emit(n: int) -> None:
        for count in range(500):
            say(emitter, f"{n}:{count}")

    with emitter.subscribe(listener):
        threads = [threading.Thread(target=emit, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_SECONDS)

    events = read_all(emitter)
    assert events == listener.events
    assert [event.seq for event in events] == list(range(1, 4001))
    assert [event.at for event in events] == sorted(event.at for event in events)
    for n in range(8):
        own = [event.msg for event in events if event.msg.startswith(f"{n}:")]
        assert own == [f"{n}:{count}" for count in range(500)]
