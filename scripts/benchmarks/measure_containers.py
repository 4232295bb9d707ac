"""Kernels in containers, against kernels that are started the same way on this machine."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Sequence

from scripts.benchmarks.bench import Bench, SkippedError
from scripts.benchmarks.measure_output import (
    idle_latencies,
    large_writes,
    short_prints,
    speed_row,
)
from scripts.benchmarks.peers import OurPeer, Peer, started
from scripts.benchmarks.rows import LOCAL, OURS, Row, at_least, at_most, interleave
from taskweaver_ext import Environment, EnvMode
from taskweaver_ext.ces.kernels.container.engine import EngineError, shared_engine
from taskweaver_ext.ces.kernels.container.image import DEFAULT_IMAGE, build_image
from taskweaver_ext.config.loading import load_execution_service

_PRINTS = 200_000
_MEGABYTES = 100
"""Fewer are over before the two could be told apart."""


def measure_container(bench: Bench) -> Iterator[Row]:
    """Start, latency and throughput."""
    _have_image(bench)
    with (
        bench.make_environment(env_mode=EnvMode.Container) as container,
        bench.make_environment(warm_start=False) as local,
    ):
        yield _start_row(bench, container, local)
        peers = [OurPeer(container), OurPeer(local, LOCAL)]
        with started(*peers):
            yield from _latency_rows(bench, peers)
            # The two differ by little, so it takes more to tell them apart.
            repetitions = 2 * bench.sizes.repetitions
            for flood in (short_prints(_PRINTS), large_writes(_MEGABYTES)):
                yield speed_row("container", peers, flood, repetitions, at_least(0.9, LOCAL))


def _have_image(bench: Bench) -> None:
    """See to it that there is an engine with our image."""
    try:
        engine = shared_engine(load_execution_service().engine_url)
        has_image = engine.image_labels(DEFAULT_IMAGE) is not None
    except EngineError as error:
        if bench.container_is_required:
            raise
        raise SkippedError(str(error)) from error
    if bench.container_is_required:
        build_image(engine)
    elif not has_image:
        raise SkippedError(f"there is no image {DEFAULT_IMAGE}; scripts/build_image makes it")


def _start_row(bench: Bench, container: Environment, local: Environment) -> Row:
    return Row(
        name="container",
        title="container: start to first output",
        unit="s",
        samples=interleave(
            2 * bench.sizes.repetitions,
            {
                OURS: functools.partial(_seconds_to_first_output, container),
                LOCAL: functools.partial(_seconds_to_first_output, local),
            },
        ),
        goals=[at_most(2.5, LOCAL)],
    )


def _seconds_to_first_output(environment: Environment) -> float:
    began = time.monotonic()
    seen_at: list[float] = []
    with started(peer := OurPeer(environment)):
        peer.execute("print('here')", lambda _text: seen_at.append(time.monotonic()))
    return seen_at[0] - began


def _latency_rows(bench: Bench, peers: Sequence[Peer]) -> Iterator[Row]:
    latencies = idle_latencies(bench, peers)
    for percentile in (50, 99):
        yield Row(
            name="container",
            title=f"container: print to callback, p{percentile}",
            unit="ms",
            samples=latencies,
            percentile=percentile,
            goals=[at_most(2, LOCAL)] if percentile == 50 else [],
        )
