"""The agent in the chat: approval, context, and what happens when things go wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.chat_terminal import PROMPT, ChatTerminal
from tests.support.conversations import answer, code, plan
from tests.support.model_server import WAIT_SECONDS, ModelServer, ScriptedAnswer, ScriptEntry


@contextmanager
def chatting(
    project: Path, script: Sequence[str | ScriptEntry]
) -> Iterator[tuple[ChatTerminal, ModelServer]]:
    """A chat with a model that follows a script, at its prompt."""
    answers = [ScriptedAnswer(entry) if isinstance(entry, str) else entry for entry in script]
    with ModelServer(answers) as server:
        settings = {"llm.api_base": server.openai_url, "llm.api_key": "k", "llm.max_retries": 0}
        (project / "taskweaver_config.json").write_text(json.dumps(settings))
        with ChatTerminal(project, rows=40) as chat:
            yield chat, server


def test_shell_code_runs_only_when_approved(project: Path) -> None:
    script = [
        plan("say hello"),
        code("echo hello from shell", "bash"),
        answer("Said hello."),
    ]
    with chatting(project, script) as (chat, _):
        chat.press("say hello\r")
        chat.wait_for("Run block 1? [y]es [n]o [e]dit [a]lways [p]attern [?]")
        assert chat.screen.lines[-4:-1] == [
            " ╭─► [1 bash] echo hello from shell",
            " ├─► [approval] This runs only if you allow it. Shell commands cannot be",
            " │   checked before they run.",
        ]

        chat.press("y\r")

        chat.wait_for(" │   hello from shell")
        chat.wait_for("Said hello.")
        chat.wait_for("tokens: 33 read, 21 written")


def test_code_can_be_edited_before_it_runs(project: Path) -> None:
    script = [
        plan("say hello"),
        code("echo dangerous", "bash"),
        answer("Done."),
    ]
    with chatting(project, script) as (chat, _):
        chat.press("say hello\r")
        chat.wait_for("Run block 1?")
        chat.press("e\r")
        chat.wait_for("Enter runs it, Alt-Enter adds a line")
        chat.wait_for(" │   echo dangerous")

        chat.press("\x15echo harm''less\r")

        chat.wait_for(" │   harmless")
        chat.wait_for("Done.")
        assert not any("│   dangerous" in line for line in chat.screen.all_lines)


def test_what_is_refused_does_not_run_and_the_agent_is_told(project: Path) -> None:
    mark = project / "mark"
    script = [
        plan("make a mark"),
        code(f"touch {mark}", "bash"),
        answer("As you wish."),
        answer("As you wish."),
    ]
    with chatting(project, script) as (chat, server):
        chat.press("make a mark\r")
        chat.wait_for("Run block 1?")
        chat.press("n\r")
        chat.wait_for(PROMPT, times=2)

        assert not mark.exists()
        assert "The user refused to run this code." in json.dumps(server.requests[-1].body)
        assert "INCORRECT" not in json.dumps(server.requests[-1].body)


def test_approval_of_everything_and_patterns_that_are_always_allowed(project: Path) -> None:
    script = [
        plan("two things"),
        code("print('python', 'asked')"),
        plan("and now shell"),
        code("echo allowed always", "bash"),
        answer("Done."),
    ]
    with chatting(project, script) as (chat, _):
        chat.press("/approve ask all\r")
        chat.wait_for("asked before any code")
        chat.press("/approve allow 'echo *'\r")
        chat.wait_for("Without asking: echo *")
        chat.press("go\r")
        chat.wait_for("Run block 1?")
        chat.press("y\r")

        chat.wait_for(" │   python asked")
        chat.wait_for(" │   allowed always")
        chat.wait_for("Done.")
        assert sum("Run block" in line for line in chat.screen.all_lines) == 1


def test_what_people_run_is_told_to_the_agent_only_with_auto_on(project: Path) -> None:
    script = [answer("First."), answer("Second."), answer("Third.")]
    with chatting(project, script) as (chat, server):
        chat.press("> print('kept', 'private')\r")
        chat.wait_for("kept private")
        chat.press("/auto next\r")
        chat.wait_for("with your next message")
        chat.press("> print('shared', 'openly')\r")
        chat.wait_for("◆ The agent hears of it")
        chat.press("one\r")
        chat.wait_for("First.")
        chat.press("two\r")
        chat.wait_for("Second.")
        chat.press("/context clear\r")
        chat.wait_for("has forgotten")
        chat.press("three\r")
        chat.wait_for("Third.")

        first, second, third = (json.dumps(request.body) for request in server.requests)

    assert "shared openly" in first
    assert "kept private" not in first
    assert "shared openly" in second, "it is part of the conversation"
    assert "shared openly" not in third
    assert "First." not in third


def test_ctrl_c_stops_a_reply_and_the_chat_goes_on(project: Path) -> None:
    stalled = ScriptedAnswer(answer("never")[:40], ending="stall")
    with chatting(project, [stalled, answer("Here I am.")]) as (chat, server):
        chat.press("hello\r")
        server.wait_for_request()
        chat.wait_for("Ctrl-C stops")

        chat.press("\x03")

        chat.wait_for("[Cancelled]")
        assert server.client_left.wait(WAIT_SECONDS)
        chat.press("again\r")
        chat.wait_for("Here I am.")


def test_a_kernel_killed_in_a_round_is_told_and_the_chat_goes_on(project: Path) -> None:
    script = [
        plan("die"),
        code("import os; os.kill(os.getpid(), 9)"),
        code("print('alive', 'again')"),
        answer("It works again."),
    ]
    with chatting(project, script) as (chat, _):
        chat.press("die\r")

        chat.wait_for("[1] ✖ kernel died")
        chat.wait_for(" │   alive again")
        chat.wait_for("It works again.")
