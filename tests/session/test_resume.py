"""A session that another process continues knows what it would have known."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import pytest

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.approval import Approval, ApprovalAnswer
from taskweaver_ext.errors import ModelError
from taskweaver_ext.events.journal_lines import JOURNAL
from taskweaver_ext.llm.chat_model import Message
from taskweaver_ext.llm.model_errors import ContextTooLongError
from taskweaver_ext.llm.scripted import ScriptedModel, ScriptedReply
from taskweaver_ext.session.rebuilt import VARIABLES_LOST
from taskweaver_ext.session.session import Session
from tests.support.conversations import answer, code, plan

LONG = "word " * 1600
SETTINGS = {
    "round_compressor.rounds_to_retain": 2,
    "planner.use_example": False,
    "code_generator.use_example": False,
    "code_interpreter.approval": "ask",
}
Step = tuple[Callable[[Session], object], list[str | ScriptedReply]]


def say(message: str, **more: object) -> Callable[[Session], object]:
    return lambda session: session.send_message(message, **more)  # type: ignore[arg-type]


def share_and_run(session: Session) -> None:
    session.settings.set_auto_send("next")
    session.run_code("python", "shared = 41 + 1; shared")
    session.settings.set_auto_send("off")


def edit(_request: object) -> ApprovalAnswer:
    return ApprovalAnswer(True, code="echo edited by a person")


def with_edit(session: Session) -> None:
    session.approval.ask = edit
    session.send_message("use the shell")
    session.approval.ask = None


STEPS: list[Step] = [
    (
        say("read the file", files=[{"name": "a.txt", "content": "content of a"}]),
        [plan("print it"), code("print(open('a.txt').read())"), answer("It is: content of a")],
    ),
    (
        say("compute"),
        [
            plan("divide"),
            code("print('before'); 1/0"),
            code("print('corrected')"),
            answer("Done."),
        ],
    ),
    (say("a bad reply first"), ["no JSON at all", answer("Now it is well-formed.")]),
    (share_and_run, []),
    (say("you know what I ran"), [answer("Yes: 42.")]),
    (
        with_edit,
        [plan("list files"), code("ls", "bash"), answer("The person printed something else.")],
    ),
    (
        say("the model fails"),
        [plan("try"), ScriptedReply(text="", failure=ModelError("no connection"))],
    ),
    (say(f"long one {LONG}"), [answer(f"long answer {LONG}")]),
    (say(f"long two {LONG}"), [answer(f"second long answer {LONG}")]),
    (say(f"long three {LONG}"), [answer("third")]),
    (
        say("more than the model takes in"),
        [ScriptedReply(text="", failure=ContextTooLongError("too long")), answer("It fits now.")],
    ),
    (say("still less room"), [answer("Yes.")]),
    (lambda session: session.forget(), []),
    (say("what do you know?"), [answer("Nothing.")]),
]
STEPS_WITH_CODE = (0, 1, 3, 5)


def converse(project: Path, stops: Collection[int], *, is_stopped: bool) -> list[list[str]]:
    """Do all steps and return all requests to the model.

    After some steps the session is ended and continued; or else it is only told that variables
    are lost, where it would be.
    """
    replies = iter([*(reply for _, script in STEPS for reply in script), answer("the end")])

    def reply(messages: Sequence[Message]) -> str | ScriptedReply:
        if "at most 200 words" in messages[0].content:
            return "A summary of what was said."
        return next(replies)

    project.mkdir()
    model = ScriptedModel([reply] * 100, context_tokens=12_000)
    app = TaskWeaverApp(project, SETTINGS, model=model)
    session = app.get_session("one", approval=Approval("ask"))
    has_variables = False
    try:
        for number, (step, _) in enumerate(STEPS):
            step(session)
            has_variables = has_variables or number in STEPS_WITH_CODE
            if number in stops and is_stopped:
                app.close()
                app = TaskWeaverApp(project, SETTINGS, model=model)
                session = app.get_session("one", approval=Approval("ask"))
            elif number in stops and has_variables:
                session.share([*session.context_blocks, VARIABLES_LOST])
            has_variables = has_variables and number not in stops
        session.send_message("And now?")
    finally:
        app.close()
    assert next(replies, None) is None
    return [[comparable(message) for message in request] for request in model.requests]


def comparable(message: Message) -> str:
    """A message without what a fresh kernel changes: variables, and the numbers of cells."""
    text = re.sub(r"Python variables: [^.]*\.|(?<=In\[)\d+(?=\])", "", message.content)
    return f"{message.role}: {text}"


@pytest.mark.parametrize("stop_after", [*range(len(STEPS)), "each"])
def test_a_resumed_session_asks_its_model_with_the_same_history(
    tmp_path: Path, stop_after: int | str
) -> None:
    stops = range(len(STEPS)) if stop_after == "each" else [int(stop_after)]

    requests = converse(tmp_path / "stopped", stops, is_stopped=True)

    assert requests == converse(tmp_path / "told", stops, is_stopped=False)


def test_a_post_with_an_attachment_of_a_newer_version_is_remembered(tmp_path: Path) -> None:
    with TaskWeaverApp(tmp_path, SETTINGS, model=ScriptedModel([answer("It is 42.")])) as app:
        session = app.get_session("s1")
        session.send_message("What is it?")
    journal = session.session_dir / JOURNAL
    newer = '"attachment_list":[{"id":"a","type":"hologram","content":"?","extra":null},'
    journal.write_text(journal.read_text().replace('"attachment_list":[{', newer + "{"))
    model = ScriptedModel([answer("42, as I said.")])

    with TaskWeaverApp(tmp_path, SETTINGS, model=model) as app:
        app.get_session("s1").send_message("What was it?")

    assert any("It is 42." in message.content for message in model.requests[0])
