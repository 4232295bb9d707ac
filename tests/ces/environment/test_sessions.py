"""Sessions: bad input is named, nothing leaks, nothing is left behind, sessions don't mix."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.results import ExecutionStatus
from taskweaver_ext.errors import ConfigError, KernelStartError, SessionError
from tests.support.containers import given_to_code
from tests.support.executions import LIMIT_SECONDS, has_ended, kernel_pid, run, wait_until


def test_an_unknown_session_is_named(environment: Environment) -> None:
    for call in (
        lambda: environment.execute_code("ghost", "1"),
        lambda: environment.interrupt("ghost"),
        lambda: environment.stop_session("ghost"),
    ):
        with pytest.raises(SessionError, match="no session 'ghost'"):
            call()


def test_a_session_cannot_be_started_twice(environment: Environment) -> None:
    with pytest.raises(SessionError, match="'s1' is running already"):
        environment.start_session("s1")

    assert environment.execute_code("s1", "1").output == "1"


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "x" * 200, "a\nb"])
def test_a_name_that_is_no_file_name_is_refused(environment: Environment, name: str) -> None:
    with pytest.raises(SessionError, match="cannot name a session"):
        environment.start_session(name)
    if name:
        with pytest.raises(SessionError, match="cannot name an execution"):
            environment.execute_code("s1", "1", exec_id=name)


def test_a_missing_working_directory_is_named(environment: Environment, tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="ghost of session 's2' does not exist"):
        environment.start_session("s2", cwd=tmp_path / "ghost")
    (tmp_path / "file").touch()
    with pytest.raises(SessionError, match="is not a folder"):
        environment.start_session("s2", cwd=tmp_path / "file")


def test_a_folder_that_cannot_be_made_is_named(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(SessionError, match="cannot be made"):
        environment.start_session("s2", session_dir=tmp_path / "file" / "session")


def test_an_interpreter_without_ipykernel_gives_the_command_that_helps(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    python = str(bare / "bin" / "python")

    with (
        Environment(tmp_path / "env", python=python) as environment,
        pytest.raises(KernelStartError, match=f"{python} -m pip install ipykernel"),
    ):
        environment.start_session("s1")


def test_a_missing_interpreter_is_named(tmp_path: Path) -> None:
    with (
        Environment(tmp_path / "env", python="/no/such/python") as environment,
        pytest.raises(KernelStartError, match="no Python at /no/such/python"),
    ):
        environment.start_session("s1")


def test_code_runs_in_its_working_directory(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "helper.py").write_text("answer = 42")
    environment.start_session("s2", cwd=given_to_code(tmp_path / "work"))
    try:
        code = "import os, helper; print(os.getcwd(), helper.answer)"
        heard = run(environment, code, session="s2")
    finally:
        environment.stop_session("s2")

    assert heard.text() == f"{tmp_path / 'work'} 42\n"


def test_sessions_are_independent_and_run_at_the_same_time(
    environment: Environment, tmp_path: Path
) -> None:
    names = [f"p{i}" for i in range(4)]
    barrier = threading.Barrier(len(names), timeout=LIMIT_SECONDS)

    def use(name: str) -> str:
        environment.start_session(name, session_dir=tmp_path / name)
        environment.execute_code(name, f"me = {name!r}")
        barrier.wait()
        heard = run(environment, "for i in range(1000): print(me, i)", session=name)
        environment.stop_session(name)
        return heard.text()

    with ThreadPoolExecutor(len(names)) as pool:
        texts = list(pool.map(use, names))

    for name, text in zip(names, texts, strict=True):
        assert text == "".join(f"{name} {i}\n" for i in range(1000))


def test_executions_on_one_session_wait_for_each_other(environment: Environment) -> None:
    environment.execute_code("s1", "log = []")

    def use(number: int) -> None:
        environment.execute_code(
            "s1",
            f"import time; log.append(({number}, 0)); time.sleep(0.01); log.append(({number}, 1))",
        )

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(use, range(5)))

    log = eval(environment.execute_code("s1", "log").output)
    assert all(log[i][0] == log[i + 1][0] for i in range(0, 10, 2))


def test_a_session_cannot_be_used_from_its_own_callback(environment: Environment) -> None:
    errors: list[Exception] = []

    def use_it_again(_stream: str, _text: str) -> None:
        try:
            environment.execute_code("s1", "1")
        except SessionError as error:
            errors.append(error)

    environment.execute_code("s1", "print('x')", on_output=use_it_again, timeout=LIMIT_SECONDS)

    assert "from one of its own callbacks" in str(errors[0])


def test_what_cannot_be_sent_is_named(environment: Environment) -> None:
    environment.update_session_var("s1", {"path": Path("/")})  # type: ignore[dict-item]

    with pytest.raises(SessionError, match="travel as JSON"):
        environment.execute_code("s1", "1")


@pytest.mark.parametrize(
    ("misused", "named"),
    [
        (lambda e: e.execute_code("s1", b"1"), "Code is a text, not bytes"),
        (lambda e: e.execute_code("s1", "1", timeout="1"), "timeout is a number of seconds"),
        (lambda e: e.execute_code("s1", "1", timeout=float("nan")), "timeout is a number"),
        (lambda e: e.interrupt("s1", kill_after="1"), "kill_after is a number of seconds"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused_and_costs_no_kernel(
    environment: Environment, misused: Callable[[Environment], object], named: str
) -> None:
    environment.execute_code("s1", "kept = 1")

    with pytest.raises(TypeError, match=named):
        misused(environment)

    assert environment.execute_code("s1", "kept").output == "1"


def test_a_closed_environment_says_so(tmp_path: Path) -> None:
    environment = Environment(tmp_path)
    environment.close()

    with pytest.raises(SessionError, match="has been closed"):
        environment.start_session("s1")


def test_a_start_that_fails_shows_no_secrets_to_the_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hidden")
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nenv >> {tmp_path}/seen\nexit 1\n")
    python.chmod(0o755)

    with (
        Environment(tmp_path / "env", python=str(python)) as environment,
        pytest.raises(KernelStartError),
    ):
        environment.start_session("s1")

    assert "sk-hidden" not in (tmp_path / "seen").read_text()


def test_stopping_a_session_cancels_what_runs(environment: Environment, tmp_path: Path) -> None:
    environment.start_session("s2", session_dir=tmp_path / "s2")
    stopper = threading.Thread(target=environment.stop_session, args=("s2",))

    result = environment.execute_code(
        "s2",
        "print('go'); import time; time.sleep(1000)",
        on_output=lambda *_: stopper.start(),
        timeout=LIMIT_SECONDS,
    )
    stopper.join(LIMIT_SECONDS)

    assert result.status is ExecutionStatus.CANCELLED
    with pytest.raises(SessionError):
        environment.execute_code("s2", "1")


def test_a_stopped_kernel_runs_its_exit_handlers(environment: Environment, tmp_path: Path) -> None:
    environment.start_session("s2", session_dir=tmp_path / "s2")
    mark = tmp_path / "s2" / "cwd" / "mark"
    environment.execute_code(
        "s2", f"import atexit; atexit.register(lambda: open({str(mark)!r}, 'w').write('bye'))"
    )

    environment.stop_session("s2")

    assert mark.read_text() == "bye"


def test_the_kernel_sees_none_of_our_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hidden")
    monkeypatch.setenv("MY_DB_PASSWORD", "sk-hidden")
    monkeypatch.setenv("RANDOM_VARIABLE", "sk-hidden")
    code = """
import os, glob
seen = str(dict(os.environ))
for pid in (os.getpid(), os.getppid()):
    seen += open(f"/proc/{pid}/environ").read()
"sk-hidden" in seen, os.environ.get("MINE"), "PATH" in os.environ
"""

    with Environment(tmp_path, env={"MINE": "given"}) as environment:
        environment.start_session("s1")
        result = environment.execute_code("s1", code)

    assert result.output == "(False, 'given', True)"


@pytest.mark.local_only("looks at the files of a local kernel")
def test_files_are_readable_by_their_owner_only(environment: Environment, tmp_path: Path) -> None:
    environment.execute_code("s1", "print('x' * 3_000_000)", exec_id="big")
    connection = run(environment, "import ipykernel; print(ipykernel.get_connection_file())").text()
    connection_file = Path(connection.strip())

    session = tmp_path / "session"
    for folder in (connection_file.parent, session, session / "ces", session / "cwd"):
        assert folder.stat().st_mode & 0o077 == 0
    for file in (connection_file, session / "ces" / "output" / "big.stdout"):
        assert file.stat().st_mode & 0o077 == 0


def test_others_cannot_put_a_folder_in_the_place_of_a_session(tmp_path: Path) -> None:
    sessions = tmp_path / "sessions"
    sessions.mkdir()
    sessions.chmod(0o777)

    with Environment(tmp_path) as environment:
        environment.start_session("s1", wait=False)

    assert sessions.stat().st_mode & 0o077 == 0


def test_cycles_leave_nothing_behind(tmp_path: Path) -> None:
    def left() -> tuple[int, int, int]:
        this = psutil.Process()
        return len(this.children(recursive=True)), threading.active_count(), this.num_fds()

    with Environment(tmp_path / "warm-up") as environment:
        environment.start_session("s1")
    before = left()

    with Environment(tmp_path / "env") as environment:
        for cycle in range(50):
            environment.start_session("s1", session_dir=tmp_path / str(cycle))
            if cycle % 10 == 0:
                environment.execute_code(
                    "s1", "import subprocess; subprocess.Popen(['sleep', '99'])"
                )
            environment.stop_session("s1")

    with contextlib.suppress(AssertionError):
        wait_until(lambda: left() == before)
    assert left() == before


@pytest.mark.parametrize("settings", [{}, {"idle_seconds": 60.0, "spare_kernels": 1}])
def test_an_environment_that_is_forgotten_is_closed(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    def use_and_forget() -> int:
        environment = Environment(tmp_path, **settings)
        environment.start_session("s1")
        return kernel_pid(environment)

    with pytest.warns(ResourceWarning, match="was not closed"):
        pid = use_and_forget()

    wait_until(partial(has_ended, pid))


def test_a_closed_environment_may_be_closed_again(tmp_path: Path) -> None:
    environment = Environment(tmp_path)
    environment.start_session("s1")
    environment.close()

    environment.close()


@pytest.mark.parametrize(
    "settings", [{"max_kernels": 0}, {"idle_seconds": -1.0}, {"idle_seconds": float("nan")}]
)
def test_numbers_that_make_no_sense_are_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        Environment(tmp_path, **settings)


def test_killing_the_owner_leaves_no_kernel(tmp_path: Path) -> None:
    code = """
import os, subprocess
child = subprocess.Popen(["sleep", "999"])
os.getpid(), os.getppid(), child.pid
"""
    program = f"""
import sys
from taskweaver_ext import Environment
environment = Environment({str(tmp_path)!r})
environment.start_session("s1")
print(environment.execute_code("s1", {code!r}).output, flush=True)
sys.stdin.read()
"""
    owner = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    assert owner.stdin is not None
    pids = eval(owner.stdout.readline())

    owner.kill()
    owner.wait()

    for pid in pids:
        wait_until(partial(has_ended, pid))
    owner.stdin.close()
    owner.stdout.close()


@pytest.mark.parametrize("warm_start", [True, False], ids=["warm", "ordinary"])
def test_both_ways_of_starting_give_a_working_kernel(tmp_path: Path, warm_start: bool) -> None:
    with Environment(tmp_path, warm_start=warm_start) as environment:
        environment.start_session("s1")

        heard = run(environment, "import sys; print(sys.version_info >= (3, 9)); 1 / 0")
        kernel = kernel_pid(environment)
        psutil.Process(kernel).kill()
        wait_until(lambda: environment.sessions()[0].state == "dead")

        assert heard.text() == "True\n"
        assert "ZeroDivisionError" in (heard.result.error or "")
        assert run(environment, "print('again')").text() == "again\n"


def test_ctrl_c_just_when_a_kernel_is_being_listened_to_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_thread = threading.Thread.start

    def start_and_interrupt(thread: threading.Thread) -> None:
        start_thread(thread)
        if thread.name.startswith("taskweaver-reader"):
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", start_and_interrupt)

    with Environment(tmp_path) as environment, pytest.raises(KeyboardInterrupt):
        environment.start_session("s1")
