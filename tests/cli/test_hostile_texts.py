"""Hostile texts at every door to a terminal: nothing but text and plain colours arrives."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from taskweaver_ext.ces.environment import Environment
from tests.support.chat_terminal import ChatTerminal, OpenChat, environ
from tests.support.command_line import PROGRAM
from tests.support.conversations import answer, code, plan
from tests.support.emulated_terminal import EmulatedTerminal
from tests.support.hostile_text import EVIL, complaints_about
from tests.support.model_server import HttpFailure, ModelServer, ScriptedAnswer


def on_terminal(project: Path, *arguments: str) -> bytes:
    """What arrives at a terminal from a command, to its end."""
    with EmulatedTerminal(
        [*PROGRAM, *arguments], cwd=project, environ=environ(project.parent)
    ) as terminal:
        terminal.wait()
        return terminal.screen.received


def _file_named_evil(project: Path) -> list[str]:
    path = project / f"{EVIL}.py"
    output = EVIL.replace("\r", "").replace("\b", "")  # which a program may use in its own lines
    path.write_text(f"print({output!r})\nraise RuntimeError({output!r})\n")
    return ["run", path.name]


def _unknown_setting(project: Path) -> list[str]:
    (project / "taskweaver_config.json").write_text(json.dumps({EVIL: 1, f"llm.{EVIL}": EVIL}))
    return ["doctor", "-p", str(project)]


def _nonsense_in_settings(project: Path) -> list[str]:
    settings = {"execution_service.kernel_mode": EVIL}
    (project / "taskweaver_config.json").write_text(json.dumps(settings))
    return ["chat"]


def _odd_interpreter(project: Path) -> list[str]:
    return ["run", "--python", EVIL, "-c", "1"]


COMMANDS: dict[str, Callable[[Path], list[str]]] = {
    "an unknown command": lambda _: [EVIL],
    "an unknown option": lambda _: ["run", f"--{EVIL}"],
    "a choice": lambda _: ["run", "--kernel", EVIL, "-c", "1"],
    "a missing file": lambda _: ["run", EVIL],
    "a missing project": lambda _: ["chat", "-p", EVIL],
    "a traceback of ours": lambda _: ["--debug", "ask", "-p", EVIL, "x"],
    "a variable": lambda _: ["exec", "--env", EVIL, "bash", "true"],
    "a language": lambda _: ["exec", EVIL, "true"],
    "a folder": lambda _: ["exec", "--cwd", EVIL, "bash", "true"],
    "a folder to make": lambda _: ["init", EVIL],
    "a file's name, output and exception": _file_named_evil,
    "names of settings": _unknown_setting,
    "the value of a setting": _nonsense_in_settings,
    "an interpreter": _odd_interpreter,
    "what is checked": lambda _: ["doctor", "-p", EVIL],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_it_in_plain_text(name: str, project: Path) -> None:
    received = on_terminal(project, *COMMANDS[name](project))

    assert received.strip()
    assert complaints_about(received) == []


def test_the_list_of_kernels_is_plain_text(project: Path, tmp_path: Path) -> None:
    folder = tmp_path / EVIL
    folder.mkdir()
    with Environment(tmp_path / "work") as environment:
        environment.start_session(f"hostile-{os.getpid()}", cwd=folder)

        received = on_terminal(project, "kernels")

    assert f"hostile-{os.getpid()}".encode() in received
    assert complaints_about(received) == []


@contextmanager
def answering(project: Path, *script: ScriptedAnswer | HttpFailure) -> Iterator[None]:
    """The project's model follows a script."""
    with ModelServer(list(script)) as server:
        settings = {
            "execution_service.kernel_mode": "local",
            "llm.api_base": server.openai_url,
            "llm.api_key": "k",
            "llm.model": EVIL,
            "llm.max_retries": 0,
        }
        (project / "taskweaver_config.json").write_text(json.dumps(settings))
        yield


def test_what_a_model_and_its_code_say_is_plain_text(project: Path) -> None:
    script = (
        ScriptedAnswer(plan(EVIL)),
        ScriptedAnswer(code(f"print({EVIL!r}); raise ValueError({EVIL!r})  # {EVIL}")),
        ScriptedAnswer(answer(EVIL)),
    )
    with answering(project, *script):
        received = on_terminal(project, "ask", "x")

    assert b"evil" in received
    assert complaints_about(received, is_chat=True) == []


def test_what_a_server_says_of_its_failure_is_plain_text(project: Path) -> None:
    failure = HttpFailure(400, EVIL, fields={"type": EVIL, "code": EVIL})
    with answering(project, failure):
        received = on_terminal(project, "ask", "x")

    assert b"error" in received
    assert complaints_about(received, is_chat=True) == []


def test_what_code_asks_shows_and_logs_in_a_chat_is_plain_text(
    open_chat: OpenChat, project: Path
) -> None:
    chat: ChatTerminal = open_chat(columns=200)
    chat.run(
        "from IPython.display import display\n"
        f"evil = {EVIL!r}\n"
        "class Shown:\n"
        "    def __repr__(self): return evil\n"
        "display(Shown())\n"
        "import threading\n"
        "threading.Timer(0.2, lambda: print('late', evil)).start()\n"
        "input(evil)\n"
        "raise RuntimeError(evil)\n"
    )
    chat.wait_for("right")
    chat.press("\r")
    chat.wait_for("RuntimeError")
    chat.press(f"/load {project / 'nothing'}\r")
    chat.wait_for("There is no file")

    assert complaints_about(chat.screen.received, is_chat=True) == []
