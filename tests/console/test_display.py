"""The thread that owns the terminal: order, rate, questions, and rest."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil
import pytest

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.console.display import MAX_UPDATES_PER_SECOND, Display
from taskweaver_ext.console.inbox import MAX_WAITING_CHARS, InboxSubscription
from taskweaver_ext.console.rows import Painter
from taskweaver_ext.console.transcript import Transcript
from taskweaver_ext.conversation import RoundId
from taskweaver_ext.events.emitter import SessionEventEmitter
from taskweaver_ext.text.terminal import strip_terminal
from tests.support.executions import wait_until

LIMIT_SECONDS = 120.0


class RecordingScreen:
    """Remembers what was drawn, and when."""

    def __init__(self) -> None:
        self.finished: list[str] = []
        self.live: list[str] = []
        self.updates: list[float] = []
        self.changed = threading.Condition()

    def size(self) -> tuple[int, int]:
        return 80, 24

    def update(self, finished: Iterable[str], live: list[str]) -> None:
        with self.changed:
            self.finished += finished
            self.live = live
            self.updates.append(time.monotonic())
            self.changed.notify_all()

    def clear(self) -> None:
        self.finished.clear()

    def reclaim(self) -> None:
        self.live = []

    def copy(self, text: str) -> bool:
        return False

    def wait_until_shown(self, text: str) -> None:
        with self.changed:
            assert self.changed.wait_for(
                lambda: any(text in row for row in [*self.finished, *self.live]), LIMIT_SECONDS
            ), f"{text!r} was not drawn"


@pytest.fixture
def screen() -> RecordingScreen:
    return RecordingScreen()


@pytest.fixture
def display(screen: RecordingScreen, request: pytest.FixtureRequest) -> Iterator[Display]:
    """A display, which shows all output if its parameter says so."""
    collapses = getattr(request, "param", "preview") == "preview"
    transcript = Transcript(80, 24, Painter(has_color=False), collapses=collapses)
    display = Display(screen, transcript)
    yield display
    display.inbox.close()


@pytest.fixture
def emitter(display: Display) -> Iterator[SessionEventEmitter]:
    emitter = SessionEventEmitter()
    emitter.start_round(RoundId("round-1"))
    with InboxSubscription(emitter, display.inbox).open():
        yield emitter


def unwanted() -> None:
    raise AssertionError("there was no question to refuse")


def test_output_is_on_the_screen_while_the_work_goes_on(
    display: Display, screen: RecordingScreen, emitter: SessionEventEmitter
) -> None:
    def work() -> str:
        post = emitter.create_post_proxy("User")
        post.emit_execution_output("stdout", "Start")
        screen.wait_until_shown(" │   Start")
        post.emit_execution_output("stdout", "ing\n")
        screen.wait_until_shown(" │   Starting")
        post.end()
        return "result"

    assert display.run(work, unwanted) == "result"
    assert screen.finished[0] == " │   Starting"
    assert screen.live == []


@pytest.mark.parametrize("display", ["all"], indirect=True)
def test_nothing_is_lost_doubled_or_reordered_and_updates_are_few(
    display: Display, screen: RecordingScreen, emitter: SessionEventEmitter
) -> None:
    def work() -> None:
        post = emitter.create_post_proxy("User")
        for number in range(20_000):
            post.emit_execution_output("stdout", f"{number}\n")
        post.end()

    began = time.monotonic()
    display.run(work, unwanted)
    seconds = time.monotonic() - began

    assert screen.finished[:-1] == [f" │   {number}" for number in range(20_000)]
    # On a busy machine it may look as if little came between two updates.
    assert len(screen.updates) <= seconds * 2 * MAX_UPDATES_PER_SECOND + 3


@pytest.mark.parametrize("display", [1_000_000], indirect=True)
def test_a_line_now_and_then_is_shown_sooner_than_the_next_of_a_flood(
    display: Display, screen: RecordingScreen, emitter: SessionEventEmitter
) -> None:
    def seconds_per_line(name: str, width: int) -> float:
        post = emitter.create_post_proxy("User")
        shown_at = []
        for number in range(20):
            post.emit_execution_output("stdout", f"{name}{number}.{'x' * width}\n")
            screen.wait_until_shown(f"{name}{number}.")
            shown_at.append(time.monotonic())
        post.end()
        gaps = [later - earlier for earlier, later in itertools.pairwise(shown_at)]
        return statistics.median(gaps)

    def work() -> tuple[float, float]:
        return min(
            (
                (seconds_per_line(f"short{turn}-", 1), seconds_per_line(f"long{turn}-", 600))
                for turn in range(3)  # on a busy machine both may take any time
            ),
            key=lambda pair: pair[0] / pair[1],
        )

    short, long = display.run(work, unwanted)

    assert short < 0.8 * long


def test_what_the_work_raises_reaches_the_caller_and_live_rows_are_gone(
    display: Display, screen: RecordingScreen
) -> None:
    def work() -> None:
        screen.wait_until_shown("Ctrl-C stops")
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        display.run(work, unwanted)
    assert screen.live == []


def test_the_thread_that_owns_the_terminal_does_not_wait_for_itself(
    display: Display, emitter: SessionEventEmitter, screen: RecordingScreen
) -> None:
    post = emitter.create_post_proxy("User")

    for _ in range(8):
        post.emit_execution_output("stdout", "x" * (MAX_WAITING_CHARS // 2))
    post.emit_execution_output("stdout", "\nthe end\n")
    display.show_waiting()

    assert display.inbox.receive(0) is None
    assert screen.updates


def test_a_terminal_that_stands_still_holds_back_the_writer(
    display: Display, emitter: SessionEventEmitter
) -> None:
    post = emitter.create_post_proxy("User")
    sent: list[int] = []
    is_done = threading.Event()

    def flood() -> None:
        for number in range(20):
            post.emit_execution_output("stdout", "x" * (MAX_WAITING_CHARS // 4))
            sent.append(number)
        is_done.set()

    writer = threading.Thread(target=flood)
    writer.start()
    wait_until(lambda: len(sent) >= 4)  # from now on there is no room

    assert not is_done.wait(0.2)
    display.run(lambda: is_done.wait(LIMIT_SECONDS), unwanted)
    writer.join(LIMIT_SECONDS)

    assert len(sent) == 20


def test_without_a_prompt_a_question_gets_the_end_of_input(display: Display) -> None:
    assert display.run(lambda: display.input_for("Name? ", False), unwanted) == "\x04"


def test_without_work_nothing_is_drawn(display: Display, screen: RecordingScreen) -> None:
    display.run(lambda: None, unwanted)
    drawn = len(screen.updates)

    with screen.changed:
        assert not screen.changed.wait(0.5)
    assert len(screen.updates) == drawn


def test_a_flood_costs_little_more_with_a_console_than_without(tmp_path: Path) -> None:
    code = "for n in range(200_000): print('line', n)"
    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session()
        session.run_code("python", "pass")

        def run_with_console() -> None:
            screen = RecordingScreen()
            display = Display(screen, Transcript(80, 24, Painter(has_color=True)))
            began = time.monotonic()
            display.run(lambda: session.run_code("python", code, display.inbox), unwanted)
            seconds = time.monotonic() - began
            assert " │   line 199999" in "\n".join(map(strip_terminal, screen.finished))
            # The first and the last come at once, whenever that is.
            assert len(screen.updates) <= seconds * MAX_UPDATES_PER_SECOND + 3

        def run_without() -> None:
            app.environment.execute_code(
                session.session_id, code, on_output=lambda _stream, _text: None
            )

        # Others on the machine can only make it dearer: the cheapest of a few is the truth.
        cost_with = cost_without = float("inf")
        for _ in range(5):
            cost_without = min(cost_without, processor_seconds(run_without))
            cost_with = min(cost_with, processor_seconds(run_with_console))
            if cost_with <= 1.5 * cost_without:
                break

    assert cost_with <= 1.5 * cost_without


def processor_seconds(do: Callable[[], object]) -> float:
    """What we and our kernels spend on something."""
    kernels = psutil.Process().children(recursive=True)

    def spent() -> float:
        times = [kernel.cpu_times() for kernel in kernels]
        return time.process_time() + sum(one.user + one.system for one in times)

    began = spent()
    do()
    return spent() - began
