"""A session completes, explains and shows what its kernel knows, from before it is started on."""

from __future__ import annotations

from pathlib import Path

from taskweaver_ext.app import TaskWeaverApp
from tests.support.executions import LIMIT_SECONDS, wait_until


def test_a_completion_starts_the_kernel_and_a_look_does_not(tmp_path: Path) -> None:
    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session()

        peek = session.kernel.peek()
        assert (peek.state, peek.status) == ("put_away", "no_kernel")
        wait_until(lambda: session.kernel.complete("prin").matches)
        assert session.kernel.peek(timeout=LIMIT_SECONDS).status == "ok"


def test_what_a_person_has_run_is_completed_and_explained(tmp_path: Path) -> None:
    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session()
        session.run_code("python", "def area(width, height=2):\n    '''A size.'''")
        last_seq = session.emitter.last_seq

        (match,) = session.kernel.complete("are", timeout=LIMIT_SECONDS).matches
        inspected = session.kernel.inspect("area(", detail=1, timeout=LIMIT_SECONDS)
        peek = session.kernel.peek(timeout=LIMIT_SECONDS)

        assert (match.text, match.kind, match.detail) == ("area", "function", "(width, height=2)")
        assert inspected.documentation == "A size."
        assert inspected.source.startswith("def area")
        assert [one.name for one in peek.variables] == ["area"]
        assert session.emitter.last_seq == last_seq  # looking is nothing that happened
