"""What code in a sandbox has put into a snapshot does not run outside of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.errors import SessionError
from tests.support.executions import run
from tests.support.sandboxes import require_sandbox, sandbox_environment

HOSTILE = """
class Hostile:
    def __reduce__(self):
        return eval, ("__import__('pathlib').Path({escaped!r}).write_text('out')",)
hostile, number = Hostile(), 5
"""


def test_a_snapshot_of_a_sandbox_is_not_loaded_outside(tmp_path: Path) -> None:
    require_sandbox()
    path, escaped = tmp_path / "variables.snapshot", tmp_path / "escaped"
    with (
        sandbox_environment(tmp_path / "inside") as inside,
        Environment(tmp_path / "outside") as outside,
    ):
        inside.start_session("s1")
        outside.start_session("s1")
        run(inside, HOSTILE.format(escaped=str(escaped)))
        inside.snapshot("s1", path)

        with pytest.raises(SessionError, match="sandbox.*trust"):
            outside.restore("s1", path)
        assert not escaped.exists()

        inside.restart_session("s1")
        restored = inside.restore("s1", path)

    assert "number" in restored.names
    assert not escaped.exists()  # it ran, where it has no way out


def test_a_snapshot_of_a_local_kernel_is_loaded_into_a_sandbox(tmp_path: Path) -> None:
    require_sandbox()
    path = tmp_path / "variables.snapshot"
    with (
        sandbox_environment(tmp_path / "inside") as inside,
        Environment(tmp_path / "outside") as outside,
    ):
        inside.start_session("s1")
        outside.start_session("s1")
        run(outside, "number = 5")
        outside.snapshot("s1", path)
        inside.restore("s1", path)

        assert run(inside, "print(number)").text() == "5\n"
