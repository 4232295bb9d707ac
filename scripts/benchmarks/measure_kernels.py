"""Kernels: how soon they answer, what they weigh, how they end."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator

from scripts.benchmarks.bench import Bench, at_once
from scripts.benchmarks.peers import (
    MakePeer,
    NbclientPeer,
    OurPeer,
    Peer,
    PeerError,
    RawPeer,
    ignore,
    kernel_pid,
    started,
)
from scripts.benchmarks.processes import descendants, proportional_bytes
from scripts.benchmarks.rows import NBCLIENT, OURS, RAW, Row, at_least, at_most, interleave

_KERNELS = 8
_PRELOADS = ("numpy", "pandas")
_SPARE_SECONDS = 0.5
"""How long a spare kernel may take to be ready for the next session."""
_KILL_AFTER_SECONDS = 0.3
_UNNOTICED_SECONDS = 1.0
_LOOKING_SECONDS = 1.0
"""How seldom a client may look whether its kernel lives."""
_MEBIBYTE = 1 << 20

_PYTHON_LOOP = "print('running', flush=True)\nwhile True: pass"
_C_LOOP = """
import collections, itertools
print('running', flush=True)
collections.deque(itertools.repeat(0), maxlen=0)
"""


def measure_start(bench: Bench) -> Iterator[Row]:
    """From the call that starts a kernel to the reply to its first request."""
    _seconds_to_first_reply(bench.our_peer)  # the zygote is ready from here on
    with bench.make_environment(warm_start=False) as cold:
        samples = interleave(
            bench.sizes.repetitions,
            {
                OURS: lambda: _seconds_to_first_reply(bench.our_peer),
                RAW: lambda: _seconds_to_first_reply(RawPeer),
                NBCLIENT: lambda: _seconds_to_first_reply(NbclientPeer),
                "cold": lambda: _seconds_to_first_reply(lambda: OurPeer(cold)),
                "first": lambda: _seconds_to_first_reply_of_new_environment(bench),
            },
        )
    peers = {RAW: samples[RAW], NBCLIENT: samples[NBCLIENT]}
    yield Row(
        name="start",
        title="start to first reply, forked",
        unit="s",
        samples={OURS: samples[OURS], **peers},
        goals=[at_most(0.12, RAW)],
    )
    for variant, title in (("cold", "not forked"), ("first", "first of a new Environment")):
        yield Row(
            name="start",
            title=f"start to first reply, {title}",
            unit="s",
            samples={OURS: samples[variant], **peers},
        )


def measure_spare(bench: Bench) -> Iterator[Row]:
    """The same where a spare kernel waits to be used."""
    with bench.make_environment(spare_kernels=1) as environment:

        def seconds_with_spare() -> float:
            time.sleep(_SPARE_SECONDS)
            return _seconds_to_first_reply(lambda: OurPeer(environment))

        seconds_with_spare()  # the zygote is ready from here on
        samples = interleave(
            bench.sizes.repetitions,
            {OURS: seconds_with_spare, RAW: lambda: _seconds_to_first_reply(RawPeer)},
        )
    yield Row(
        name="spare",
        title="start to first reply, from a spare",
        unit="s",
        samples=samples,
        goals=[at_most(0.04, RAW)],
    )


def _seconds_to_first_reply(make_peer: MakePeer) -> float:
    began = time.monotonic()
    peer = make_peer()
    with started(peer):
        peer.execute("pass", ignore)
        return time.monotonic() - began


def _seconds_to_first_reply_of_new_environment(bench: Bench) -> float:
    began = time.monotonic()
    with bench.make_environment() as environment, started(peer := OurPeer(environment)):
        peer.execute("pass", ignore)
        return time.monotonic() - began


def measure_execute(bench: Bench) -> Iterator[Row]:
    """The round trip of code that does nothing."""
    peers = bench.peers(OURS, RAW, NBCLIENT)
    with started(*peers):
        samples = interleave(
            bench.sizes.small_repetitions,
            {peer.name: functools.partial(milliseconds_to_execute, peer) for peer in peers},
        )
    yield Row(
        name="execute",
        title="execute `pass`",
        unit="ms",
        samples=samples,
        goals=[at_most(0.5, RAW)],
    )


def milliseconds_to_execute(peer: Peer) -> float:
    """How long a peer takes for code that does nothing."""
    began = time.monotonic()
    peer.execute("pass", ignore)
    return (time.monotonic() - began) * 1000


def measure_memory(bench: Bench) -> Iterator[Row]:
    """What each of some kernels weighs, with its part of the process that forks ours."""
    preloads = [name for name in _PRELOADS if importlib.util.find_spec(name)]
    yield _memory_row(bench, [], 0.6)
    if preloads:
        yield _memory_row(bench, preloads, 0.45)


def _memory_row(bench: Bench, modules: list[str], goal: float) -> Row:
    code = "\n".join(["pass", *(f"import {module}" for module in modules)])
    before = descendants()
    with bench.make_environment(preload=modules) as environment:
        ours = _mebibytes_per_kernel(lambda: OurPeer(environment), code, before)
    theirs = _mebibytes_per_kernel(RawPeer, code, before)
    condition = f", {' and '.join(modules)} imported" if modules else ""
    return Row(
        name="memory",
        title=f"memory per kernel (PSS of {_KERNELS}){condition}",
        unit="MB",
        samples={OURS: [ours], RAW: [theirs]},
        goals=[at_most(goal, RAW)],
    )


def _mebibytes_per_kernel(make_peer: MakePeer, code: str, not_counted: set[int]) -> float:
    with _started_at_once([make_peer() for _ in range(_KERNELS)], code):
        processes = descendants() - not_counted
        return sum(map(proportional_bytes, processes)) / _KERNELS / _MEBIBYTE


@contextlib.contextmanager
def _started_at_once(peers: list[Peer], code: str) -> Iterator[float]:
    """Start all peers together and let each run some code; gives how many seconds that took."""

    def start(peer: Peer) -> None:
        peer.start()
        peer.execute(code, ignore)

    began = time.monotonic()
    try:
        at_once([functools.partial(start, peer) for peer in peers])
        yield time.monotonic() - began
    finally:
        at_once([peer.stop for peer in peers])


def measure_concurrent_start(bench: Bench) -> Iterator[Row]:
    """Many kernels started together, until the last has replied."""
    for count in (_KERNELS, bench.sizes.many_kernels):
        is_measured_in_full = count == _KERNELS or not bench.sizes.is_quick
        actions: dict[str, Callable[[], float]] = {
            OURS: functools.partial(_seconds_to_start, bench.our_peer, count)
        }
        if is_measured_in_full:
            actions[RAW] = functools.partial(_seconds_to_start, RawPeer, count)
        yield Row(
            name="concurrent_start",
            title=f"{count} kernels started at once",
            unit="s",
            samples=interleave((bench.sizes.repetitions + 1) // 2, actions),
            goals=[at_most(0.15, RAW)] if is_measured_in_full else [],
        )


def _seconds_to_start(make_peer: MakePeer, count: int) -> float:
    with _started_at_once([make_peer() for _ in range(count)], "pass") as seconds:
        return seconds


def measure_concurrent_output(bench: Bench) -> Iterator[Row]:
    """Many kernels that print at the same time."""
    lines = bench.sizes.prints_per_kernel
    code = f"for number in range({lines}): print('line', number)"
    ours: list[Peer] = [bench.our_peer() for _ in range(_KERNELS)]
    theirs: list[Peer] = [RawPeer() for _ in range(_KERNELS)]

    def lines_per_second(peers: list[Peer]) -> float:
        began = time.monotonic()
        at_once([functools.partial(peer.execute, code, ignore) for peer in peers])
        return lines * len(peers) / (time.monotonic() - began)

    with _started_at_once(ours, "pass"), _started_at_once(theirs, "pass"):
        samples = interleave(
            bench.sizes.repetitions,
            {OURS: lambda: lines_per_second(ours), RAW: lambda: lines_per_second(theirs)},
        )
    yield Row(
        name="concurrent_output",
        title=f"{_KERNELS} kernels printing at once",
        unit="lines/s",
        samples=samples,
        goals=[at_least(3, RAW)],
    )


def measure_death(bench: Bench) -> Iterator[Row]:
    """From the kill of a kernel to the end of the execution on it."""

    def milliseconds_to_notice(peer: Peer) -> float:
        with started(peer):
            process = kernel_pid(peer)
            return _milliseconds_to_end(
                peer,
                _PYTHON_LOOP,
                lambda: os.kill(process, signal.SIGKILL),
                # A look once a second must not seem to come always at the worst moment.
                after_seconds=random.uniform(0, _LOOKING_SECONDS),
            )

    samples = interleave(
        bench.sizes.repetitions,
        {
            OURS: lambda: milliseconds_to_notice(bench.our_peer()),
            NBCLIENT: lambda: milliseconds_to_notice(NbclientPeer()),
        },
    )
    unnoticed = milliseconds_to_notice(RawPeer(silence_seconds=_UNNOTICED_SECONDS))
    yield Row(
        name="death",
        title="kernel killed, noticed after",
        unit="ms",
        samples=samples,
        goals=[at_most(50)],
        notes=[f"raw had not noticed after {unnoticed / 1000:.1f} s"],
    )


def measure_interrupt(bench: Bench) -> Iterator[Row]:
    """From the interrupt to the end of the execution."""
    peers = bench.peers(OURS, RAW, NBCLIENT)
    with started(*peers):
        samples = interleave(
            bench.sizes.small_repetitions // 10,
            {
                peer.name: functools.partial(
                    _milliseconds_to_end, peer, _PYTHON_LOOP, peer.interrupt
                )
                for peer in peers
            },
        )
    yield Row(
        name="interrupt",
        title="interrupt of a Python loop",
        unit="ms",
        samples=samples,
        goals=[at_most(1, RAW)],
    )

    def milliseconds_to_kill() -> float:
        with started(peer := OurPeer(bench.environment)):
            return _milliseconds_to_end(
                peer, _C_LOOP, lambda: peer.interrupt(kill_after=_KILL_AFTER_SECONDS)
            )

    yield Row(
        name="interrupt",
        title=f"the same of a C loop, kill_after={_KILL_AFTER_SECONDS:g} s",
        unit="ms",
        samples=interleave(bench.sizes.repetitions, {OURS: milliseconds_to_kill}),
        goals=[at_most(_KILL_AFTER_SECONDS * 1000 + 100)],
    )


def _milliseconds_to_end(
    peer: Peer, code: str, end: Callable[[], None], after_seconds: float = 0.05
) -> float:
    """Run endless code that says when it runs, end it some time later, and wait for that."""
    ended_at: list[float] = []

    def end_it() -> None:
        ended_at.append(time.monotonic())
        end()

    def end_it_soon(_text: str) -> None:
        threading.Timer(after_seconds, end_it).start()

    with contextlib.suppress(PeerError):
        peer.execute(code, end_it_soon)
    return (time.monotonic() - ended_at[0]) * 1000
