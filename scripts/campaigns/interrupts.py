"""Interrupts at random moments: each stops the one execution that it is meant for, or nothing.

A round runs code through a door and interrupts through the same door some moment later:
before there is a kernel, while it starts, while code waits for its turn, runs, or has just
ended, also while the next code is on its way. An interrupt says whether there was anything to
stop. Code that it was for ends as cancelled unless it was about to end anyway; all other code
runs to its end and is whole, and so does what runs next.
"""

from __future__ import annotations

import collections
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.executor import RunOptions
from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus
from taskweaver_ext.ces.executors import ExecutorRegistry
from taskweaver_ext.errors import SessionError
from taskweaver_ext.events.types import PostEventType, SessionEventHandler, TaskWeaverEvent
from taskweaver_ext.session.session import Session

ROUNDS = 5000

SETTINGS = {
    "llm.api_key": "none",
    "llm.model": "none",
    "workspace.workspace_path": "kept",
}

LIMIT_SECONDS = 60.0
"""The longest a round waits for anything."""

SWITCH_SECONDS = 1e-5
"""How long a thread of ours runs before another does: short, so that they meet at any point."""

Language: TypeAlias = Literal["python", "bash"]

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
CHAIN_LENGTH = 4
NEXT: dict[Language, str] = {"python": "print('next')", "bash": "echo next"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """A way to run code of one language, and to interrupt it."""

    name: str
    language: Language
    run: Callable[[str, RunOptions], ExecutionResult | None]
    """Runs code; None when it was stopped before it began."""
    interrupt: Callable[[bool], bool]
    """Stops or kills what runs; says whether there was anything."""
    has_turns: bool = True
    """Whether executions wait for each other."""
    has_tokens: bool = True
    """Whether the token of the options stops an execution."""


class Doors:
    """All doors to the sessions of one folder; each can be opened afresh."""

    def __init__(self, folder: Path) -> None:
        project = folder / "project"
        project.mkdir()
        self._app = TaskWeaverApp(project, SETTINGS)
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
                run=lambda code, options: self._environment.run("bare", code, options),
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
                run=executor.run,
                interrupt=interrupt,
                has_turns=not fresh,
            )

    def _door_of_session(self, language: Language) -> Door:
        session = self._session

        def run(code: str, options: RunOptions) -> ExecutionResult | None:
            try:
                return session.run_code(language, code, _Hearing(options))
            except SessionError:
                return None

        return Door(
            name="session",
            language=language,
            run=run,
            interrupt=lambda kill: session.interrupt(kill=kill),
            has_turns=False,  # a second run is refused
            has_tokens=False,
        )


class _Hearing(SessionEventHandler):
    def __init__(self, options: RunOptions) -> None:
        self._on_output = options.on_output

    def handle(self, event: TaskWeaverEvent) -> None:
        if event.t is PostEventType.post_execution_output and self._on_output is not None:
            self._on_output("stdout", event.msg)


End: TypeAlias = tuple[ExecutionStatus, str]
"""The status of an execution and its standard output."""


class Run:
    """Code that runs through a door."""

    def __init__(self, door: Door, code: str) -> None:
        self._door = door
        self._code = code
        self._has_begun = threading.Event()
        self._running: Future[End] | None = None
        self._options = RunOptions(on_output=lambda *_: self._has_begun.set())
        self.token = self._options.token

    def play(self) -> End:
        """Run the code here."""
        result = self._door.run(self._code, self._options)
        if result is None:
            return ExecutionStatus.CANCELLED, ""
        return result.status, "".join(result.stdout)

    def start(self, threads: ThreadPoolExecutor) -> Run:
        """Run it on a thread of its own."""
        self._running = threads.submit(self.play)
        return self

    def wait_until_begun(self) -> None:
        assert self._has_begun.wait(LIMIT_SECONDS), "the code does not begin"

    def end(self) -> End:
        """Wait for the end of what was started."""
        assert self._running is not None
        return self._running.result(LIMIT_SECONDS)


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
        round_kinds = [
            self._interrupt_endless,
            self._interrupt_finite,
            self._interrupt_nothing,
            self._interrupt_a_chain,
        ]
        if door.has_turns and not is_fresh:
            round_kinds.append(self._interrupt_while_another_waits)
        if door.has_tokens:
            round_kinds.append(self._cancel_one_of_a_chain)
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

    def _interrupt_a_chain(self, door: Door) -> str:
        """Each interrupt stops one execution at most, though one follows the other."""
        chain = self._chain(door)
        running = self._threads.submit(lambda: [run.play() for run in chain])
        heard_count = 0
        for _ in range(CHAIN_LENGTH):
            self._wait()
            heard_count += door.interrupt(False)
        stopped = self._stopped_in_chain(running.result(LIMIT_SECONDS))
        assert len(stopped) <= heard_count, f"{heard_count} interrupts have stopped {stopped}"
        return "stopped in a chain" if stopped else "nothing stopped in a chain"

    def _cancel_one_of_a_chain(self, door: Door) -> str:
        """The wish to stop one execution stops no other, not even the one right behind it."""
        chain = self._chain(door)
        meant = self._choose.randrange(CHAIN_LENGTH)
        token = chain[meant].token
        token.on_cancel(lambda _: self._wait())  # before those that stop it are told
        running = self._threads.submit(lambda: [run.play() for run in chain])
        if self._choose.random() < 0.5:
            chain[meant].wait_until_begun()
        else:
            self._wait()
        token.cancel()
        stopped = self._stopped_in_chain(running.result(LIMIT_SECONDS))
        assert stopped in ([], [meant]), f"{meant} was cancelled, but {stopped} stopped"
        return "one cancelled in a chain" if stopped else "cancelled in a chain too late"

    def _chain(self, door: Door) -> list[Run]:
        codes = FINITE[door.language]
        return [Run(door, self._choose.choice(codes)) for _ in range(CHAIN_LENGTH)]

    def _stopped_in_chain(self, ends: Sequence[End]) -> list[int]:
        """Return which executions were stopped; all others are whole."""
        stopped = [n for n, (status, _) in enumerate(ends) if status is ExecutionStatus.CANCELLED]
        for number, (status, text) in enumerate(ends):
            if number in stopped:
                assert WHOLE.startswith(text), repr(text)
            else:
                assert (status, text) == (ExecutionStatus.SUCCESS, WHOLE), f"{status}, {text!r}"
        return stopped

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
    switch_seconds = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield campaign
    finally:
        sys.setswitchinterval(switch_seconds)
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
