"""Programs: imports, the command line, and one-shot runs."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from scripts.benchmarks.bench import Bench, SkippedError
from scripts.benchmarks.rows import LIMIT, NBCLIENT, OURS, RAW, Row, at_most, interleave
from taskweaver_ext.ces.process import ProcessExecutor

_HELP_MILLISECONDS = 300


def measure_import(bench: Bench) -> Iterator[Row]:
    """A new interpreter that imports something and ends."""
    statements = {
        OURS: "import taskweaver_ext",
        "Environment": "from taskweaver_ext import Environment",
        RAW: "import jupyter_client",
        NBCLIENT: "import nbclient",
        LIMIT: "pass",
    }
    if bench.sizes.is_quick:
        del statements[NBCLIENT]  # which takes more than a second
    samples = interleave(
        bench.sizes.repetitions,
        {
            name: functools.partial(_milliseconds_to_run, [sys.executable, "-c", statement])
            for name, statement in statements.items()
        },
    )
    environment = samples.pop("Environment")
    yield Row(name="import", title="import taskweaver_ext", unit="ms", samples=samples)
    yield Row(
        name="import",
        title="from taskweaver_ext import Environment",
        unit="ms",
        samples={**samples, OURS: environment},
    )


def measure_help(bench: Bench) -> Iterator[Row]:
    """The command line's help."""
    command = shutil.which("taskweaver-ext", path=str(Path(sys.executable).parent))
    if command is None:
        raise SkippedError("taskweaver-ext is not installed beside this Python")
    yield Row(
        name="help",
        title="taskweaver-ext --help",
        unit="ms",
        samples=interleave(
            bench.sizes.repetitions,
            {
                OURS: functools.partial(_milliseconds_to_run, [command, "--help"]),
                LIMIT: functools.partial(_milliseconds_to_run, [sys.executable, "-c", "pass"]),
            },
        ),
        goals=[at_most(_HELP_MILLISECONDS)],
    )


def measure_one_shot(bench: Bench) -> Iterator[Row]:
    """A fresh Python for code that does nothing."""
    executor = ProcessExecutor("python")

    def run_ours() -> float:
        began = time.monotonic()
        executor.execute("pass")
        return (time.monotonic() - began) * 1000

    try:
        run_ours()
        samples = interleave(
            bench.sizes.small_repetitions // 4,
            {
                OURS: run_ours,
                LIMIT: functools.partial(_milliseconds_to_run, ["python3", "-c", "pass"]),
            },
        )
    finally:
        executor.close()
    yield Row(
        name="one_shot",
        title="one-shot Python, against subprocess.run",
        unit="ms",
        samples=samples,
        goals=[at_most(1.3, LIMIT)],
    )


def _milliseconds_to_run(command: Sequence[str]) -> float:
    began = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return (time.monotonic() - began) * 1000
