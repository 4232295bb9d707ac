"""What the panel has said is, at any time, the code that it stands for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskweaver_ext.ces.execution.contract import ExecutionFailure
from taskweaver_ext.ces.execution.results import ExecutionId
from taskweaver_ext.events.extras import CodeExecExtra
from taskweaver_ext.streaming.exec_panel import ExecPanel


class Watched:
    """A panel, and somebody who only hears what it says."""

    def __init__(self) -> None:
        self.code = ""
        self.is_complete = False
        self.statuses: list[str] = []
        self.panel = ExecPanel(ExecutionId("e1"), self._hear, lambda: 0.0)

    def _hear(self, text: str, extra: CodeExecExtra) -> None:
        if extra["sub_type"] == "code_exec.code":
            self.code = text if extra["index"] == 0 else self.code + text
            self.is_complete = extra["completed"]
        elif extra["sub_type"] == "code_exec.status":
            self.statuses.append(extra["payload"]["status"])


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add_code"), st.sampled_from(["a", "b\n", ""])),
        st.tuples(st.just("restart_code")),
        st.tuples(st.just("replace_code"), st.sampled_from(["other", "x\n"])),
        st.tuples(st.just("begin")),
    ),
    max_size=8,
)


@given(STEPS)
def test_whoever_listens_has_the_code_of_the_panel(steps: list[tuple[str, ...]]) -> None:
    watched = Watched()

    for name, *arguments in steps:
        getattr(watched.panel, name)(*arguments)
        assert watched.code == watched.panel.code
    watched.panel.finish_execution()

    assert watched.code == watched.panel.code
    assert watched.statuses in ([], ["gen", "exec", "done"])
    assert watched.is_complete == bool(watched.statuses)


def test_code_that_is_edited_is_complete_again() -> None:
    watched = Watched()
    watched.panel.add_code("as written")
    watched.panel.finish_generation()

    watched.panel.replace_code("edited")

    assert (watched.code, watched.is_complete) == ("edited", True)
    assert watched.statuses == ["gen"]


@pytest.mark.parametrize("failure", [None, ExecutionFailure(code="c", message="m")])
def test_a_panel_that_showed_nothing_stays_silent(failure: ExecutionFailure | None) -> None:
    watched = Watched()

    watched.panel.restart_code()
    watched.panel.finish_generation(failure)
    watched.panel.start_execution()
    watched.panel.finish_execution(failure)

    assert (watched.code, watched.statuses) == ("", [])
