"""`taskweaver-ext gateway` as a user reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from taskweaver_ext.ces.kernels.gateway.shared_gateway import SharedGateway
from taskweaver_ext.cli.gateway import command


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A home of its own, and so a gateway of its own, which is stopped afterwards."""
    monkeypatch.setenv("HOME", str(tmp_path))
    yield
    SharedGateway().stop()


def _gateway(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def test_it_is_started_seen_and_stopped() -> None:
    before, started, seen = _gateway("status"), _gateway("start"), _gateway("status")
    again, stopped, after = _gateway("start"), _gateway("stop"), _gateway("stop")

    assert (before.output, before.exit_code) == ("not running\n", 1)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+ \(pid \d+, healthy, for 0 min\)\n", seen.output)
    assert started.output == seen.output == again.output
    assert (stopped.output, after.output) == ("stopped\n", "not running\n")
