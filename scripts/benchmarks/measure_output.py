"""Output: how soon it is seen, and how fast it comes."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scripts.benchmarks.bench import Bench
from scripts.benchmarks.peers import OurPeer, Peer, PeerError, ignore, started
from scripts.benchmarks.rows import (
    LIMIT,
    LOCAL,
    NBCLIENT,
    OURS,
    RAW,
    Goal,
    Row,
    at_most,
    interleave,
)

WARM_UP = "for number in range(1000): print(number)"

_SWIFT_SECONDS = 0.7
"""How long those are measured again that take next to no time."""

PRINT_THE_CLOCK = """
import random, time
for _ in range({samples}):
    {wait}
    print(time.monotonic_ns(){flush})
"""
# Longer than a batch of ours, much shorter than one of a stock kernel.
SLEEP = "time.sleep(random.uniform(0.02, 0.06))"
_BURN = """
    until = time.monotonic() + random.uniform(0.02, 0.06)
    while time.monotonic() < until: pass
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flood:
    """Code that writes a lot, and how many characters it writes."""

    title: str
    code: str
    characters: int


def short_prints(count: int) -> Flood:
    """Many small calls of `print`."""
    return Flood(
        title=f"{count:,} short prints",
        code=f"for _ in range({count}): print('a short line')",
        characters=count * len("a short line\n"),
    )


def one_character_prints(count: int) -> Flood:
    """Many calls of `print` that write as little as possible."""
    return Flood(
        title=f"{count:,} one-character prints",
        code=f"for _ in range({count}): print('x', end='')",
        characters=count,
    )


def one_character_writes(count: int) -> Flood:
    """The same without `print`, which costs a plain interpreter more than the writing."""
    return Flood(
        title=f"{count:,} one-character writes",
        code=f"import sys\nfor _ in range({count}): sys.stdout.write('x')",
        characters=count,
    )


def large_writes(megabytes: int) -> Flood:
    """A few writes of very much."""
    return Flood(
        title=f"{megabytes} MB in 1 MB writes",
        code=f"import sys\ntext = 'x' * 1_000_000\n"
        f"for _ in range({megabytes}): sys.stdout.write(text)",
        characters=megabytes * 1_000_000,
    )


def flushed_prints(count: int) -> Flood:
    """Many calls of `print` that want to be seen at once."""
    return Flood(
        title=f"{count:,} flushed prints",
        code=f"for _ in range({count}): print('a short line', flush=True)",
        characters=count * len("a short line\n"),
    )


def alternating_prints(count: int) -> Flood:
    """Many small calls of `print`, each to the other stream than the one before."""
    return Flood(
        title=f"{count:,} prints alternating between the streams",
        code=f"import sys\nfor _ in range({count // 2}):\n"
        "    print('a short line')\n    print('a short line', file=sys.stderr)",
        characters=count * len("a short line\n"),
    )


def measure_latency(bench: Bench) -> Iterator[Row]:
    """From `print`, without a flush, to the callback."""
    goals = {50: at_most(0.03, RAW), 99: at_most(0.05, RAW)}
    yield from _latency_rows(bench, "latency", "print to callback", SLEEP, goals)


def measure_busy_latency(bench: Bench) -> Iterator[Row]:
    """The same while the code keeps a processor busy."""
    goals = {50: at_most(0.15, RAW), 99: at_most(0.15, RAW)}
    yield from _latency_rows(bench, "busy_latency", "the same in busy code", _BURN, goals)


def _latency_rows(
    bench: Bench, name: str, title: str, wait: str, goals: dict[int, Goal]
) -> Iterator[Row]:
    code = PRINT_THE_CLOCK.format(samples=bench.sizes.latency_samples, wait=wait, flush="")
    # An interpreter that keeps what is printed until its buffer is full sets no limit.
    peers = bench.peers(limit_is_unbuffered=True)
    with started(*peers):
        latencies = _latencies(bench, peers, code)
    for percentile, goal in goals.items():
        yield Row(
            name=name,
            title=f"{title}, p{percentile}",
            unit="ms",
            samples=latencies,
            percentile=percentile,
            goals=[goal],
        )


def idle_latencies(bench: Bench, peers: Sequence[Peer]) -> dict[str, list[float]]:
    """Milliseconds from `print` to callback in code that sleeps meanwhile."""
    code = PRINT_THE_CLOCK.format(samples=bench.sizes.latency_samples, wait=SLEEP, flush="")
    return _latencies(bench, peers, code)


def flushed_latencies(bench: Bench, peers: Sequence[Peer]) -> dict[str, list[float]]:
    """The same where each line is flushed, as stock kernels need it to be quick."""
    flush = ", flush=True"
    code = PRINT_THE_CLOCK.format(samples=bench.sizes.latency_samples, wait=SLEEP, flush=flush)
    return _latencies(bench, peers, code)


def _latencies(bench: Bench, peers: Sequence[Peer], code: str) -> dict[str, list[float]]:
    clocks = [ClockReader() for _ in peers]
    for _ in range(bench.sizes.repetitions):
        for peer, clock in zip(peers, clocks, strict=True):
            peer.execute(code, clock)
    return {peer.name: clock.milliseconds for peer, clock in zip(peers, clocks, strict=True)}


class ClockReader:
    """A callback for lines that tell when they were printed: it keeps how long ago that was."""

    def __init__(self) -> None:
        self.milliseconds: list[float] = []
        self._line = ""

    def __call__(self, text: str) -> None:
        now = time.monotonic_ns()
        *lines, self._line = (self._line + text).split("\n")
        self.milliseconds += [(now - int(line)) / 1e6 for line in lines]


def measure_prints(bench: Bench) -> Iterator[Row]:
    """Many short lines."""
    goals = [at_most(0.2, RAW), at_most(4, LIMIT)]
    yield _throughput_row(bench, "prints", short_prints(bench.sizes.prints), goals)


def measure_writes(bench: Bench) -> Iterator[Row]:
    """Many writes of one character."""
    count = bench.sizes.prints
    names = (OURS, RAW, LIMIT) if bench.sizes.is_quick else (OURS, RAW, NBCLIENT, LIMIT)
    with started(*(peers := bench.peers(*names))):
        goals = [at_most(0.2, RAW), at_most(4, LIMIT)]
        yield _row_of(bench, "writes", one_character_prints(count), goals, peers)
        # No goal against the limit: there, such a write is one call of a C function.
        yield _row_of(bench, "writes", one_character_writes(count), goals[:1], peers)


def measure_streams(bench: Bench) -> Iterator[Row]:
    """Lines that alternate between the streams: how often the time of one stream do they take?"""
    count = bench.sizes.prints * 6 // 10
    mixed, single = alternating_prints(count), short_prints(count)
    for has_callback, goal in ((False, at_most(3)), (True, at_most(8))):
        with started(peer := bench.our_peer()):
            peer.execute(WARM_UP, ignore)
            seconds = functools.partial(_seconds_for, peer, has_callback=has_callback)
            ratios = [seconds(mixed) / seconds(single) for _ in range(2 * bench.sizes.repetitions)]
        yield Row(
            name="streams",
            title=f"{mixed.title}, {'with' if has_callback else 'without'} a callback",
            unit="× one stream",
            samples={OURS: ratios},
            goals=[goal],
        )


def _seconds_for(peer: OurPeer, flood: Flood, *, has_callback: bool) -> float:
    counter = TextCounter()
    began = time.monotonic()
    peer.execute(flood.code, counter if has_callback else None)
    seconds = time.monotonic() - began
    if has_callback and counter.characters != flood.characters:
        raise PeerError(f"{flood.characters - counter.characters:,} characters were lost")
    return seconds


def measure_bytes(bench: Bench) -> Iterator[Row]:
    """Few writes of very much."""
    flood = large_writes(bench.sizes.megabytes)
    yield _throughput_row(bench, "bytes", flood, [at_most(2, LIMIT)])


def measure_flushed(bench: Bench) -> Iterator[Row]:
    """Many lines, each of which is flushed."""
    flood = flushed_prints(bench.sizes.flushed_prints)
    names = (OURS, RAW, LIMIT)
    yield _throughput_row(bench, "flushed", flood, [at_most(0.05, RAW)], names)


def _throughput_row(
    bench: Bench,
    name: str,
    flood: Flood,
    goals: Sequence[Goal],
    names: Sequence[str] = (OURS, RAW, NBCLIENT, LIMIT),
) -> Row:
    with started(*(peers := bench.peers(*names))):
        return _row_of(bench, name, flood, goals, peers)


def _row_of(
    bench: Bench, name: str, flood: Flood, goals: Sequence[Goal], peers: Sequence[Peer]
) -> Row:
    samples, notes = throughput_samples(peers, flood, bench.sizes.repetitions)
    return Row(name=name, title=flood.title, unit="s", samples=samples, goals=goals, notes=notes)


def throughput_samples(
    peers: Sequence[Peer], flood: Flood, repetitions: int
) -> tuple[dict[str, list[float]], list[str]]:
    """Seconds of each peer, and notes on text that did not arrive."""
    lost: dict[str, int] = {}

    def seconds_for(peer: Peer) -> float:
        counter = TextCounter()
        began = time.monotonic()
        peer.execute(flood.code, counter)
        seconds = time.monotonic() - began
        if counter.characters != flood.characters:
            lost[peer.name] = flood.characters - counter.characters
        return seconds

    for peer in peers:
        peer.execute(WARM_UP, ignore)
    actions = {peer.name: functools.partial(seconds_for, peer) for peer in peers}
    samples = interleave(repetitions, actions)
    # What takes us some hundredths of a second needs more samples than what takes a second.
    swift = {name: actions[name] for name in (OURS, LIMIT, LOCAL) if name in actions}
    began = time.monotonic()
    while time.monotonic() - began < _SWIFT_SECONDS:
        for name, more in interleave(1, swift).items():
            samples[name] += more
    return samples, [f"{name} lost {count:,} characters" for name, count in lost.items()]


def speed_row(name: str, peers: Sequence[Peer], flood: Flood, repetitions: int, goal: Goal) -> Row:
    """How fast a flood comes, where ours is to be about as fast as the others."""
    seconds, notes = throughput_samples(peers, flood, repetitions)
    return Row(
        name=name,
        title=f"{name}: {flood.title}",
        unit="MB/s",
        samples={
            peer: [flood.characters / 1e6 / each for each in samples]
            for peer, samples in seconds.items()
        },
        goals=[goal],
        notes=notes,
    )


class TextCounter:
    """A callback that counts characters, and may take its time for that."""

    def __init__(self, seconds_per_call: float = 0.0) -> None:
        self.characters = 0
        self._seconds_per_call = seconds_per_call

    def __call__(self, text: str) -> None:
        self.characters += len(text)
        if self._seconds_per_call:
            time.sleep(self._seconds_per_call)
