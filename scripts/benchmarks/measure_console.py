"""The chat's console: what showing a flood and an idle chat cost, and how soon a line is seen."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from scripts.benchmarks.bench import Bench, SkippedError
from scripts.benchmarks.measure_output import short_prints
from scripts.benchmarks.peers import OurPeer, ignore, started
from scripts.benchmarks.processes import context_switches
from scripts.benchmarks.rows import LOCAL, OURS, Row, at_most, interleave
from scripts.benchmarks.stage_clock import PRINT_STAMPS, STAGES, StageClock
from taskweaver_ext import TaskWeaverApp
from taskweaver_ext.chat.introduction import WELCOME
from taskweaver_ext.console.display import MAX_UPDATES_PER_SECOND, Display
from taskweaver_ext.console.rows import Painter
from taskweaver_ext.console.screen import TerminalScreen
from taskweaver_ext.console.transcript import Transcript

_LINES = 1_000_000
_READY_SECONDS = 60.0
_SETTLE_SECONDS = 2.5
"""After a key prompt_toolkit wakes up once more, for keys that come as several bytes."""
_IDLE_SECONDS = 2.0
_PRINTS = 300
_PRINT_SECONDS = 0.02
_LONGEST = 64
"""Of what is looked for in a stream, and may be cut in two."""


class _CountingScreen(TerminalScreen):
    """A terminal that counts how often it is updated."""

    updates = 0

    def update(self, finished: Iterable[str], live: list[str]) -> None:
        self.updates += 1
        super().update(finished, live)


def measure_console(bench: Bench) -> Iterator[Row]:
    """A flood of lines on a terminal, a line now and then, and a chat that waits for its user."""
    yield from _flood_rows(bench)
    yield from _latency_rows(bench)
    yield _idle_row(bench)


def _flood_rows(bench: Bench) -> Iterator[Row]:
    code = short_prints(_LINES).code
    updates_per_second: list[float] = []
    project = bench.folder / "console"
    project.mkdir()
    with (
        TaskWeaverApp(project, {"workspace.workspace_path": "kept"}) as app,
        _drained_terminal() as terminal,
        started(peer := OurPeer(bench.environment, LOCAL)),
    ):
        session = app.get_session()
        session.run_code("python", "pass")

        def seconds_on_console() -> float:
            screen = _CountingScreen(terminal)
            display = Display(screen, Transcript(*screen.size(), Painter(has_color=True)))
            began = time.monotonic()
            display.run(lambda: session.run_code("python", code, display.inbox), lambda: None)
            seconds = time.monotonic() - began
            # The first and the last come at once, whenever that is.
            updates_per_second.append((screen.updates - 2) / seconds)
            return seconds

        def seconds_without() -> float:
            began = time.monotonic()
            peer.execute(code, ignore)
            return time.monotonic() - began

        samples = interleave(
            bench.sizes.repetitions, {OURS: seconds_on_console, LOCAL: seconds_without}
        )
    yield Row(
        name="console",
        title=f"{_LINES:,} lines in the chat, against no console",
        unit="s",
        samples=samples,
        goals=[at_most(1.5, LOCAL)],
    )
    yield Row(
        name="console",
        title="the same: updates of the screen",
        unit="1/s",
        samples={OURS: updates_per_second},
        goals=[at_most(MAX_UPDATES_PER_SECOND)],
    )


def _latency_rows(bench: Bench) -> Iterator[Row]:
    """From `print` to what a terminal is sent, and how long each stage takes."""
    project = bench.folder / "latency"
    project.mkdir()
    stages = StageClock()
    with (
        TaskWeaverApp(project, {"workspace.workspace_path": "kept"}) as app,
        _watched_terminal(stages) as terminal,
        stages.listening(),
    ):
        session = app.get_session()
        session.run_code("python", "pass")
        screen = TerminalScreen(terminal)
        display = Display(screen, Transcript(*screen.size(), Painter(has_color=True)))
        code = PRINT_STAMPS.format(count=_PRINTS, pause=_PRINT_SECONDS)
        display.run(lambda: session.run_code("python", code, display.inbox), lambda: None)
        stages.wait_for(_PRINTS, _READY_SECONDS)
    for percentile, bound in ((50, 20.0), (95, 40.0)):
        yield Row(
            name="console",
            title=f"print to screen at {1 / _PRINT_SECONDS:g} a second, p{percentile}",
            unit="ms",
            samples={OURS: stages.milliseconds(None, "screen")},
            percentile=percentile,
            goals=[at_most(bound)],
        )
    before: str | None = None
    for stage, title in STAGES.items():
        yield Row(
            name="console",
            title=f"the same: share of {title}",
            unit="ms",
            samples={OURS: stages.milliseconds(before, stage)},
        )
        before = stage


def _idle_row(bench: Bench) -> Row:
    command = shutil.which("taskweaver-ext", path=str(Path(sys.executable).parent))
    if command is None:
        raise SkippedError("taskweaver-ext is not installed beside this Python")
    with _chat_at_its_prompt(command, bench.folder) as chat:
        time.sleep(_SETTLE_SECONDS)
        before = context_switches(chat)
        time.sleep(_IDLE_SECONDS)
        wake_ups = context_switches(chat) - before
    return Row(
        name="console",
        title=f"a chat that waits for {_IDLE_SECONDS:g} s wakes up",
        unit="times",
        samples={OURS: [wake_ups]},
        goals=[at_most(0)],
    )


@contextlib.contextmanager
def _drained_terminal() -> Iterator[int]:
    """A terminal whose other end is read by a process of its own."""
    ours, theirs = pty.openpty()
    drain = subprocess.Popen(["cat"], stdin=ours, stdout=subprocess.DEVNULL)
    os.close(ours)
    try:
        yield theirs
    finally:
        drain.kill()
        drain.wait()
        os.close(theirs)


@contextlib.contextmanager
def _watched_terminal(stages: StageClock) -> Iterator[int]:
    """A terminal whose other end is read by a thread that notes what comes when."""
    ours, theirs = pty.openpty()

    def read() -> None:
        rest = ""
        with contextlib.suppress(OSError):  # closed at the other end
            while data := os.read(ours, 1 << 16):
                rest = stages.note("screen", rest + data.decode(errors="replace"))[-_LONGEST:]

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield theirs
    finally:
        os.close(theirs)
        thread.join(_READY_SECONDS)
        os.close(ours)


@contextlib.contextmanager
def _chat_at_its_prompt(command: str, folder: Path) -> Iterator[int]:
    """A chat on a terminal of its own that has nothing to do; gives its process."""
    ours, theirs = pty.openpty()
    chat = subprocess.Popen(
        [command, "chat"], stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder
    )
    os.close(theirs)
    try:
        _wait_for_prompt(ours)
        yield chat.pid
    finally:
        chat.kill()
        chat.wait()
        os.close(ours)


def _wait_for_prompt(terminal: int) -> None:
    """The prompt is drawn after the welcome; then the chat says no more."""
    seen = b""
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 1.0)[0]:
            seen += os.read(terminal, 1 << 16)
        elif WELCOME.encode() in seen:
            return
    raise TimeoutError(f"the chat did not show its prompt, but {seen!r}")
