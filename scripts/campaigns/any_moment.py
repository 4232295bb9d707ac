"""Whatever is done to a session at whatever moment, it says the truth and goes on."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus
from taskweaver_ext.errors import SessionError
from tests.support.executions import LIMIT_SECONDS, whole_stdout

ROUNDS = 250

ENDLESS_CODES = {
    "prints": "import itertools\nfor i in itertools.count(): print({tag!r}, i)",
    "flushed prints": "import itertools\nfor i in itertools.count(): print({tag!r}, i, flush=True)",
    "displays": "import itertools\nfor i in itertools.count(): print({tag!r}, i); display(i)",
    "a child": """
import subprocess
subprocess.run(["bash", "-c", "for ((i = 0;; i++)); do echo {tag} $i; done"])""",
    "awaiting": """
import asyncio, itertools
for i in itertools.count(): print({tag!r}, i); await asyncio.sleep(0)""",
    "a question": "print({tag!r}, 0); input()\nimport time; time.sleep(1000)",
    "sleep": "import time\nprint({tag!r}, 0); time.sleep(1000)",
}

CANCELLED, TIMEOUT, DIED = (
    ExecutionStatus.CANCELLED,
    ExecutionStatus.TIMEOUT,
    ExecutionStatus.DIED,
)
HAPPENINGS = {
    "interrupt": {CANCELLED},
    "interrupt and kill": {CANCELLED},
    "timeout": {TIMEOUT},
    "kernel killed": {DIED, CANCELLED},
    "restart": {CANCELLED},
    "stop": {CANCELLED, DIED},
}
"""With the ways in which an execution may end by them; DIED where its kernel was gone first."""


def main(rounds: int, seed: int) -> int:
    """Play rounds on one session; a failed assertion says what went wrong in which round."""
    choose = random.Random(seed)
    with (
        tempfile.TemporaryDirectory() as folder,
        Environment(Path(folder), spare_kernels=1, max_deaths_in_a_row=rounds) as environment,
    ):
        environment.start_session("s1", wait=False)
        for number in range(rounds):
            play(environment, choose, number)
    return 0


def play(environment: Environment, choose: random.Random, number: int) -> None:
    """Let something happen to endless code on the session "s1", then see that it goes on."""
    name, happening = choose.choice([*ENDLESS_CODES]), choose.choice([*HAPPENINGS])
    tag = f"tag{number}"
    result = _run_until(
        environment,
        ENDLESS_CODES[name].replace("{tag!r}", repr(tag)).replace("{tag}", tag),
        happening,
        after=choose.choice([0.0, choose.uniform(0, 0.02), choose.uniform(0, 0.1)]),
    )
    if happening == "stop":
        environment.start_session("s1", wait=choose.random() < 0.5)

    what = (number, name, happening)
    if result is not None:
        assert result.status in HAPPENINGS[happening], (what, result.error)
        # What a kernel has read of its child's output is lost when it is killed.
        may_have_gap = name == "a child" and happening not in ("interrupt", "timeout")
        if not may_have_gap:
            _assert_in_order(whole_stdout(result), tag, what)
    after = environment.execute_code("s1", f"print('after', {number})", timeout=LIMIT_SECONDS)
    assert after.stdout == [f"after {number}\n"], (what, after.status, after.error)


def _run_until(
    environment: Environment, code: str, happening: str, *, after: float
) -> ExecutionResult | None:
    """Run code on which something happens after a while; None where its session was stopped."""
    is_answered = threading.Event()

    def answer(_prompt: str, _password: bool) -> str:
        is_answered.wait(LIMIT_SECONDS)
        return ""

    if happening == "timeout":
        is_answered.set()  # its clock stands still until then
    with ThreadPoolExecutor() as threads:
        running = threads.submit(
            environment.execute_code,
            "s1",
            code,
            on_input=answer,
            timeout=after if happening == "timeout" else LIMIT_SECONDS,
        )
        time.sleep(after)  # that it comes at any moment is the point
        try:
            while not running.done():
                _make_happen(environment, happening)
                with contextlib.suppress(TimeoutError):
                    running.result(1.0)  # or it came before there was anything
            return running.result()
        except SessionError:
            return None
        finally:
            is_answered.set()


def _make_happen(environment: Environment, happening: str) -> None:
    happen: dict[str, Callable[[], object]] = {
        "interrupt": lambda: environment.interrupt("s1"),
        "interrupt and kill": lambda: environment.interrupt("s1", kill_after=0.0),
        "kernel killed": lambda: _kill_kernel(environment),
        "restart": lambda: environment.restart_session("s1"),
        "stop": lambda: environment.stop_session("s1"),
        "timeout": lambda: None,
    }
    happen[happening]()


def _kill_kernel(environment: Environment) -> None:
    (session,) = environment.sessions()
    if session.pid is not None and session.state == "busy":
        with contextlib.suppress(ProcessLookupError):
            os.kill(session.pid, signal.SIGKILL)


def _assert_in_order(text: str, tag: str, what: object) -> None:
    """Nothing but lines of this execution, none missing; the last may be there in part."""
    lines = text.split("\n")
    for number, line in enumerate(lines[:-1]):
        assert line == f"{tag} {number}", (what, number)
    assert f"{tag} {len(lines) - 1}".startswith(lines[-1]), (what, lines[-1])
