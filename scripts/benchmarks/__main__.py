"""Measure and report: `scripts/bench [--quick] [--container] [--json FILE] [NAME...]`."""

from __future__ import annotations

import argparse
import datetime
import json
import logging
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

from scripts.benchmarks.bench import Bench, Measurement, SkippedError, make_environment
from scripts.benchmarks.measure_console import measure_console
from scripts.benchmarks.measure_containers import measure_container
from scripts.benchmarks.measure_floods import measure_flood_memory, measure_slow_reader
from scripts.benchmarks.measure_gateways import measure_gateway
from scripts.benchmarks.measure_kernels import (
    measure_concurrent_output,
    measure_concurrent_start,
    measure_death,
    measure_execute,
    measure_interrupt,
    measure_memory,
    measure_spare,
    measure_start,
)
from scripts.benchmarks.measure_masking import measure_masking
from scripts.benchmarks.measure_output import (
    measure_busy_latency,
    measure_bytes,
    measure_flushed,
    measure_latency,
    measure_prints,
    measure_streams,
    measure_writes,
)
from scripts.benchmarks.measure_programs import measure_help, measure_import, measure_one_shot
from scripts.benchmarks.measure_sandboxes import measure_sandbox
from scripts.benchmarks.measure_server import measure_server
from scripts.benchmarks.measure_sessions import (
    measure_journal,
    measure_pull_latency,
    measure_readers,
)
from scripts.benchmarks.report import Report
from scripts.benchmarks.sizes import FULL, QUICK

MEASUREMENTS: dict[str, Measurement] = {
    "start": measure_start,
    "spare": measure_spare,
    "memory": measure_memory,
    "execute": measure_execute,
    "latency": measure_latency,
    "busy_latency": measure_busy_latency,
    "prints": measure_prints,
    "writes": measure_writes,
    "streams": measure_streams,
    "bytes": measure_bytes,
    "flushed": measure_flushed,
    "slow_reader": measure_slow_reader,
    "flood_memory": measure_flood_memory,
    "masking": measure_masking,
    "journal": measure_journal,
    "readers": measure_readers,
    "pull_latency": measure_pull_latency,
    "server": measure_server,
    "concurrent_start": measure_concurrent_start,
    "concurrent_output": measure_concurrent_output,
    "death": measure_death,
    "interrupt": measure_interrupt,
    "import": measure_import,
    "help": measure_help,
    "one_shot": measure_one_shot,
    "console": measure_console,
    "sandbox": measure_sandbox,
    "container": measure_container,
    "gateway": measure_gateway,
}


def main() -> int:
    """Run what was asked for; the exit code is 1 when a measurement failed, goals aside."""
    options = _parse_arguments()
    # Settings for Python act on some of those we compare and not on others.
    for name in [name for name in os.environ if name.startswith("PYTHON")]:
        del os.environ[name]
    logging.disable(logging.CRITICAL)  # a killed kernel is no news here
    report = Report(
        is_quick=options.quick,
        started_at=datetime.datetime.now().astimezone().isoformat(" ", "minutes"),
        load_before=os.getloadavg()[0],
    )
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, make_environment(Path(folder)) as environment:
        bench = Bench(
            sizes=QUICK if options.quick else FULL,
            folder=Path(folder),
            environment=environment,
            container_is_required=options.container,
        )
        for name in options.names or MEASUREMENTS:
            _measure(name, bench, report)
    report.seconds = time.monotonic() - began
    report.load_after = os.getloadavg()[0]
    print(f"\n{report.as_text()}")
    if options.json is not None:
        options.json.write_text(json.dumps(report.as_json(), indent=1) + "\n")
    return 1 if report.failed else 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measure our kernels against raw jupyter_client, nbclient, and a plain Python"
        " whose output comes through a pipe (the limit), all in one run.",
        epilog=f"NAME is one of: {', '.join(MEASUREMENTS)}.",
    )
    parser.add_argument("--quick", action="store_true", help="smaller sizes, under two minutes")
    parser.add_argument(
        "--container",
        action="store_true",
        help="containers must be measured: build their image, fail without an engine",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample there")
    parser.add_argument("names", nargs="*", metavar="NAME", help="measure only these")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in MEASUREMENTS]:
        parser.error(f"there is no measurement called {', '.join(unknown)}; {parser.epilog}")
    return options


def _measure(name: str, bench: Bench, report: Report) -> None:
    print(f"{name} ... ", end="", file=sys.stderr, flush=True)
    began = time.monotonic()
    try:
        for row in MEASUREMENTS[name](bench):
            report.rows.append(row)
    except SkippedError as reason:
        report.skipped[name] = str(reason)
        print("skipped", file=sys.stderr)
    except Exception as error:  # noqa: BLE001 - the other measurements can still be made
        report.failed[name] = f"{type(error).__name__}: {error}"
        print("failed", file=sys.stderr)
        traceback.print_exc()
    else:
        print(f"{time.monotonic() - began:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
