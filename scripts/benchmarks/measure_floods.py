"""Floods of output: does all of it arrive, and does memory stay bounded in every process?

Each flood has a client process of its own: what an earlier one left in the heap would
hide what this one needs.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from scripts.benchmarks.bench import Bench, make_environment
from scripts.benchmarks.measure_output import (
    WARM_UP,
    Flood,
    TextCounter,
    flushed_prints,
    large_writes,
    one_character_writes,
    short_prints,
)
from scripts.benchmarks.peers import (
    NbclientPeer,
    OurPeer,
    Peer,
    PeerError,
    RawPeer,
    ignore,
    kernel_pid,
    started,
)
from scripts.benchmarks.processes import peak_resident_bytes, reset_peak, resident_bytes
from scripts.benchmarks.rows import NBCLIENT, OURS, RAW, Row, at_least, at_most

_GROWTH_GOAL_MEGABYTES = 64
_SLOW_CALL_SECONDS = 0.05
_SLOW_LINE_SECONDS = 0.005
_SLOW_LINES = 20_000
_HANGING_SECONDS = 10.0
_MEGABYTE = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Flooded:
    """What a flood did."""

    received_share: float
    client_growth: float
    """Megabytes above what the process held before."""
    kernel_growth: float
    failure: str = ""


def measure_flood_memory(bench: Bench) -> Iterator[Row]:
    """How much memory a flood takes, in the client and in the kernel, at its peak."""
    yield from _growth_rows(short_prints(1_000_000), (OURS,))
    large = large_writes(100)
    if bench.sizes.is_quick:
        yield from _growth_rows(large, (OURS,))
        large = large_writes(40)
    else:
        yield from _growth_rows(large, (OURS, RAW, NBCLIENT))
        yield from _growth_rows(one_character_writes(1_000_000), (OURS,))
        yield from _growth_rows(short_prints(1_000_000), (OURS,), _SLOW_CALL_SECONDS)
    yield from _growth_rows(large, (OURS,), _SLOW_CALL_SECONDS)


def _growth_rows(
    flood: Flood, names: Sequence[str], seconds_per_call: float = 0.0
) -> Iterator[Row]:
    results = {name: _flood_in_new_process(name, flood, seconds_per_call) for name in names}
    slowly = f", callback takes {seconds_per_call * 1000:g} ms" if seconds_per_call else ""
    for process in ("client", "kernel"):
        yield Row(
            name="flood_memory",
            title=f"growth of the {process}: {flood.title}{slowly}",
            unit="MB",
            samples={
                name: [getattr(result, f"{process}_growth")] for name, result in results.items()
            },
            goals=[at_most(_GROWTH_GOAL_MEGABYTES)],
            notes=_notes(results),
        )


def measure_slow_reader(bench: Bench) -> Iterator[Row]:
    """Flushed lines that come faster than they are read."""
    flood = flushed_prints(_SLOW_LINES)
    names = (OURS,) if bench.sizes.is_quick else (OURS, RAW)
    results = {name: _flood_in_new_process(name, flood, _SLOW_LINE_SECONDS) for name in names}
    title = f"{flood.title}, reader takes {_SLOW_LINE_SECONDS * 1000:g} ms each"
    yield Row(
        name="slow_reader",
        title=f"{title}: received",
        unit="%",
        samples={name: [result.received_share * 100] for name, result in results.items()},
        goals=[at_least(100)],
        notes=_notes(results),
    )
    yield Row(
        name="slow_reader",
        title="the same: largest growth of a process",
        unit="MB",
        samples={
            name: [max(result.client_growth, result.kernel_growth)]
            for name, result in results.items()
        },
        goals=[at_most(_GROWTH_GOAL_MEGABYTES)],
    )


def _notes(results: dict[str, Flooded]) -> list[str]:
    notes = [f"{name}: {result.failure}" for name, result in results.items() if result.failure]
    notes += [
        f"{name} received {result.received_share:.1%}"
        for name, result in results.items()
        if result.received_share != 1
    ]
    return notes


def _flood_in_new_process(name: str, flood: Flood, seconds_per_call: float) -> Flooded:
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawning) as process:
        return process.submit(_flood_peer, name, flood, seconds_per_call).result()


def _flood_peer(name: str, flood: Flood, seconds_per_call: float) -> Flooded:
    with _new_peer(name) as peer:
        peer.execute(WARM_UP, ignore)
        processes = (os.getpid(), kernel_pid(peer))
        before = [resident_bytes(process) for process in processes]
        for process in processes:
            reset_peak(process)
        counter = TextCounter(seconds_per_call)
        failure = ""
        try:
            peer.execute(flood.code, counter)
        except PeerError as error:
            failure = str(error)
        client_growth, kernel_growth = (
            (peak_resident_bytes(process) - earlier) / _MEGABYTE
            for process, earlier in zip(processes, before, strict=True)
        )
    return Flooded(
        received_share=counter.characters / flood.characters,
        client_growth=client_growth,
        kernel_growth=kernel_growth,
        failure=failure,
    )


@contextlib.contextmanager
def _new_peer(name: str) -> Iterator[Peer]:
    with contextlib.ExitStack() as stack:
        peer: Peer
        if name == OURS:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            peer = OurPeer(stack.enter_context(make_environment(folder)))
        else:
            peer = RawPeer(silence_seconds=_HANGING_SECONDS) if name == RAW else NbclientPeer()
        stack.enter_context(started(peer))
        yield peer
