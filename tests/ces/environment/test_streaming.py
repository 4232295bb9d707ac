"""Output is seen while the code runs, complete and in order, whatever its amount."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.results import ExecutionStatus
from taskweaver_ext.ces.kernels.modes import EnvMode
from tests.support.executions import (
    MemoryWatch,
    OpenEnvironment,
    digest_of,
    digest_of_stdout,
    run,
    times,
    wait_until,
)

MEGABYTE = 1 << 20

LINES = 1_000_000
LARGE_WRITES = 100
"""Sizes on local kernels; elsewhere a tenth of them has to do."""

FLOODS: dict[str, tuple[str, int, Callable[[int], Iterable[str]]]] = {
    "a million lines": (
        "for i in range({count}): print('line', i)",
        LINES,
        lambda count: (f"line {i}\n" for i in range(count)),
    ),
    "100 MB in large writes": (
        "import sys\nfor i in range({count}): sys.stdout.write(chr(97 + i % 26) * (1 << 20))",
        LARGE_WRITES,
        lambda count: (chr(97 + i % 26) * MEGABYTE for i in range(count)),
    ),
    "a million one-character writes": (
        "import sys\nfor i in range({count}): sys.stdout.write(chr(97 + i % 26))",
        LINES,
        lambda count: (chr(97 + i % 26) for i in range(count)),
    ),
}


def test_output_arrives_while_the_code_still_runs(environment: Environment, tmp_path: Path) -> None:
    gate = tmp_path / "session" / "cwd" / "gate"
    code = f"""
import pathlib, time
print("waiting")
while not pathlib.Path({str(gate)!r}).exists():
    time.sleep(0.01)
"""

    heard = run(environment, code, on_output=lambda *_: gate.touch())

    assert heard.text() == "waiting\n"
    assert heard.result.status is ExecutionStatus.SUCCESS


def test_a_partial_line_arrives_while_the_code_still_runs(
    environment: Environment, tmp_path: Path
) -> None:
    gate = tmp_path / "session" / "cwd" / "gate"
    code = f"""
import pathlib, time
print("no newline", end="")
while not pathlib.Path({str(gate)!r}).exists():
    time.sleep(0.01)
"""

    heard = run(environment, code, on_output=lambda *_: gate.touch())

    assert heard.text() == "no newline"
    assert heard.result.status is ExecutionStatus.SUCCESS


def test_the_tail_of_a_burst_arrives_without_more_output(
    environment: Environment, tmp_path: Path
) -> None:
    gate = tmp_path / "session" / "cwd" / "gate"
    code = f"""
import pathlib, time
for i in range(1000): print(i)
while not pathlib.Path({str(gate)!r}).exists():
    time.sleep(0.01)
"""
    seen: list[str] = []

    def open_gate_at_the_last_line(_stream: str, text: str) -> None:
        seen.append(text)
        if "".join(seen).endswith("999\n"):
            gate.touch()

    heard = run(environment, code, on_output=open_gate_at_the_last_line)

    assert heard.result.status is ExecutionStatus.SUCCESS


@pytest.mark.parametrize("is_slow", [False, True], ids=["fast", "slow"])
@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_arrives_complete_and_memory_stays_bounded(
    environment: Environment, flood: str, is_slow: bool
) -> None:
    code, count, text_of = FLOODS[flood]
    if environment.env_mode is not EnvMode.Local:
        count //= 10
    expected = partial(text_of, count)
    kernel_before = environment.execute_code("s1", "pass").usage.peak_memory_bytes or 0
    client = MemoryWatch(os.getpid())
    seen_characters = 0

    def listen(_stream: str, text: str) -> None:
        nonlocal seen_characters
        seen_characters += len(text)
        if is_slow:
            time.sleep(0.05)

    result = environment.execute_code("s1", code.format(count=count), on_output=listen)

    growth = client.growth(), (result.usage.peak_memory_bytes or 0) - kernel_before
    assert result.status is ExecutionStatus.SUCCESS
    assert digest_of_stdout(result) == digest_of(expected())
    assert max(growth) < 64 * MEGABYTE
    if not any(notice.kind == "display_skipped" for notice in result.notices):
        assert seen_characters == sum(map(len, expected()))


def test_stdout_and_stderr_keep_their_order(environment: Environment) -> None:
    code = """
import sys
for i in range(10_000):
    print(i)
    print(i, file=sys.stderr)
"""

    heard = run(environment, code)

    runs = itertools.groupby(heard.pieces, key=lambda piece: piece[0])
    texts = [(stream, "".join(text for _, text in run)) for stream, run in runs]
    lines = [(stream, line) for stream, text in texts for line in text.splitlines()]
    assert lines == [(s, str(i)) for i in range(10_000) for s in ("stdout", "stderr")]


def test_streams_that_change_with_every_write_are_heard_run_by_run(
    environment: Environment,
) -> None:
    count = times(environment, 60_000)
    code = f"""
import sys
for number in range({count}):
    sys.stdout.write(f"{{number}} é\\n")
    sys.stderr.write(f"{{number}} \\N{{SNOWMAN}}\\n")
"""

    heard = run(environment, code)

    expected = [
        (stream, f"{number} {letter}\n")
        for number in range(count)
        for stream, letter in (("stdout", "é"), ("stderr", "\N{SNOWMAN}"))
    ]
    assert heard.pieces == expected
    assert heard.result.status is ExecutionStatus.SUCCESS


def test_a_slow_callback_hears_streams_in_order_from_the_record(
    environment: Environment, tmp_path: Path
) -> None:
    code = """
import sys
for i in range(300):
    sys.stdout.write(f"o{i:03}" + "é" * 5000 + "\\n")
    sys.stderr.write(f"e{i:03}" + "ü" * 5000 + "\\n")
"""
    first = threading.Event()

    def be_late_once(_stream: str, _text: str) -> None:
        if not first.is_set():
            first.set()
            wait_until(lambda: len(list(outputs.glob("*.stderr"))) == 1)

    outputs = tmp_path / "session" / "ces" / "output"
    heard = run(environment, code, on_output=be_late_once)

    marks = [line[:4] for _, text in heard.pieces for line in text.splitlines() if line[0] in "oe"]
    assert marks == [f"{s}{i:03}" for i in range(300) for s in "oe"]
    assert heard.text("stdout").count("é") == 300 * 5000
    assert "\ufffd" not in heard.text("stdout") + heard.text("stderr")


def test_interrupt_reaches_a_writer_that_is_held_back(environment: Environment) -> None:
    started = threading.Event()

    def stall(_stream: str, _text: str) -> None:
        if not started.is_set():
            started.set()
            environment.interrupt("s1")

    result = environment.execute_code(
        "s1", "while True: print('x' * 100_000)", on_output=stall, timeout=30
    )

    assert result.status is ExecutionStatus.CANCELLED
    assert result.variables_survived
    assert environment.execute_code("s1", "1 + 1").output == "2"


def test_the_output_limit_stops_the_code(open_environment: OpenEnvironment, tmp_path: Path) -> None:
    with open_environment(tmp_path, max_output_bytes=5 * MEGABYTE) as limited:
        limited.start_session("s1")

        result = limited.execute_code("s1", "while True: print('x' * 1000)", timeout=30)

    assert result.status is ExecutionStatus.ERROR
    assert "OUTPUT_LIMIT" in (result.error or "")
    assert result.variables_survived


PUBLISH_WITHOUT_END = """
import base64, itertools, os
from IPython.display import publish_display_data
content = base64.b64encode(os.urandom(500_000)).decode()
for number in itertools.count():
    publish_display_data({bundle})
"""


@pytest.mark.parametrize(
    "bundle",
    [
        "{'image/png': content}",
        "{'application/vnd.taskweaver.artifact+json': {'id': str(number), 'content': content}}",
    ],
    ids=["images", "contents of files"],
)
def test_files_that_are_made_of_messages_count_as_output(
    open_environment: OpenEnvironment, tmp_path: Path, bundle: str
) -> None:
    with open_environment(tmp_path, max_output_bytes=5 * MEGABYTE) as limited:
        limited.start_session("s1", session_dir=tmp_path / "s1")

        result = limited.execute_code(
            "s1", PUBLISH_WITHOUT_END.replace("{bundle}", bundle), timeout=30
        )

    kept = sum(path.stat().st_size for path in (tmp_path / "s1" / "ces").rglob("*.*"))
    assert "OUTPUT_LIMIT" in (result.error or "")
    assert kept <= 6 * MEGABYTE


def test_output_over_the_limit_in_one_go_is_not_a_success(
    open_environment: OpenEnvironment, tmp_path: Path
) -> None:
    with open_environment(tmp_path, max_output_bytes=1000) as limited:
        limited.start_session("s1")

        result = limited.execute_code("s1", "for i in range(40): print('x' * 100)")

    assert result.status is ExecutionStatus.ERROR
    assert "OUTPUT_LIMIT" in (result.error or "")


def test_a_callback_that_raises_changes_nothing(
    environment: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    def fail(_stream: str, text: str) -> None:
        calls.append(text)
        raise ValueError("not my day")

    result = environment.execute_code(
        "s1", "import sys; print('a'); sys.stdout.flush(); print('b')", on_output=fail
    )

    assert result.status is ExecutionStatus.SUCCESS
    assert "".join(result.stdout) == "".join(calls) == "a\nb\n"
    assert sum("a callback of execution" in message for message in caplog.messages) == 1


def test_bytes_and_odd_characters_arrive_readable(environment: Environment) -> None:
    code = r"""
import sys
sys.stdout.buffer.write("ä".encode()[:1]); sys.stdout.buffer.write("ä".encode()[1:])
sys.stdout.buffer.write(b"\xff\n")
print("\ud800", "😀", "\x00", sep="|")
"""

    heard = run(environment, code)

    assert heard.text() == "ä\\xff\n\\ud800|😀|\x00\n"
