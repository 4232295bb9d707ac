"""A conversation whose code runs in a container: started meanwhile, and trusted with a shell."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.results import ExecutionStatus
from taskweaver_ext.errors import ConfigError
from taskweaver_ext.llm.chat_model import Message
from taskweaver_ext.llm.scripted import ScriptedModel
from tests.support.containers import IMAGE, container_environment, require_engine
from tests.support.conversations import Listener, answer, code, plan
from tests.support.executions import LIMIT_SECONDS, wait_until


class Script:
    """A model whose first reply comes only once the session's container is ready."""

    def __init__(self) -> None:
        self.app: TaskWeaverApp

    def first_reply(self, _messages: Sequence[Message]) -> str:
        wait_until(lambda: [info.state for info in self.app.environment.sessions()] == ["idle"])
        return plan("say where you are")


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskWeaverApp]:
    monkeypatch.setenv("DOCKER_HOST", require_engine().url)
    script = Script()
    shell = code("hostname=$(cat /proc/sys/kernel/hostname); echo in $hostname", "bash")
    settings = {
        "execution_service.kernel_mode": "container",
        "execution_service.custom_image": IMAGE,
    }
    model = ScriptedModel([script.first_reply, shell, answer("done")])
    with TaskWeaverApp(tmp_path, settings, model=model) as app:
        script.app = app
        yield app


def test_the_container_starts_while_the_model_thinks_and_its_shell_asks_nobody(
    app: TaskWeaverApp,
) -> None:
    session = app.get_session()
    listener = Listener()

    chat_round = session.send_message("where are you?", listener)
    inside = session.run_code("bash", "cat /proc/sys/kernel/hostname")
    by_kernel = session.run_code("python", "import os; print(os.uname().nodename)")

    assert chat_round.state == "finished", listener.errors()
    assert listener.output() == "in " + "".join(inside.stdout)
    assert inside.stdout == by_kernel.stdout
    with open("/proc/sys/kernel/hostname") as file:
        assert file.read() not in inside.stdout


def test_code_can_read_the_files_that_it_is_given_and_change_them(app: TaskWeaverApp) -> None:
    before = os.umask(0o077)
    try:
        session = app.get_session()
        session.send_message("x", files=[{"name": "given.txt", "content": "by us"}])
    finally:
        os.umask(before)

    result = session.run_code("bash", "cat given.txt; echo by code >given.txt; cat given.txt")

    assert "".join(result.stdout) == "by usby code\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only root has folders of root")
def test_a_folder_of_root_is_refused_before_anything_is_asked_for(
    app: TaskWeaverApp, tmp_path: Path
) -> None:
    folder = tmp_path / "given"
    folder.mkdir()

    with pytest.raises(ConfigError, match="belongs to root"):
        app.get_session(cwd=folder)

    os.chown(folder, 1000, 1000)
    result = app.get_session(cwd=folder).run_code("bash", "id -u")
    assert result.stdout == ["1000\n"]


def test_a_container_that_cannot_start_fails_the_round_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nowhere")
    listener = Listener()
    model = ScriptedModel([plan("x"), plan("x")])
    settings = {"execution_service.kernel_mode": "container"}
    with TaskWeaverApp(tmp_path, settings, model=model) as app:
        chat_round = app.get_session().send_message("hello", listener)

    assert chat_round.state == "failed"
    assert "Cannot reach Docker" in listener.errors()[0]


def test_a_session_can_start_while_its_caller_goes_on(tmp_path: Path) -> None:
    with container_environment(tmp_path) as environment:
        environment.start_session("s1", wait=False)
        state_at_once = environment.sessions()[0].state

        result = environment.execute_code("s1", "print('waited')", timeout=LIMIT_SECONDS)

        assert state_at_once in ("starting", "put_away")
        assert result.stdout == ["waited\n"]
        assert result.notices == []


def test_a_start_that_fails_meanwhile_is_the_first_executions_failure(tmp_path: Path) -> None:
    with Environment(tmp_path, python="/nowhere/python", warm_start=False) as environment:
        environment.start_session("s1", wait=False)
        errors: list[str] = []

        def execute() -> None:
            try:
                environment.execute_code("s1", "1")
            except Exception as error:  # noqa: BLE001 - looked at below
                errors.append(str(error))

        thread = threading.Thread(target=execute)
        thread.start()
        thread.join(LIMIT_SECONDS)

    assert "There is no Python at /nowhere/python" in errors[0]


def test_a_session_that_is_stopped_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    with container_environment(tmp_path) as environment:
        environment.start_session("s1", wait=False)
        environment.stop_session("s1")
        environment.start_session("s1")

        assert environment.execute_code("s1", "1").status is ExecutionStatus.SUCCESS
