"""Code that forges what its kernel says gets its kernel ended with a sentence, and little else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.containers import require_engine
from tests.support.forged_frames import BOUNDED, DEADLY, ENDLESS, Outcome
from tests.support.sandboxes import require_sandbox

MOST_GROWTH_BYTES = 64 << 20
TIME_LIMIT = 60.0
"""For a busy machine; what is not ended at a limit goes on for much longer."""

NEEDED: dict[str, Callable[[], object]] = {
    "local": lambda: None,
    "guarded": lambda: None,
    "sandbox": require_sandbox,
    "container": require_engine,
}
ELSEWHERE = ["39 MB of lists", "a usage that is none", "clears", "errors"]
"""Tried not only on local kernels, where all are."""

CASES = [
    *(("local", name) for name in (*DEADLY, *BOUNDED, *ENDLESS)),
    *((place, name) for place in ("guarded", "sandbox", "container") for name in ELSEWHERE),
]

Outcomes = dict[tuple[str, str], Outcome]


@pytest.fixture(scope="module")
def outcome_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Outcome]:
    """Play all attacks of a place in one other process, when the first is asked for."""
    outcomes: Outcomes = {}

    def outcome(place: str, name: str) -> Outcome:
        if (place, name) not in outcomes:
            NEEDED[place]()
            folder = tmp_path_factory.mktemp(place)
            for found in _play(place, folder, [each for where, each in CASES if where == place]):
                outcomes[place, found.name] = found
        return outcomes[place, name]

    return outcome


def _play(place: str, folder: Path, names: list[str]) -> Iterator[Outcome]:
    command = [sys.executable, "-m", "tests.support.forged_frames", place, str(folder), *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return (Outcome(**json.loads(line)) for line in done.stdout.splitlines())


@pytest.mark.parametrize(("place", "name"), CASES, ids=[" ".join(case) for case in CASES])
def test_a_forged_frame_costs_little_and_is_named(
    outcome_of: Callable[[str, str], Outcome], place: str, name: str
) -> None:
    outcome = outcome_of(place, name)

    assert outcome.growth < MOST_GROWTH_BYTES
    assert outcome.seconds < TIME_LIMIT
    assert outcome.next_output == "fresh\n"
    if name in DEADLY:
        assert outcome.status == "DIED"
        assert "nonsense came from it" in outcome.error
        assert DEADLY[name][1] in outcome.error
    else:
        assert outcome.status == ("TIMEOUT" if name in ENDLESS else "SUCCESS")
