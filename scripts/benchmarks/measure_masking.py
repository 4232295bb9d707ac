"""Masking: what it costs that a session's output is searched for secrets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from scripts.benchmarks.bench import Bench
from scripts.benchmarks.measure_output import short_prints
from scripts.benchmarks.rows import LOCAL, OURS, Row, at_most, interleave
from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.text.redaction import Redactor

_SECRETS = [f"sk-{number:02}-4f5e6d7c8b9a0f1e2d3c4b5a" for number in range(10)]
_PATTERNS = ["ghp_[A-Za-z0-9]{36}", "AKIA[A-Z0-9]{16}"]


def measure_masking(bench: Bench) -> Iterator[Row]:
    """Processor time of kernel and client with ten secrets and two patterns, and with none."""
    flood = short_prints(bench.sizes.prints)
    redactor = Redactor(_SECRETS, _PATTERNS)
    with (
        bench.make_environment(redactor=redactor) as masking,
        bench.make_environment() as plain,
    ):
        environments = {OURS: masking, LOCAL: plain}
        for environment in environments.values():
            environment.start_session("s1")
            _processor_seconds(environment, flood.code)
        samples = interleave(
            bench.sizes.repetitions,
            {
                name: partial(_processor_seconds, environment, flood.code)
                for name, environment in environments.items()
            },
        )
    yield Row(
        name="masking",
        title=f"{flood.title}, masked",
        unit="s CPU",
        samples=samples,
        goals=[at_most(1.1, LOCAL)],
        notes=["`local` is the same without secrets to mask"],
    )


def _processor_seconds(environment: Environment, code: str) -> float:
    began = time.process_time()
    result = environment.execute_code("s1", code, on_output=lambda _stream, _text: None)
    return time.process_time() - began + (result.usage.cpu_seconds or 0.0)
