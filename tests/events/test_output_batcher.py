"""Output is passed on soon, in few pieces, in order, and exactly as it was added."""

from __future__ import annotations

import itertools
import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskweaver_ext.ces.execution.results import StreamName
from taskweaver_ext.conversation import PostId, RoundId
from taskweaver_ext.errors import ConfigError
from taskweaver_ext.events.emitter import SessionEventEmitter
from taskweaver_ext.events.extras import EventExtra
from taskweaver_ext.events.output_batcher import OutputBatcher
from taskweaver_ext.events.types import PostEventType, SessionEventHandlerBase

LIMIT_SECONDS = 120
FOR_EVER = 3600.0
"""An interval that never ends during a test: what comes out did not wait for it."""
TIMER_NAME = "taskweaver-output-batcher"


class Screen:
    """Take what a batcher emits, and notice calls that overlap."""

    def __init__(self, reaction: Callable[[str], None] | None = None) -> None:
        self.calls: list[tuple[StreamName, str]] = []
        self.threads: list[str] = []
        self.arrived: queue.SimpleQueue[tuple[str, float]] = queue.SimpleQueue()
        self.has_overlapped = False
        self._reaction = reaction
        self._busy = threading.Lock()

    def show(self, stream: StreamName, text: str) -> None:
        if not self._busy.acquire(blocking=False):
            self.has_overlapped = True
            return
        try:
            self.calls.append((stream, text))
            self.threads.append(threading.current_thread().name)
            self.arrived.put((text, time.monotonic()))
            if self._reaction is not None:
                self._reaction(text)
        finally:
            self._busy.release()

    def wait_for(self, text: str) -> float:
        """Wait until `text` is passed on, and return when that was."""
        while True:
            arrived_text, moment = self.arrived.get(timeout=LIMIT_SECONDS)
            if arrived_text == text:
                return moment


def merge_runs(pieces: Iterable[tuple[StreamName, str]]) -> list[tuple[StreamName, str]]:
    return [
        (stream, "".join(text for _, text in run))
        for stream, run in itertools.groupby(pieces, key=lambda piece: piece[0])
    ]


def wait_for(event: threading.Event) -> None:
    assert event.wait(LIMIT_SECONDS)


def wait_until_clock_shows(moment: float) -> None:
    pause = threading.Event()
    while (seconds_left := moment - time.monotonic()) > 0:
        pause.wait(seconds_left)


def join(thread: threading.Thread) -> None:
    thread.join(LIMIT_SECONDS)
    assert not thread.is_alive()


@pytest.fixture(autouse=True)
def _no_timer_is_left() -> Iterable[None]:
    yield
    assert [thread for thread in threading.enumerate() if thread.name == TIMER_NAME] == []


# --- when text goes out ---------------------------------------------------------------------------


def test_the_first_piece_goes_out_at_once_and_the_next_ones_wait() -> None:
    screen = Screen()

    with OutputBatcher(screen.show, interval=FOR_EVER) as batcher:
        batcher.add("stdout", "first")
        after_first = list(screen.calls)
        batcher.add("stdout", "second")
        after_second = list(screen.calls)

    assert after_first == after_second == [("stdout", "first")]
    assert screen.calls == [("stdout", "first"), ("stdout", "second")]


def test_what_waits_goes_out_when_the_interval_is_over_though_nothing_more_comes() -> None:
    screen = Screen()
    interval = 0.05

    with OutputBatcher(screen.show, interval=interval) as batcher:
        start = time.monotonic()
        batcher.add("stdout", "first")
        batcher.add("stdout", "tail")
        arrived = screen.wait_for("tail")

    assert screen.threads == ["MainThread", TIMER_NAME]
    assert arrived - start >= interval


def test_a_piece_after_quiet_goes_out_at_once_again() -> None:
    screen = Screen()
    interval = 0.02

    with OutputBatcher(screen.show, interval=interval) as batcher:
        batcher.add("stdout", "first")
        batcher.add("stdout", "tail")
        wait_until_clock_shows(screen.wait_for("tail") + interval)
        batcher.flush()  # returns once the timer's turn is over
        batcher.add("stdout", "after quiet")
        calls = list(screen.calls)

    assert calls[-1] == ("stdout", "after quiet")
    assert screen.threads == ["MainThread", TIMER_NAME, "MainThread"]


def test_there_is_at_most_one_flush_per_interval_however_much_is_added() -> None:
    screen = Screen()
    interval = 0.02
    added = 0

    with OutputBatcher(screen.show, interval=interval, max_chars=10**9) as batcher:
        start = time.monotonic()
        while len(screen.calls) < 8:
            batcher.add("stdout", "x")
            added += 1
        elapsed = time.monotonic() - start

    assert elapsed >= 7 * interval
    assert "".join(text for _, text in screen.calls) == "x" * added
    assert added > 8


def test_a_flush_makes_one_call_per_run_of_a_stream_in_order() -> None:
    screen = Screen()

    with OutputBatcher(screen.show, interval=FOR_EVER) as batcher:
        batcher.add("stdout", "first")
        for stream, text in [
            ("stdout", "a"),
            ("stdout", "b"),
            ("stderr", "c"),
            ("stdout", "d"),
            ("stdout", "e"),
        ]:
            batcher.add("stderr" if stream == "stderr" else "stdout", text)
        batcher.flush()
        calls = screen.calls[1:]

    assert calls == [("stdout", "ab"), ("stderr", "c"), ("stdout", "de")]


def test_max_chars_of_waiting_text_go_out_at_once() -> None:
    screen = Screen()

    with OutputBatcher(screen.show, interval=FOR_EVER, max_chars=10) as batcher:
        batcher.add("stdout", "first")
        batcher.add("stdout", "123456")
        batcher.add("stderr", "789")
        before = screen.calls[1:]
        batcher.add("stderr", "0")
        at_limit = screen.calls[1:]
        batcher.add("stdout", "0123456789 and more")
        one_large_piece = screen.calls[3:]

    assert before == []
    assert at_limit == [("stdout", "123456"), ("stderr", "7890")]
    assert one_large_piece == [("stdout", "0123456789 and more")]
    assert set(screen.threads) == {"MainThread"}


def test_text_added_during_a_slow_call_goes_out_right_after_it() -> None:
    is_inside, may_leave = threading.Event(), threading.Event()

    def hold(text: str) -> None:
        if text == "slow":
            is_inside.set()
            wait_for(may_leave)

    screen = Screen(hold)
    interval = 0.5
    with OutputBatcher(screen.show, interval=interval) as batcher:
        adder = threading.Thread(target=batcher.add, args=("stdout", "slow"))
        adder.start()
        wait_for(is_inside)
        wait_until_clock_shows(time.monotonic() + interval)
        batcher.add("stdout", "meanwhile")
        released = time.monotonic()
        may_leave.set()
        arrived = screen.wait_for("meanwhile")
        join(adder)

    assert arrived - released < interval


def test_an_empty_piece_is_no_piece() -> None:
    screen = Screen()

    with OutputBatcher(screen.show, interval=FOR_EVER) as batcher:
        batcher.add("stdout", "")
        batcher.add("stderr", "first")
        calls = list(screen.calls)
        batcher.add("stdout", "")

    assert calls == screen.calls == [("stderr", "first")]


def test_settings_that_make_no_sense_are_refused() -> None:
    for interval, max_chars in [(-0.1, 1), (0.1, 0)]:
        with pytest.raises(ConfigError, match="must not be negative"):
            OutputBatcher(Screen().show, interval=interval, max_chars=max_chars)


# --- nothing lost, doubled or reordered -----------------------------------------------------------


pieces = st.tuples(st.sampled_from(["stdout", "stderr", "flush"]), st.text(max_size=8))


@settings(deadline=None)
@given(
    steps=st.lists(pieces, max_size=60),
    interval=st.sampled_from([0.0, 0.0002, FOR_EVER]),
    max_chars=st.integers(1, 40),
)
def test_what_goes_out_is_exactly_what_was_added_in_its_order(
    steps: list[tuple[str, str]], interval: float, max_chars: int
) -> None:
    screen = Screen()
    added: list[tuple[StreamName, str]] = []

    with OutputBatcher(screen.show, interval=interval, max_chars=max_chars) as batcher:
        for action, text in steps:
            if action == "flush":
                batcher.flush()
                assert merge_runs(screen.calls) == merge_runs(added)
            elif text:
                stream: StreamName = "stdout" if action == "stdout" else "stderr"
                added.append((stream, text))
                batcher.add(stream, text)

    assert merge_runs(screen.calls) == merge_runs(added)
    assert all(text for _, text in screen.calls)
    assert not screen.has_overlapped


@pytest.mark.parametrize("seed", range(6))
def test_many_threads_lose_double_and_reorder_nothing(seed: int) -> None:
    choice = random.Random(seed)
    screen = Screen()
    batcher = OutputBatcher(
        screen.show, interval=choice.choice([0.0, 0.0005, 0.01]), max_chars=choice.randint(5, 500)
    )
    threads, each = 4, 2000

    def write(name: int) -> None:
        own_choice = random.Random(name + seed * 100)
        for number in range(each):
            stream: StreamName = "stdout" if own_choice.random() < 0.7 else "stderr"
            batcher.add(stream, f"{name}:{number}:{stream};")
            if own_choice.random() < 0.01:
                batcher.flush()

    writers = [threading.Thread(target=write, args=(name,)) for name in range(threads)]
    for writer in writers:
        writer.start()
    for writer in writers:
        join(writer)
    batcher.close()

    words = {
        stream: "".join(text for name, text in screen.calls if name == stream).split(";")[:-1]
        for stream in ("stdout", "stderr")
    }
    assert all(word.endswith(stream) for stream in words for word in words[stream])
    for stream in words:
        for name in range(threads):
            own = [int(word.split(":")[1]) for word in words[stream] if word[0] == str(name)]
            assert own == sorted(set(own))
    assert len(words["stdout"]) + len(words["stderr"]) == threads * each
    assert not screen.has_overlapped


def test_a_flush_waits_for_the_call_that_another_thread_makes() -> None:
    is_inside, may_leave, has_flushed = threading.Event(), threading.Event(), threading.Event()

    def hold(text: str) -> None:
        if text == "slow":
            is_inside.set()
            wait_for(may_leave)

    def flush() -> None:
        batcher.flush()
        has_flushed.set()

    screen = Screen(hold)
    with OutputBatcher(screen.show, interval=FOR_EVER) as batcher:
        adder = threading.Thread(target=batcher.add, args=("stdout", "slow"))
        adder.start()
        wait_for(is_inside)
        batcher.add("stdout", "next")
        flusher = threading.Thread(target=flush)
        flusher.start()
        returned_early = has_flushed.wait(0.1)
        may_leave.set()
        wait_for(has_flushed)
        calls = list(screen.calls)
        join(adder)
        join(flusher)

    assert not returned_early
    assert calls == [("stdout", "slow"), ("stdout", "next")]
    assert not screen.has_overlapped


def test_a_writer_faster_than_the_screen_is_held_back() -> None:
    is_inside, may_leave, has_added = threading.Event(), threading.Event(), threading.Event()

    def hold(text: str) -> None:
        if text == "slow":
            is_inside.set()
            wait_for(may_leave)

    def write() -> None:
        batcher.add("stdout", "x" * 60)
        batcher.add("stdout", "y" * 60)
        has_added.set()

    screen = Screen(hold)
    with OutputBatcher(screen.show, interval=FOR_EVER, max_chars=100) as batcher:
        holder = threading.Thread(target=batcher.add, args=("stdout", "slow"))
        holder.start()
        wait_for(is_inside)
        writer = threading.Thread(target=write)
        writer.start()
        returned_early = has_added.wait(0.1)
        may_leave.set()
        wait_for(has_added)
        join(holder)
        join(writer)

    assert not returned_early
    assert screen.calls == [("stdout", "slow"), ("stdout", "x" * 60 + "y" * 60)]


def test_no_lock_is_held_while_text_is_passed_on() -> None:
    def let_another_thread_add(text: str) -> None:
        if text == "first":
            adder = threading.Thread(target=batcher.add, args=("stdout", "from another thread"))
            adder.start()
            join(adder)

    screen = Screen(let_another_thread_add)
    with OutputBatcher(screen.show, interval=0.01) as batcher:
        batcher.add("stdout", "first")
        screen.wait_for("from another thread")

    assert [text for _, text in screen.calls] == ["first", "from another thread"]


def test_text_that_the_screen_itself_adds_follows_within_the_interval() -> None:
    def echo(text: str) -> None:
        if not text.startswith("re:"):
            batcher.add("stderr", f"re: {text}")
            batcher.flush()

    screen = Screen(echo)
    with OutputBatcher(screen.show, interval=0.01, max_chars=4) as batcher:
        batcher.add("stdout", "first")
        screen.wait_for("re: first")

    assert screen.calls == [("stdout", "first"), ("stderr", "re: first")]


def test_output_becomes_events_of_a_post_in_order() -> None:
    emitter = SessionEventEmitter()
    emitter.start_round(RoundId("round-1"))
    proxy = emitter.create_post_proxy("CodeInterpreter")
    heard: list[EventExtra] = []

    class Listener(SessionEventHandlerBase):
        def handle_post(
            self,
            type: PostEventType,
            msg: str,
            extra: EventExtra,
            post_id: PostId,
            round_id: RoundId,
        ) -> None:
            heard.append(extra)

    with (
        emitter.subscribe(Listener()),
        OutputBatcher(proxy.emit_execution_output, interval=FOR_EVER) as batcher,
    ):
        batcher.add("stdout", "1\n")
        batcher.add("stdout", "2\n")
        batcher.add("stdout", "3\n")
        batcher.add("stderr", "oops\n")

    assert heard == [
        {"stream": "stdout", "text": "1\n", "execution_id": proxy.post.id, "offset": 0},
        {"stream": "stdout", "text": "2\n3\n", "execution_id": proxy.post.id, "offset": 0},
        {"stream": "stderr", "text": "oops\n", "execution_id": proxy.post.id, "offset": 0},
    ]


# --- failures and the end -------------------------------------------------------------------------


def test_a_call_that_raises_is_logged_once_and_nothing_else_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail_on_stderr(text: str) -> None:
        if text.startswith("bad"):
            raise OSError(f"cannot show {text}")

    screen = Screen(fail_on_stderr)
    with OutputBatcher(screen.show, interval=FOR_EVER) as batcher:
        batcher.add("stdout", "bad 1")
        batcher.add("stderr", "bad 2")
        batcher.add("stdout", "good")
        batcher.flush()
        calls = list(screen.calls)

    assert calls == [("stdout", "bad 1"), ("stderr", "bad 2"), ("stdout", "good")]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "cannot show bad 1" in caplog.text


def test_the_timer_outlives_a_call_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    def fail(text: str) -> None:
        raise OSError("cannot show")

    screen = Screen(fail)
    with OutputBatcher(screen.show, interval=0.005) as batcher:
        for text in ("first", "tail 1", "tail 2"):
            batcher.add("stdout", text)
            batcher.add("stderr", text)
            screen.wait_for(text)
            screen.wait_for(text)

    assert len(screen.calls) == 6
    assert len(caplog.records) == 1


def test_an_interrupt_during_a_call_leaves_the_rest_to_the_timer() -> None:
    interval = 0.3

    def interrupt(text: str) -> None:
        if text == "a":
            wait_until_clock_shows(time.monotonic() + 1.5 * interval)  # the timer is at rest again
            raise KeyboardInterrupt

    screen = Screen(interrupt)
    with OutputBatcher(screen.show, interval=interval, max_chars=3) as batcher:
        batcher.add("stdout", "first")
        batcher.add("stdout", "a")
        batcher.add("stderr", "b")
        with pytest.raises(KeyboardInterrupt):
            batcher.add("stdout", "c")
        screen.wait_for("b")
        screen.wait_for("c")

    assert [text for _, text in screen.calls] == ["first", "a", "b", "c"]


def test_close_passes_on_what_waits_and_nothing_comes_after(
    caplog: pytest.LogCaptureFixture,
) -> None:
    screen = Screen()
    batcher = OutputBatcher(screen.show, interval=FOR_EVER)
    batcher.add("stdout", "first")
    batcher.add("stdout", "second")

    batcher.close()
    at_close = list(screen.calls)
    with caplog.at_level(logging.WARNING):
        batcher.add("stdout", "late")
        batcher.add("stderr", "later")
        batcher.flush()
        batcher.close()

    assert at_close == screen.calls == [("stdout", "first"), ("stdout", "second")]
    assert [record.getMessage() for record in caplog.records] == [
        "Output came after its batcher was closed and is not shown."
    ]


def test_close_waits_for_a_call_of_the_timer_and_keeps_the_order() -> None:
    is_inside, may_leave = threading.Event(), threading.Event()

    def hold(text: str) -> None:
        if text == "tail":
            is_inside.set()
            wait_for(may_leave)

    screen = Screen(hold)
    batcher = OutputBatcher(screen.show, interval=0.005)
    batcher.add("stdout", "first")
    batcher.add("stdout", "tail")
    wait_for(is_inside)
    batcher.add("stdout", "last")
    closer = threading.Thread(target=batcher.close)
    closer.start()
    closer.join(0.1)
    was_waiting = closer.is_alive()
    may_leave.set()
    join(closer)

    assert was_waiting
    assert [text for _, text in screen.calls] == ["first", "tail", "last"]


@pytest.mark.parametrize("word", ["first", "tail"])
def test_close_from_inside_a_call_neither_hangs_nor_loses_text(
    word: str, caplog: pytest.LogCaptureFixture
) -> None:
    is_done = threading.Event()

    def close(text: str) -> None:
        if text == word:
            batcher.add("stderr", "added inside")
            batcher.close()
        if text == "added inside":
            is_done.set()

    screen = Screen(close)
    batcher = OutputBatcher(screen.show, interval=0.005)
    batcher.add("stdout", "first")
    batcher.add("stdout", "tail")
    wait_for(is_done)
    batcher.close()

    expected = {"first": ["first", "added inside"], "tail": ["first", "tail", "added inside"]}
    assert [text for _, text in screen.calls] == expected[word]
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


# --- at rest --------------------------------------------------------------------------------------


def test_no_thread_runs_until_something_has_to_wait() -> None:
    before = threading.active_count()

    with OutputBatcher(Screen().show, interval=FOR_EVER) as batcher:
        batcher.add("stdout", "first")
        after_first = threading.active_count()
        batcher.add("stdout", "second")
        after_second = threading.active_count()

    assert (after_first, after_second) == (before, before + 1)
    assert threading.active_count() == before


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
def test_an_idle_batcher_never_wakes_up() -> None:
    screen, window = Screen(), Screen()

    with (
        OutputBatcher(screen.show, interval=0.002) as idle,
        OutputBatcher(window.show, interval=0.5) as clock,
    ):
        idle.add("stdout", "first")
        idle.add("stdout", "tail")
        screen.wait_for("tail")
        timer = next(thread for thread in threading.enumerate() if thread.name == TIMER_NAME)
        clock.add("stdout", "opens")
        clock.add("stdout", "closes the window")
        before = context_switches(timer)
        window.wait_for("closes the window")
        after = context_switches(timer)

    assert after - before <= 2  # its way to rest, where polling would make some 250


def context_switches(thread: threading.Thread) -> int:
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    lines = [line.split() for line in status.splitlines() if "_ctxt_switches" in line]
    return sum(int(count) for _, count in lines)
