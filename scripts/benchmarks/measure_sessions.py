"""Sessions: what it costs that their events are written down, and that others read along."""

from __future__ import annotations

import contextlib
import os
import statistics
import threading
import time
import uuid
from collections.abc import Iterator
from functools import partial

from scripts.benchmarks.bench import Bench
from scripts.benchmarks.measure_output import (
    PRINT_THE_CLOCK,
    SLEEP,
    WARM_UP,
    ClockReader,
    short_prints,
)
from scripts.benchmarks.peers import PeerError
from scripts.benchmarks.processes import peak_resident_bytes, reset_peak, resident_bytes
from scripts.benchmarks.rows import LOCAL, OURS, Row, at_most, interleave
from taskweaver_ext.ces.execution.events import ExecutionEvent, OutputProduced
from taskweaver_ext.ces.execution.executor import RunOptions, new_execution_id
from taskweaver_ext.ces.executors import ExecutorRegistry
from taskweaver_ext.conversation import RoundId
from taskweaver_ext.events.emitter import SessionEventEmitter
from taskweaver_ext.events.journal import Journal
from taskweaver_ext.events.types import PostEventType, TaskWeaverEvent
from taskweaver_ext.roles.code_interpreter.live_output import LiveOutput

_READERS = (1, 10, 100)
_WAIT_SECONDS = 60.0
_MEGABYTE = 1e6


class _Outlet:
    """What a session does with the output of its kernel, with a journal or without."""

    def __init__(self, bench: Bench, *, is_journaled: bool) -> None:
        self._session_id = uuid.uuid4().hex
        self._folder = bench.folder / "sessions" / self._session_id
        self._is_journaled = is_journaled
        bench.environment.start_session(self._session_id, self._folder)
        self._journal = Journal(
            self._folder, session_id=self._session_id, project="", on_failure=_fail
        )
        self.emitter = SessionEventEmitter(self._journal if is_journaled else None)
        self._registry = ExecutorRegistry(bench.environment, self._session_id)
        self.emitter.start_round(RoundId("round"))
        self.on_text: ClockReader | None = None
        """Hears the text as a callback does, before it becomes an event."""
        self.execute(WARM_UP)

    def execute(self, code: str) -> float:
        """Run code to the end; return how many seconds it took."""
        post = self.emitter.create_post_proxy("User")
        execution_id = new_execution_id()
        output = LiveOutput(post, execution_id, self._folder, on_question_void=lambda _: None)

        def on_event(event: ExecutionEvent) -> None:
            if self.on_text is not None and isinstance(event, OutputProduced):
                self.on_text(event.text)
            output.on_event(event)

        options = RunOptions(
            execution_id=execution_id, on_event=on_event, record_on_disk=self._is_journaled
        )
        began = time.monotonic()
        with output:
            result = self._registry.get("python").run(code, options)
        if not result.is_success:
            raise PeerError(result.error)
        return time.monotonic() - began

    def close(self) -> None:
        """End the session."""
        self._registry.close()
        self._journal.close()


def _fail(message: str) -> None:
    raise PeerError(message)


class _PullReader:
    """Reads the output of an outlet on a thread of its own, as fast as it comes."""

    def __init__(self, emitter: SessionEventEmitter, *, pause_seconds: float = 0.0) -> None:
        self.characters = 0
        self.clock: ClockReader | None = None
        self._emitter = emitter
        self._pause_seconds = pause_seconds
        self._after = emitter.last_seq
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def finish(self) -> int:
        """Read what is there by now, and return how many characters that makes altogether."""
        self._is_over.set()
        self._emitter.emit_error("the end")  # wakes those that wait
        self._thread.join(_WAIT_SECONDS)
        return self.characters

    def _read(self) -> None:
        while True:
            is_over = self._is_over.is_set()
            self._emitter.wait(self._after, 0.0 if is_over else 1.0)
            for event in (events := self._emitter.read(self._after)):
                self._hear(event)
                self._after = event.seq
            if is_over and not events:
                return
            if self._pause_seconds:
                self._is_over.wait(self._pause_seconds)

    def _hear(self, event: TaskWeaverEvent) -> None:
        if event.t is PostEventType.post_execution_output:
            self.characters += len(event.msg)
            if self.clock is not None:
                self.clock(event.msg)


def measure_journal(bench: Bench) -> Iterator[Row]:
    """Many short lines through a session, with and without its journal and records."""
    flood = short_prints(bench.sizes.prints)
    with (
        contextlib.closing(_Outlet(bench, is_journaled=True)) as journaled,
        contextlib.closing(_Outlet(bench, is_journaled=False)) as plain,
    ):
        outlets = {OURS: journaled, LOCAL: plain}
        actions = {name: partial(outlet.execute, flood.code) for name, outlet in outlets.items()}
        samples = interleave(4 * bench.sizes.repetitions, actions)
    yield Row(
        name="journal",
        title=f"{flood.title} through a session with a journal",
        unit="s",
        samples=samples,
        goals=[at_most(1.15, LOCAL)],
        notes=["`local` is the same without journal and records on disk"],
    )


def measure_readers(bench: Bench) -> Iterator[Row]:
    """The same while others read along, and the memory that one takes who is slow."""
    flood = short_prints(bench.sizes.prints)
    with contextlib.closing(_Outlet(bench, is_journaled=True)) as outlet:

        def with_readers(count: int) -> float:
            readers = [_PullReader(outlet.emitter) for _ in range(count)]
            seconds = outlet.execute(flood.code)
            if {reader.finish() for reader in readers} - {flood.characters}:
                raise PeerError("a reader has missed something")
            return seconds

        for count in _READERS:
            actions = {OURS: partial(with_readers, count), LOCAL: partial(with_readers, 0)}
            yield Row(
                name="readers",
                title=f"{flood.title}, {count} pull reader{'s' * (count > 1)}",
                unit="s",
                samples=interleave(2 * bench.sizes.repetitions, actions),
                goals=[at_most(1.25 if count < 100 else 2, LOCAL)],
                notes=["`local` is the same without readers"],
            )
        yield Row(
            name="readers",
            title=f"{flood.title}, a reader that pauses: memory of the client",
            unit="MB more",
            samples={OURS: [_growth_with_slow_reader(outlet, flood.code, flood.characters)]},
            goals=[at_most(64)],
        )


def _growth_with_slow_reader(outlet: _Outlet, code: str, characters: int) -> float:
    reader = _PullReader(outlet.emitter, pause_seconds=3600)
    reset_peak(os.getpid())
    before = resident_bytes(os.getpid())
    for _ in range(3):
        outlet.execute(code)
    if reader.finish() != 3 * characters:
        raise PeerError("the reader that pauses has missed something")
    return (peak_resident_bytes(os.getpid()) - before) / _MEGABYTE


def measure_pull_latency(bench: Bench) -> Iterator[Row]:
    """From `print` to a pull reader, as a multiple of `print` to callback in the same run."""
    code = PRINT_THE_CLOCK.format(samples=bench.sizes.latency_samples, wait=SLEEP, flush="")
    pulled, called = ClockReader(), ClockReader()
    with contextlib.closing(_Outlet(bench, is_journaled=True)) as outlet:
        outlet.on_text = called
        reader = _PullReader(outlet.emitter)
        reader.clock = pulled
        for _ in range(bench.sizes.repetitions):
            outlet.execute(code)
        reader.finish()
    ratio = statistics.median(pulled.milliseconds) / statistics.median(called.milliseconds)
    yield Row(
        name="pull_latency",
        title="print to pull reader, p50",
        unit="ms",
        samples={OURS: pulled.milliseconds, LOCAL: called.milliseconds},
        goals=[at_most(2, LOCAL)],
        notes=[f"`local` is print to callback in the same run ({ratio:.2f} ×)"],
    )
