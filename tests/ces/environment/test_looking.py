"""An environment tells what its sessions are doing."""

from __future__ import annotations

import os
import time
from pathlib import Path

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.kernels.modes import EnvMode
from taskweaver_ext.ces.sessions.session_info import SessionInfo
from tests.support.executions import DIE_ON_A_THREAD, OpenEnvironment, kernel_pid, wait_until


def _states(environment: Environment) -> dict[str, str]:
    return {session.session_id: session.state for session in environment.sessions()}


def test_sessions_are_described_in_the_order_they_were_started(
    open_environment: OpenEnvironment, tmp_path: Path
) -> None:
    before = time.time()
    with open_environment(tmp_path) as environment:
        for name in ("b", "a"):
            environment.start_session(name)
        pids = [kernel_pid(environment, name) for name in ("b", "a")]

        sessions = environment.sessions()

    assert [(s.session_id, s.mode, s.state) for s in sessions] == [
        ("b", environment.env_mode.value, "idle"),
        ("a", environment.env_mode.value, "idle"),
    ]
    if environment.env_mode is not EnvMode.Container:  # where processes have numbers of their own
        assert [session.pid for session in sessions] == pids
    first = sessions[0]
    assert first.owner_pid == os.getpid()
    assert first.cwd == str(tmp_path / "sessions" / "b" / "cwd")
    assert before <= first.created_at <= first.last_used_at <= time.time()
    assert first.memory_bytes is not None
    assert first.memory_bytes > 1 << 20


def test_a_session_is_busy_while_code_runs_and_idle_afterwards(
    open_environment: OpenEnvironment, tmp_path: Path
) -> None:
    seen: list[str] = []
    with open_environment(tmp_path) as environment:
        environment.start_session("s1")
        environment.execute_code(
            "s1", "print(1)", on_output=lambda *_: seen.append(_states(environment)["s1"])
        )
        seen.append(_states(environment)["s1"])

    assert seen == ["busy", "idle"]


def test_a_kernel_that_was_put_away_or_died_is_told_apart(
    open_environment: OpenEnvironment, tmp_path: Path
) -> None:
    def session(environment: Environment) -> SessionInfo:
        (session,) = environment.sessions()
        return session

    with open_environment(tmp_path, idle_seconds=0.2) as environment:
        environment.start_session("s1")
        wait_until(lambda: session(environment).state == "put_away")
        assert session(environment).pid is None
    with open_environment(tmp_path) as environment:
        environment.start_session("s1")
        environment.execute_code("s1", DIE_ON_A_THREAD)
        wait_until(lambda: session(environment).state == "dead")
        assert session(environment).memory_bytes is None
