"""However few descriptors there are, sessions go on coming, and say what has run out."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile

from tests.support.executions import LIMIT_SECONDS

FEWEST, MOST = 47, 62
"""At each of these limits the last one is missing somewhere else, ZeroMQ's own included."""
ROUNDS = MOST - FEWEST + 1

_PROGRAM = """
import resource, sys
from taskweaver_ext import Environment
folder, limit, most = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
with Environment(folder) as environment:
    for name in "abcdef":
        environment.start_session(name)
        assert environment.execute_code(name, "6 * 7", timeout=60).output == "42"
    print(environment.execute_code("a", "1").notices[0].message)
"""


def main(rounds: int, seed: int) -> int:
    """Play rounds; a failed assertion says at which limit something went wrong."""
    limits = random.Random(seed).sample(range(FEWEST, MOST + 1), ROUNDS)
    for number in range(rounds):
        play(limits[number % ROUNDS])
    return 0


def play(limit: int) -> None:
    """Start more sessions than there are descriptors for, in a program that may have so many."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, folder, str(limit), str(MOST)],
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
        )
    assert done.returncode == 0, (limit, done.stderr)
    assert "ran out of resources (Too many open files)" in done.stdout, (limit, done.stdout)
