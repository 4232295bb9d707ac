"""Kernels in sandboxes, against local ones that are forked as they are."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator

from scripts.benchmarks.bench import Bench, SkippedError
from scripts.benchmarks.peers import OurPeer, started
from scripts.benchmarks.rows import LOCAL, OURS, Row, at_most, interleave
from taskweaver_ext import Environment, EnvMode
from taskweaver_ext.ces.sandbox.sandbox import probe

_STARTS = 4
"""For each repetition: the two differ by little, so it takes many to tell them apart."""


def measure_sandbox(bench: Bench) -> Iterator[Row]:
    """Start."""
    if missing := probe().missing:
        raise SkippedError(" ".join(dict.fromkeys(missing.values())))
    with (
        bench.make_environment(env_mode=EnvMode.Sandbox) as sandbox,
        bench.make_environment() as local,
    ):
        for environment in (sandbox, local):  # what is done once
            _seconds_to_first_reply(environment)
        yield Row(
            name="sandbox",
            title="sandbox: start to first reply",
            unit="s",
            samples=interleave(
                _STARTS * bench.sizes.repetitions,
                {
                    OURS: functools.partial(_seconds_to_first_reply, sandbox),
                    LOCAL: functools.partial(_seconds_to_first_reply, local),
                },
            ),
            goals=[at_most(1.2, LOCAL)],
        )


def _seconds_to_first_reply(environment: Environment) -> float:
    began = time.monotonic()
    with started(peer := OurPeer(environment)):
        peer.execute("pass", lambda _text: None)
        return time.monotonic() - began
