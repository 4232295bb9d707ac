"""A prelude and extension modules run when a kernel starts; one that fails stops nothing."""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.cancellation import CancellationToken
from taskweaver_ext.ces.execution.executor import RunOptions
from taskweaver_ext.ces.execution.results import ExecutionStatus
from taskweaver_ext.ces.sessions import kernel_setup
from taskweaver_ext.ces.sessions.startup_scripts import StartupScripts
from tests.support.executions import LIMIT_SECONDS, OpenEnvironment, run, wait_until


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """The folders of a user's and of a project's modules."""
    user, project = tmp_path / "user", tmp_path / "project"
    user.mkdir()
    project.mkdir()
    return user, project


def test_the_prelude_and_the_modules_are_there_in_every_kernel(
    open_environment: OpenEnvironment, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    user, project = folders
    (user / "shapes.py").write_text("_side = 3\ndef area():\n    return _side ** 2\n")
    (project / "words.py").write_text("__all__ = ['shout']\nquiet = 1\nshout = str.upper\n")
    code = "print(answer, area(), shout('a'), '_side' in dir(), 'quiet' in dir())"

    with open_environment(tmp_path / "work", prelude="answer = 42", modules=folders) as environment:
        environment.start_session("s1")
        first = run(environment, code)
        environment.restart_session("s1")
        second = run(environment, code)

    assert first.text() == second.text() == "42 9 A False False\n"
    assert first.result.notices == []


def test_of_two_modules_with_one_name_the_projects_wins(
    open_environment: OpenEnvironment, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    for folder in folders:
        (folder / "helpers.py").write_text(f"whose = {folder.name!r}\nprint('loaded', whose)\n")

    with open_environment(tmp_path / "work", modules=folders) as environment:
        environment.start_session("s1")
        heard = run(environment, "print(whose)")

    assert heard.text() == "project\n"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def broken(:", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import os; os._exit(7)", "exited with code 7"),
        (b"# \xff\xfe", "it cannot be read"),
    ],
    ids=["raises", "no-python", "exits", "kills-the-kernel", "no-text"],
)
def test_a_module_that_fails_is_reported_once_and_the_kernel_runs(
    open_environment: OpenEnvironment,
    source: str | bytes,
    reason: str,
    folders: tuple[Path, Path],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    user, _ = folders
    bad = user / "bad.py"
    bad.write_bytes(source if isinstance(source, bytes) else source.encode())
    (user / "good.py").write_text("good = 'here'\n")

    with (
        caplog.at_level(logging.WARNING, "taskweaver_ext"),
        open_environment(tmp_path / "work", modules=folders) as environment,
    ):
        environment.start_session("s1")
        first = run(environment, "print(good)")
        second = run(environment, "print(good)")

    (notice,) = first.result.notices
    assert first.text() == second.text() == "here\n"
    assert str(bad) in notice.message
    assert reason in notice.message
    assert notice.message in caplog.text
    assert second.result.notices == []


def test_a_module_may_say_how_it_is_encoded(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_bytes(b"# coding: latin-1\nname = 'caf\xe9'\n")

    (script,) = StartupScripts(None, [tmp_path]).read()

    assert "café" in script.source


def test_a_pipe_is_no_module_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "module.py")

    (script,) = StartupScripts(None, [tmp_path]).read()

    assert "it is not a file" in script.problem


def test_a_prelude_that_fails_is_named_and_leaves_what_it_did(
    open_environment: OpenEnvironment, tmp_path: Path
) -> None:
    with open_environment(tmp_path, prelude="x = 1\nboom\n") as environment:
        environment.start_session("s1")
        heard = run(environment, "print(x)")

    assert heard.text() == "1\n"
    assert "the prelude failed: NameError" in heard.result.notices[0].message


def test_a_plugin_that_takes_a_kernel_down_is_left_out_of_the_next(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    plugin = f"""
import os, pathlib
if pathlib.Path({str(mark)!r}).exists():
    os._exit(7)
from taskweaver.plugin import register_plugin
@register_plugin
def double(x):
    return 2 * x
"""
    with Environment(tmp_path / "work") as environment:
        environment.start_session("s1")
        environment.load_plugin("s1", "double", plugin)
        mark.touch()
        environment.restart_session("s1")
        first = run(environment, "print('double' in dir())")
        mark.unlink()
        environment.load_plugin("s1", "double", plugin)
        environment.restart_session("s1")
        second = run(environment, "print(double(4))")

    (notice,) = first.result.notices
    assert first.text() == "False\n"
    assert "plugin 'double' could not be loaded" in notice.message
    assert "exited with code 7" in notice.message
    assert second.text() == "8\n"


@pytest.mark.parametrize(
    "source",
    ["while True: pass", "while True:\n    try:\n        while True: pass\n    except: pass"],
    ids=["hangs", "hangs and does not mind interrupts"],
)
def test_a_module_that_never_ends_is_stopped_and_reported(
    source: str, folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_setup, "SCRIPT_SECONDS", 0.3)
    user, _ = folders
    (user / "bad.py").write_text(source)
    (user / "good.py").write_text("good = 'here'\n")

    with Environment(tmp_path / "work", modules=folders) as environment:
        environment.start_session("s1")
        heard = run(environment, "print(good)")

    (notice,) = heard.result.notices
    assert heard.text() == "here\n"
    assert "bad.py failed: The code was stopped after 0.3 s." in notice.message


def test_a_start_that_hangs_can_be_interrupted(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    prelude = f"open({str(mark)!r}, 'w')\nwhile True: pass"
    with Environment(tmp_path / "work", prelude=prelude) as environment:
        starting = threading.Thread(target=environment.start_session, args=("s1",))
        starting.start()
        wait_until(mark.exists)
        environment.interrupt("s1")
        starting.join()
        heard = run(environment, "print('on')")

    assert heard.text() == "on\n"
    assert "the prelude failed: The code was interrupted." in heard.result.notices[0].message


@pytest.mark.parametrize("is_first", [True, False], ids=["the first kernel", "the next one"])
def test_code_that_is_cancelled_does_not_wait_for_a_start_that_hangs(
    is_first: bool, tmp_path: Path
) -> None:
    hangs, mark = tmp_path / "hangs", tmp_path / "mark"
    prelude = f"""
import os
if os.path.exists({str(hangs)!r}):
    open({str(mark)!r}, 'w')
    while True: pass"""
    token = CancellationToken()
    with (
        Environment(tmp_path / "work", prelude=prelude) as environment,
        ThreadPoolExecutor() as threads,
    ):
        if not is_first:
            environment.start_session("s1")
            run(environment, "os._exit(1)")
        hangs.touch()
        if is_first:
            environment.start_session("s1", wait=False)
        running = threads.submit(environment.run, "s1", "1", RunOptions(token=token))
        wait_until(mark.exists)
        hangs.unlink()
        token.cancel()
        cancelled = running.result(LIMIT_SECONDS)
        heard = run(environment, "print('on')")

    assert cancelled.status is ExecutionStatus.CANCELLED
    assert heard.text() == "on\n"
    notices = [*cancelled.notices, *heard.result.notices]
    assert any("the prelude failed: The code was interrupted." in n.message for n in notices)
