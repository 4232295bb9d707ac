"""How the end of a container reads."""

from __future__ import annotations

import signal

import pytest

from taskweaver_ext.ces.kernels.container.failures import death_of_container


@pytest.mark.parametrize(
    ("exit_code", "cause", "number", "detail"),
    [
        (3, "exited", None, "exited with code 3"),
        (137, "signal", signal.SIGKILL, "killed by SIGKILL"),
        (128 + 40, "signal", 40, "killed by signal 40"),
        (255, "exited", None, "exited with code 255"),
    ],
)
def test_an_exit_code_tells_the_signal(
    exit_code: int, cause: str, number: int | None, detail: str
) -> None:
    state = {"Status": "exited", "ExitCode": exit_code}

    death = death_of_container(state, None, was_out_of_memory=False)

    assert death is not None
    assert (death.cause, death.signal, death.detail) == (cause, number, detail)
