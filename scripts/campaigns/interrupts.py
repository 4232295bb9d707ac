"""Interrupts at random moments: each stops the one execution that it is meant for, or nothing.

A round runs code through a door and interrupts through the same door some moment later:
before there is a kernel, while it starts, while code waits for its turn, runs, or has just
ended. An interrupt says whether there was anything to stop. Code that it was for ends as
cancelled unless it was about to end anyway; all other code runs to its end and is whole, and
so does what runs next.
"""

from __future__ import annotations

import collections
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus
from taskweaver_ext.ces.executors import ExecutorRegistry
from taskweaver_ext.errors import SessionError
from taskweaver_ext.events.types import PostEventType, SessionEventHandler, TaskWeaverEvent
from taskweaver_ext.session.session import Session

ROUNDS = 5000

LIMIT_SECONDS = 60.0
"""The longest a round waits for anything."""

Language: TypeAlias = Literal["python", "bash"]
OnText: TypeAlias = Callable[[], None]

ENDLESS: dict[Language, tuple[str, ...]] = {
    "python": (
        "print('a')\nwhile True: pass",
        "print('a')\nimport time\ntime.sleep(1000)",
        "print('a')\nimport subprocess\nsubprocess.run(['sleep', '1000'])",
        "print('a')\nimport asyncio\nawait asyncio.sleep(1000)",
    ),
    "bash": ("echo a; while :; do :; done", "echo a; sleep 1000", "echo a; (sleep 1000); echo b"),
}
FINITE: dict[Language, tuple[str, ...]] = {
    "python": ("print('a')\nprint('b')", "print('a')\nimport time\ntime.sleep(0.005)\nprint('b')"),
    "bash": ("echo a; echo b", "echo a; sleep 0.005; echo b"),
}
WHOLE = "a\nb\n"
NEXT: dict[Language, str] = {"python": "print('next')", "bash": "echo next"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """A way to run code of one language, and to interrupt it."""

    name: str
    language: Language
    run: Callable[[str, OnText], ExecutionResult | None]
    """Runs code and calls back for its output; None when it was stopped before it began."""
    interrupt: Callable[[bool], bool]
    """Stops or kills what runs; says whether there was anything."""
    has_turns: bool = True
    """Whether executions wait for each other."""


class Doors:
    """All doors to the sessions of one folder; each can be opened afresh."""

    def __init__(self, folder: Path) -> None:
        project = folder / "project"
        project.mkdir()
        self._app = TaskWeaverApp(project, {"llm.api_key": "none", "llm.model": "none"})
        self._environment = Environment(folder / "env", spare_kernels=1)
        self._registry = self._open_registry()
        self._session: Session = self._app.get_session()
        self._environment.start_session("bare", wait=False)

    def open_afresh(self) -> None:
        """Replace every session, so that what runs next finds no kernel and no shell."""
        self._environment.stop_session("bare")
        self._environment.start_session("bare", wait=False)
        self._registry.close()
        self._registry = self._open_registry()
        self._session.stop()
        self._session = self._app.get_session()

    def _open_registry(self) -> ExecutorRegistry:
        return ExecutorRegistry(self._environment, "registry", init_script="sleep 0.01")

    def close(self) -> None:
        self._registry.close()
        self._environment.close()
        self._app.close()

    def all(self) -> Sequence[Door]:
        return [
            Door(
                name="environment",
                language="python",
                run=lambda code, on_text: self._environment.execute_code(
                    "bare", code, on_output=lambda *_: on_text()
                ),
                interrupt=lambda kill: self._environment.interrupt("bare", 0.0 if kill else None),
            ),
            *self._doors_of_registry("python"),
            *self._doors_of_registry("bash"),
            *self._doors_of_registry("bash", fresh=True),
            self._door_of_session("python"),
            self._door_of_session("bash"),
        ]

    def _doors_of_registry(self, language: Language, fresh: bool = False) -> Iterator[Door]:
        registry = self._registry
        executor = registry.get(language, fresh=fresh)
        named: dict[str, Callable[[bool], bool]] = {
            "registry": lambda kill: registry.interrupt(kill=kill),
            "executor": lambda kill: executor.interrupt(kill=kill),
        }
        for name, interrupt in named.items():
            yield Door(
                name=f"{name}{', fresh' * fresh}",
                language=language,
                run=lambda code, on_text: executor.execute(code, on_output=lambda *_: on_text()),
                interrupt=interrupt,
                has_turns=not fresh,
            )

    def _door_of_session(self, language: Language) -> Door:
        session = self._session

        def run(code: str, on_text: OnText) -> ExecutionResult | None:
            try:
                return session.run_code(language, code, _Hearing(on_text))
            except SessionError:
                return None

        return Door(
            name="session",
            language=language,
            run=run,
            interrupt=lambda kill: session.interrupt(kill=kill),
            has_turns=False,  # a second run is refused
        )


class _Hearing(SessionEventHandler):
    def __init__(self, on_text: OnText) -> None:
        self._on_text = on_text

    def handle(self, event: TaskWeaverEvent) -> None:
        if event.t is PostEventType.post_execution_output:
            self._on_text()


@dataclass
class Run:
    """Code that runs on a thread of its own."""

    door: Door
    code: str
    has_begun: threading.Event = field(default_factory=threading.Event)
    _running: Future[ExecutionResult | None] = field(init=False)

    def start(self, threads: ThreadPoolExecutor) -> Run:
        self._running = threads.submit(self.door.run, self.code, self.has_begun.set)
        return self

    def wait_until_begun(self) -> None:
        assert self.has_begun.wait(LIMIT_SECONDS), "the code does not begin"

    def end(self) -> tuple[ExecutionStatus, str]:
        """Wait for the end: its status and standard output."""
        result = self._running.result(LIMIT_SECONDS)
        if result is None:
            return ExecutionStatus.CANCELLED, ""
        return result.status, "".join(result.stdout)


class Campaign:
    """Rounds, each with choices of its own."""

    def __init__(self, doors: Doors, seed: int) -> None:
        self._doors = doors
        self._choose = random.Random(seed)
        self._threads = ThreadPoolExecutor(2)
        self.counts: collections.Counter[str] = collections.Counter()
        self.what = ""
        """What the current round does."""

    def play(self) -> None:
        """One round; raises AssertionError when an interrupt was lost, or hit something else."""
        choose = self._choose
        is_fresh = choose.random() < 0.05
        if is_fresh:
            self._doors.open_afresh()
        door = choose.choice(self._doors.all())
        round_kinds = [self._interrupt_endless, self._interrupt_finite, self._interrupt_nothing]
        if door.has_turns and not is_fresh:
            round_kinds.append(self._interrupt_while_another_waits)
        play = choose.choice(round_kinds)
        self.what = f"{door.language} by {door.name}{', fresh session' * is_fresh}, {play.__name__}"
        outcome = play(door)
        self.counts[f"{door.language} by {door.name}: {outcome}"] += 1
        status, text = Run(door, NEXT[door.language]).start(self._threads).end()
        assert (status, text) == (ExecutionStatus.SUCCESS, "next\n"), f"the next: {status}, {text}"

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    def _interrupt_endless(self, door: Door) -> str:
        run = self._start(door, ENDLESS)
        self._wait()
        is_kill = self._choose.random() < 0.1
        if not door.interrupt(is_kill):  # it came before there was anything to interrupt
            run.wait_until_begun()
            assert door.interrupt(is_kill), "an interrupt of running code found nothing"
        status, text = run.end()
        assert status is ExecutionStatus.CANCELLED, f"{status}, {text!r}"
        assert "a\n".startswith(text), repr(text)
        return "killed" if is_kill else "stopped" if text else "stopped before it began"

    def _interrupt_finite(self, door: Door) -> str:
        run = self._start(door, FINITE)
        self._wait()
        was_heard = door.interrupt(False)
        status, text = run.end()
        if status is ExecutionStatus.SUCCESS:
            assert text == WHOLE, repr(text)
            return "too late" if was_heard else "ended by itself"
        assert was_heard, "an interrupt that found nothing has stopped something"
        assert status is ExecutionStatus.CANCELLED, status
        assert WHOLE.startswith(text), repr(text)
        return "stopped, or just ended"

    def _interrupt_nothing(self, door: Door) -> str:
        assert not door.interrupt(self._choose.random() < 0.1), "there was nothing"
        return "nothing to stop"

    def _interrupt_while_another_waits(self, door: Door) -> str:
        running = self._start(door, ENDLESS)
        running.wait_until_begun()
        waiting = self._start(door, FINITE)
        self._wait()
        assert door.interrupt(False)
        status, text = running.end()
        assert status is ExecutionStatus.CANCELLED, f"{status}, {text!r}"
        status, text = waiting.end()
        assert (status, text) == (ExecutionStatus.SUCCESS, WHOLE), f"who waits: {status}, {text!r}"
        return "stopped while another waits"

    def _start(self, door: Door, codes: dict[Language, tuple[str, ...]]) -> Run:
        return Run(door, self._choose.choice(codes[door.language])).start(self._threads)

    def _wait(self) -> None:
        """For a while: that the interrupt comes at any moment is the point."""
        time.sleep(self._choose.uniform(0, self._choose.choice((0.0, 0.001, 0.005, 0.02, 0.06))))


@contextmanager
def open_campaign(folder: Path, seed: int) -> Iterator[Campaign]:
    """Open all doors in an empty folder, and close them afterwards."""
    doors = Doors(folder)
    campaign = Campaign(doors, seed)
    try:
        yield campaign
    finally:
        doors.close()
        campaign.close()


def main(rounds: int, seed: int) -> int:
    """Play rounds, print what was done, and return the exit code."""
    with tempfile.TemporaryDirectory() as folder, open_campaign(Path(folder), seed) as campaign:
        for number in range(rounds):
            try:
                campaign.play()
            except (AssertionError, TimeoutError) as error:
                print(f"seed {seed}, round {number} ({campaign.what}): {error!r}")
                return 1
    for what, count in sorted(campaign.counts.items()):
        print(f"{count:6} {what}")
    print(f"{rounds} rounds with seed {seed}: no interrupt was lost, none hit what came next.")
    return 0
