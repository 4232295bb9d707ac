"""One executor per language, started when it is first used."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.audit import AuditLog
from taskweaver_ext.ces.execution.results import ExecutionStatus
from taskweaver_ext.ces.executors import ExecutorRegistry, KernelExecutor
from taskweaver_ext.ces.kernels.modes import EnvMode
from taskweaver_ext.ces.process import ProcessExecutor
from taskweaver_ext.ces.programs.languages import CODE, Language
from taskweaver_ext.ces.shell import ShellExecutor
from taskweaver_ext.errors import SessionError


@pytest.fixture
def registry(shared_environment: Environment, tmp_path: Path) -> Iterator[ExecutorRegistry]:
    with ExecutorRegistry(shared_environment, "s1", cwd=tmp_path) as registry:
        yield registry


@pytest.mark.parametrize(
    ("language", "fresh", "kind"),
    [
        ("python", False, KernelExecutor),
        ("py", False, KernelExecutor),
        ("python", True, ProcessExecutor),
        ("bash", False, ShellExecutor),
        ("sh", False, ShellExecutor),
        ("bash", True, ProcessExecutor),
        ("javascript", False, ProcessExecutor),
        ("js", False, ProcessExecutor),
        ("node", True, ProcessExecutor),
    ],
)
def test_a_language_has_its_executor(
    registry: ExecutorRegistry, language: str, fresh: bool, kind: type
) -> None:
    assert isinstance(registry.get(language, fresh=fresh), kind)


def test_a_language_has_one_executor_whatever_it_is_called(registry: ExecutorRegistry) -> None:
    assert registry.get("sh") is registry.get("Bash")
    assert registry.get("bash") is not registry.get("bash", fresh=True)


def test_the_shell_and_the_kernel_keep_their_state_and_fresh_processes_do_not(
    registry: ExecutorRegistry,
) -> None:
    for language, define, show in (
        ("bash", "x=1", 'echo "[$x]"'),
        ("python", "x = 1", "print([*filter(None, [globals().get('x')])])"),
    ):
        for fresh, expected in ((False, "[1]\n"), (True, "[]\n")):
            executor = registry.get(language, fresh=fresh)
            executor.execute(define)
            assert "".join(executor.execute(show).stdout) == expected


def test_nothing_starts_before_it_is_used(registry: ExecutorRegistry) -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = children.read_text()

    for language in ("python", "bash", "javascript"):
        registry.get(language)

    assert children.read_text() == before


def test_an_unknown_language_gives_a_result_that_says_so(registry: ExecutorRegistry) -> None:
    result = registry.get("cobol").execute("DISPLAY 'HI'.")

    assert result.status is ExecutionStatus.ERROR
    assert result.error == "exec: Unsupported language 'cobol' (LANG_UNSUPPORTED)"


def test_a_configured_language_is_listed_and_run(tmp_path: Path) -> None:
    language = Language(
        name="loud", command=sys.executable, arguments=("-c", "print('LOUD')", CODE)
    )

    with ExecutorRegistry(languages={"loud": language}, folder=tmp_path) as registry:
        result = registry.get("loud").execute("ignored")
        names = registry.languages
        there = registry.available_languages()

    assert "".join(result.stdout) == "LOUD\n"
    assert {"bash", "javascript", "loud", "python", "rust", "typescript"} <= {*names}
    assert {"bash", "loud"} <= {*there}


def test_only_languages_whose_tools_are_there_are_available(tmp_path: Path) -> None:
    (tmp_path / "perl").write_text("#!/bin/sh\n")
    (tmp_path / "perl").chmod(0o755)

    with ExecutorRegistry(folder=tmp_path / "f", env={"PATH": str(tmp_path)}) as registry:
        assert registry.available_languages() == ("perl",)


def test_a_version_of_a_language_is_a_process_of_its_own(tmp_path: Path) -> None:
    version = ".".join(map(str, sys.version_info[:2]))
    home = Path(sys.executable).parent.parent  # nearest of all, be it an environment or not

    with ExecutorRegistry(folder=tmp_path, env={"VIRTUAL_ENV": str(home)}) as registry:
        result = registry.get(f"py@{version}").execute("import sys; print(sys.version_info[:2])")

    assert "".join(result.stdout) == f"{sys.version_info[:2]}\n"


@pytest.mark.parametrize("configured_as", ["bash", "sh"])
def test_a_configured_language_takes_the_place_of_the_shell(configured_as: str) -> None:
    mine = Language(name="bash", command="echo", arguments=("mine",))

    with ExecutorRegistry(languages={configured_as: mine}) as registry:
        result = registry.get("bash").execute("echo the shell's")

    assert result.stdout == ["mine\n"]


def test_without_an_environment_python_is_a_fresh_process() -> None:
    with ExecutorRegistry() as registry:
        assert isinstance(registry.get("python"), ProcessExecutor)


def test_a_session_that_runs_already_is_used_and_left_running(environment: Environment) -> None:
    environment.execute_code("s1", "x = 7")

    with ExecutorRegistry(environment, "s1") as registry:
        result = registry.get("python").execute("print(x)")

    assert "".join(result.stdout) == "7\n"
    assert environment.execute_code("s1", "x").output == "7"


def test_a_session_that_the_registry_started_is_stopped_with_it(
    shared_environment: Environment,
) -> None:
    with ExecutorRegistry(shared_environment, "its-own") as registry:
        registry.get("python").execute("x = 1")

    with pytest.raises(SessionError):
        shared_environment.execute_code("its-own", "x")


def test_an_interrupt_before_there_is_a_session_keeps_the_code_from_running(
    shared_environment: Environment, tmp_path: Path
) -> None:
    class InterruptedExecutor(KernelExecutor):
        def ensure_session(self) -> None:
            assert self.interrupt()
            super().ensure_session()

    audit = AuditLog(tmp_path / "audit.jsonl")
    executor = InterruptedExecutor(shared_environment, "s1", cwd=None, audit=audit)

    result = executor.execute(f"open({str(tmp_path / 'made')!r}, 'w')")

    executor.stop_session()
    assert result.status is ExecutionStatus.CANCELLED
    assert not (tmp_path / "made").exists()


def test_a_kernel_that_does_not_start_is_a_result(tmp_path: Path) -> None:
    with (
        Environment(tmp_path, python="/nowhere/python", warm_start=False) as environment,
        ExecutorRegistry(environment, "s1") as registry,
    ):
        result = registry.get("python").execute("1 + 1")

    assert result.status is ExecutionStatus.ERROR
    assert result.error is not None
    assert result.error.startswith("exec: There is no Python at /nowhere/python")
    assert result.error.endswith("(KERNEL_START)")


@pytest.mark.parametrize("language", ["bash", "javascript"])
@pytest.mark.parametrize("fresh", [False, True])
def test_nothing_of_a_session_behind_a_gateway_runs_on_this_machine(
    tmp_path: Path, language: str, fresh: bool
) -> None:
    with (
        Environment(tmp_path, EnvMode.Gateway) as environment,
        ExecutorRegistry(environment, "s1") as registry,
    ):
        result = registry.get(language, fresh=fresh).execute(f"touch {tmp_path}/made")

    assert result.status is ExecutionStatus.ERROR
    assert result.error is not None
    assert result.error.endswith("(NOT_ISOLATED)")
    assert not (tmp_path / "made").exists()


def test_all_executors_write_to_one_audit_log(
    shared_environment: Environment, tmp_path: Path
) -> None:
    log = AuditLog(tmp_path / "log.jsonl", who="me")

    with ExecutorRegistry(shared_environment, "s1", audit=log) as registry:
        registry.get("bash").execute("true")
        registry.get("bash", fresh=True).execute("true")
        registry.get("python").execute("None")
    log.close()

    lines = [json.loads(line) for line in log.path.read_text().splitlines()]
    assert [line["executor"] for line in lines if line["event"] == "ended"] == [
        "shell:bash",
        "process:bash",
        "kernel:python",
    ]
    assert {line["who"] for line in lines} == {"me"}


def test_an_interrupt_reaches_whatever_runs(registry: ExecutorRegistry) -> None:
    shell = registry.get("bash")

    result = shell.execute("echo hi; sleep 1000", on_output=lambda *_: registry.interrupt())

    assert result.status is ExecutionStatus.CANCELLED


def test_a_closed_registry_refuses(tmp_path: Path) -> None:
    registry = ExecutorRegistry(folder=tmp_path)
    registry.close()

    with pytest.raises(SessionError, match="closed"):
        registry.get("bash")
