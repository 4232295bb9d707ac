"""However often the connection to a gateway is cut, swallowed or stalled, no output is lost."""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.results import ExecutionStatus
from taskweaver_ext.ces.kernels.gateway.api import GatewaySettings
from taskweaver_ext.ces.kernels.modes import EnvMode
from tests.support.executions import LIMIT_SECONDS, digest_of, digest_of_stdout
from tests.support.gateways import TOKEN, GatewayProcess, start_kernel_gateway
from tests.support.proxy import FailingProxy

ROUNDS = 50

_LEAST_LINES, _MOST_LINES = 1_000, 60_000
_BYTES_PER_LINE = 10
_STALL_SECONDS = 0.3


def main(rounds: int, seed: int) -> int:
    """Play rounds on one session behind a gateway of its own."""
    gateway = start_kernel_gateway()
    try:
        with tempfile.TemporaryDirectory() as folder:
            play_rounds(gateway, Path(folder), rounds, seed)
    finally:
        gateway.stop()
    return 0


def play_rounds(gateway: GatewayProcess, folder: Path, rounds: int, seed: int) -> set[str]:
    """Play rounds on one session, and return which troubles it had.

    A failed assertion says what went wrong in which round.
    """
    choose, struck = random.Random(seed), set[str]()
    with open_behind_proxy(gateway, folder) as (environment, proxy):
        for number in range(rounds):
            struck.update(play(environment, proxy, choose, number))
    return struck


@contextmanager
def open_behind_proxy(
    gateway: GatewayProcess, folder: Path
) -> Iterator[tuple[Environment, FailingProxy]]:
    """A session "s1" whose connection to the gateway goes through a proxy."""
    port = urlsplit(gateway.url).port
    assert port is not None
    with closing(FailingProxy(port)) as proxy:
        settings = GatewaySettings(url=proxy.url, token=TOKEN)
        with Environment(folder, EnvMode.Gateway, gateway=settings) as environment:
            environment.start_session("s1")
            yield environment, proxy


def play(
    environment: Environment, proxy: FailingProxy, choose: random.Random, number: int
) -> list[str]:
    """Print many lines while the connection fails a few times, and compare what arrived.

    Returns the names of the troubles that came before the end.
    """
    lines = choose.randint(_LEAST_LINES, _MOST_LINES)
    troubles = _choose_troubles(proxy, choose, lines)
    what = (number, lines, [name for _, name, _ in troubles])
    struck: list[str] = []

    def fail_when_due(total: int) -> None:
        if troubles and total > troubles[0][0]:
            _, name, fail = troubles.pop(0)
            struck.append(name)
            fail()

    proxy.on_passed = fail_when_due
    code = f"for i in range({lines}): print('line', i)"
    result = environment.execute_code("s1", code, timeout=2 * LIMIT_SECONDS)
    proxy.on_passed = lambda _total: None
    assert result.status is ExecutionStatus.SUCCESS, (what, result.error)
    assert digest_of_stdout(result) == digest_of(f"line {i}\n" for i in range(lines)), what
    return struck


def _choose_troubles(
    proxy: FailingProxy, choose: random.Random, lines: int
) -> list[tuple[int, str, Callable[[], None]]]:
    """By the number of bytes after which they come, the first one first."""
    kinds: dict[str, Callable[[], None]] = {
        "cut": proxy.cut,
        "swallow": proxy.swallow,
        "stall": lambda: _stall(proxy),
    }
    moments = sorted(choose.randrange(lines * _BYTES_PER_LINE) for _ in range(choose.randint(1, 4)))
    names = [choose.choice([*kinds]) for _ in moments]
    start = proxy.passed_bytes
    return [
        (start + moment, name, kinds[name]) for moment, name in zip(moments, names, strict=True)
    ]


def _stall(proxy: FailingProxy) -> None:
    proxy.stall()
    threading.Timer(_STALL_SECONDS, proxy.go_on).start()
