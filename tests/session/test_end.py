"""How sessions and applications end, also when their handlers and roles end them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.errors import SessionError
from taskweaver_ext.events.types import PostEventType, SessionEventType, TaskWeaverEvent
from taskweaver_ext.llm.chat_model import Message
from taskweaver_ext.llm.scripted import ScriptedModel
from taskweaver_ext.session import turns as session_turns
from taskweaver_ext.session.session import Session
from tests.support.conversations import Background, Listener, answer, code, plan
from tests.support.executions import LIMIT_SECONDS, wait_until

FOR_EVER = "import time\nfor n in range(100_000):\n    print(n)\n    time.sleep(0.01)\n"


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that waits for itself waits longer than any test."""
    monkeypatch.setattr(session_turns, "STOP_SECONDS", 10 * LIMIT_SECONDS)


def _children() -> set[psutil.Process]:
    """All processes beneath this one, those that other tests share included."""
    return set(psutil.Process().children(recursive=True))


def _on_output(number: int, react: Callable[[], None]) -> Listener:
    """Call back with the output event of a number."""

    def hear(event: TaskWeaverEvent) -> None:
        if event.t in (
            PostEventType.post_execution_output,
            SessionEventType.session_late_output,
        ):
            counted.append(event)
            if len(counted) == number:
                react()

    counted: list[TaskWeaverEvent] = []
    return Listener(hear)


@pytest.mark.parametrize("number", [1, 3], ids=["at-once", "batched"])
def test_a_handler_may_stop_its_session(tmp_path: Path, number: int) -> None:
    model = ScriptedModel([plan("count"), code(FOR_EVER), answer("never said")])
    with TaskWeaverApp(tmp_path, model=model) as app:
        session = app.get_session("mine")
        everything = Listener()
        session.emitter.register(everything)
        listener = _on_output(number, session.stop)

        chat_round = Background(lambda: session.send_message("go", listener)).result()

        assert getattr(chat_round, "state", "") == "cancelled"
        assert everything.events[-1].t is SessionEventType.session_end
        assert app.environment.sessions() == []
        with pytest.raises(SessionError, match="has been stopped"):
            session.send_message("again")
        assert app.get_session("mine") is not session


@pytest.mark.parametrize("number", [1, 3], ids=["at-once", "batched"])
def test_a_handler_may_close_the_application(tmp_path: Path, number: int) -> None:
    before = _children()
    app = TaskWeaverApp(tmp_path)
    session = app.get_session()
    listener = _on_output(number, app.close)

    Background(lambda: session.run_code("python", FOR_EVER, listener)).result()

    assert _children() <= before
    with pytest.raises(SessionError, match="closed"):
        app.get_session()


def test_a_handler_of_late_output_may_close_the_application(tmp_path: Path) -> None:
    before = _children()
    app = TaskWeaverApp(tmp_path)
    session = app.get_session()
    gate = tmp_path / "gate"
    late = (
        "import pathlib, threading, time\n"
        "def later():\n"
        f"    while not pathlib.Path({str(gate)!r}).exists():\n"
        "        time.sleep(0.01)\n"
        "    print('late', flush=True)\n"
        "threading.Thread(target=later).start()\n"
    )
    session.run_code("python", late)
    listener = _on_output(1, app.close)
    session.emitter.register(listener)
    gate.touch()

    wait_until(lambda: SessionEventType.session_end in [event.t for event in listener.events])
    wait_until(lambda: _children() <= before)


ROLES = """
from taskweaver_ext import Role

class Stopper(Role):
    def reply(self, memory):
        self.context.find_model("").stream([])  # its script stops the session
        post = self.context.emitter.create_post_proxy(self.alias)
        post.update_send_to("User")
        return post.end()

class Silent(Role):
    def reply(self, memory):
        return None

class Odd(Role):
    def reply(self, memory):
        post = self.context.emitter.create_post_proxy(self.alias)
        post.update_attachment("kept nowhere", "text", extra={(1, 2): "no key of JSON"})
        post.update_send_to("User")
        return post.end()

class Clinging(Role):
    def reply(self, memory):
        raise KeyError("a mistake of its author")

    def close(self):
        raise KeyError("another one")
"""


def _session_with(app: TaskWeaverApp, project: Path, role: str) -> Session:
    folder = project / "roles"
    folder.mkdir()
    (folder / "own.py").write_text(ROLES)
    (folder / "own.role.yaml").write_text(f"alias: {role}\nmodule: own.{role}\nintro: '- own'\n")
    return app.get_session()


def test_a_role_may_stop_its_session(tmp_path: Path) -> None:
    def stop(_messages: Sequence[Message]) -> str:
        session.stop()
        return ""

    model = ScriptedModel([stop])
    with TaskWeaverApp(tmp_path, {"session.roles": ["own"]}, model=model) as app:
        session = _session_with(app, tmp_path, "Stopper")
        everything = Listener()
        session.emitter.register(everything)

        Background(lambda: session.send_message("go")).result()

    assert model.requests == [()]
    assert everything.events[-1].t is SessionEventType.session_end


def test_a_role_that_returns_nothing_fails_the_round_only(tmp_path: Path) -> None:
    listener = Listener()
    with TaskWeaverApp(tmp_path, {"session.roles": ["own"]}) as app:
        session = _session_with(app, tmp_path, "Silent")
        states = [session.send_message("go", listener).state for _ in range(2)]

    assert states == ["failed", "failed"]
    assert "Silent returned NoneType in place of a post" in listener.errors()[1]


def test_a_role_that_cannot_be_closed_keeps_nothing_else_open(tmp_path: Path) -> None:
    with TaskWeaverApp(tmp_path, {"session.roles": ["own"]}) as app:
        session = _session_with(app, tmp_path, "Clinging")
        session.run_code("python", "1")
        session.stop()

        assert app.environment.sessions() == []


def test_a_session_that_was_stopped_is_not_found_again(tmp_path: Path) -> None:
    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session("mine")
        session.stop()

        assert app.get_session("mine") is not session


def test_a_round_that_cannot_be_kept_leaves_the_session_usable(tmp_path: Path) -> None:
    with TaskWeaverApp(tmp_path, {"session.roles": ["own"]}) as app:
        session = _session_with(app, tmp_path, "Odd")

        states = [session.send_message("go").state for _ in range(2)]

        assert states == ["finished", "finished"]
