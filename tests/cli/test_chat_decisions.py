"""At the terminal: what a person is asked about, can edit, and lets the agent know."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.chat_terminal import CHAT, PROMPT, ChatTerminal, environ
from tests.support.conversations import answer, code, plan
from tests.support.emulated_terminal import EmulatedTerminal
from tests.support.executions import wait_until
from tests.support.model_server import (
    WAIT_SECONDS,
    ModelServer,
    RecordedRequest,
    ScriptedAnswer,
    ScriptEntry,
)


@contextmanager
def serving(project: Path, script: Sequence[str | ScriptEntry]) -> Iterator[ModelServer]:
    """A project whose model follows a script."""
    answers = [ScriptedAnswer(entry) if isinstance(entry, str) else entry for entry in script]
    with ModelServer(answers) as server:
        settings = {"llm.api_base": server.openai_url, "llm.api_key": "k", "llm.max_retries": 0}
        (project / "taskweaver_config.json").write_text(json.dumps(settings))
        yield server


@pytest.fixture(params=[80, 40])
def columns(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def sent(server: ModelServer, request: int = -1) -> str:
    return json.dumps(server.requests[request].body)


def test_what_is_no_answer_is_asked_again_and_always_says_what_it_allows(
    project: Path, columns: int
) -> None:
    script = [
        *(plan("a"), code("echo one", "bash"), plan("b"), code("echo two", "bash")),
        *(answer("Done."), plan("c"), code("echo three", "bash"), answer("As you wish.")),
    ]
    with (
        serving(project, script),
        ChatTerminal(project, columns=columns, rows=60) as chat,
    ):
        chat.press("go\r")
        chat.wait_for("Run block 1?")
        chat.press("\r")
        chat.wait_for("Run block 1?", times=2)
        chat.press("maybe\r")
        chat.wait_for("Run block 1?", times=3)
        chat.press("?\r")
        chat.wait_for("Run block 1?", times=4)
        assert chat.count("Type one of") == 2
        assert chat.count("Ctrl-C stops the agent") == 1
        _, _, below = "\n".join(chat.screen.all_lines).partition("\ny  runs it")
        explained = below.partition("\nCtrl-C stops the agent")[0].split("\n")[1:]
        assert all(line.startswith(("n  ", "e  ", "a  ", "p  ", "   ")) for line in explained)
        chat.press("a\r")
        chat.wait_for("Done.")
        assert not chat.count("Run block 2?")
        assert chat.count("From now on") == 2, "explained, and said when it counts"

        chat.press("/info\r")
        chat.wait_for("ask shell; without")
        chat.press("/reset\r")
        chat.wait_for("This is a new session")
        chat.press("once more\r")
        chat.wait_for("Run block 1?", times=5)
        chat.press("n\r")
        chat.wait_for("■ refused")
        chat.wait_for("As you wish.")


def test_a_pattern_is_proposed_and_can_be_changed(project: Path, columns: int) -> None:
    script = [plan("a"), code("echo one", "bash"), plan("b"), code("echo 2", "bash"), answer("Ok.")]
    with (
        serving(project, script),
        ChatTerminal(project, columns=columns, rows=60) as chat,
    ):
        chat.press("go\r")
        chat.wait_for("Run block 1?")
        chat.press("p\r")
        chat.wait_for("Pattern: echo one*")
        chat.press("\x15ls\r")
        chat.wait_for("Run block 1?", times=2)
        chat.press("p\r")
        chat.wait_for("Pattern: echo one*")
        chat.press("\x03")
        chat.wait_for("Run block 1?", times=3)
        chat.press("p\r")
        chat.wait_for("Pattern: echo one*", times=2)
        chat.press("\x15echo *\r")
        chat.wait_for("Ok.")
        assert not chat.count("Run block 2?")
        chat.press("/approve forget\r")
        chat.wait_for("You are asked before")
        chat.press("/info\r")
        chat.wait_for("ask shell")
        assert not chat.count("without asking: echo")


def test_why_it_was_refused_goes_to_the_agent(project: Path) -> None:
    script = [plan("a"), code("echo one", "bash"), answer("Then in Python.")]
    with serving(project, script) as server, ChatTerminal(project, rows=40) as chat:
        chat.press("go\r")
        chat.wait_for("Run block 1?")
        chat.press("n use Python instead\r")
        chat.wait_for("Then in Python.")

        assert "The user said: use Python instead" in sent(server)
        assert "[1] ■ refused" in "\n".join(chat.screen.all_lines)
        assert "INCORRECT" not in "\n".join(chat.screen.all_lines)


def test_ctrl_c_leaves_the_code_as_it_was_and_alt_enter_adds_a_line(
    project: Path, columns: int
) -> None:
    script = [plan("a"), code("echo one", "bash"), answer("Done.")]
    with (
        serving(project, script) as server,
        ChatTerminal(project, columns=columns, rows=60) as chat,
    ):
        chat.press("go\r")
        chat.wait_for("Run block 1?")
        chat.press("e\r")
        chat.wait_for(" │   echo one")
        chat.press(" changed")
        chat.wait_for(" │   echo one changed")
        chat.press("\x03")
        chat.wait_for("Run block 1?", times=2)
        chat.press("e\r")
        chat.wait_for(" │   echo one", times=2)
        chat.press("\x1b\recho t''wo\r")
        chat.wait_for("Done.")

        shown = [line.strip("│ ") for line in chat.screen.all_lines]
        assert shown.count("one") == shown.count("two") == 1
        assert "two" in sent(server)
        assert "changed" not in sent(server)


def test_an_edit_of_python_ends_as_at_the_prompt_and_is_verified(project: Path) -> None:
    script = [plan("a"), code("print('written')"), answer("Done.")]
    with serving(project, script) as server, ChatTerminal(project, rows=60) as chat:
        chat.press("/approve ask all\r")
        chat.wait_for("asked before any code")
        chat.press("go\r")
        chat.wait_for("Run block 1?")
        chat.press("e\r")
        chat.wait_for("Alt-Enter")
        chat.press("\x15print(eval('1'))\r")
        chat.wait_for("The edited code cannot run.")
        chat.wait_for("[n]o [e]dit [?]")
        chat.press("y\r")
        chat.wait_for("Type one of n, e")
        chat.wait_for("[n]o [e]dit [?]", times=2)
        chat.press("e\r")
        chat.wait_for("Alt-Enter", times=2)
        chat.press("\x15for n in range(2):\rprint('round', n)\r\r")
        chat.wait_for("round 1")
        chat.wait_for("Done.")

        assert "eval" not in sent(server)


def test_the_agent_reacts_at_once_to_what_is_run_and_can_be_stopped(
    project: Path, columns: int
) -> None:
    stalled = ScriptedAnswer(answer("never")[:40], ending="stall")
    script: list[str | ScriptEntry] = [answer("I see 42."), stalled, answer("Nothing left.")]
    with (
        serving(project, script) as server,
        ChatTerminal(project, columns=columns, rows=60) as chat,
    ):
        chat.press("/auto on\r")
        chat.wait_for("What you run goes")
        chat.press("> print(40 + 2)\r")
        chat.wait_for("[1] ✔ done ◆")
        chat.wait_for("◆ The agent hears of it")
        chat.wait_for("I see 42.")
        chat.press("> print('half', 'way')\r")
        chat.wait_for("half way")
        wait_until(lambda: len(server.requests) == 2)
        chat.press("\x03")
        chat.wait_for("[Cancelled]")
        assert server.client_left.wait(WAIT_SECONDS)

        chat.press("/auto off\r")
        chat.wait_for("is not told")
        chat.press("/context\r")
        chat.wait_for("The agent knows:")
        chat.wait_for("   1  print(40 + 2)")
        chat.wait_for("  r1  you: React to what")
        chat.press("/show 1\r")
        chat.wait_for("[1] ✔ done ◆ · by you")
        chat.press("/context drop 1 2\r")
        chat.wait_for("Block 2 and what")
        chat.press("/show 1\r")
        chat.wait_for("[1] ✔ done · by you")
        chat.press("/context drop 1\r")
        chat.wait_for("does not know this")
        chat.press("what is left?\r")
        chat.wait_for("Nothing left.")

        assert "40 + 2" not in sent(server)
        assert "half" not in sent(server)
        assert "React to what I have just run" in sent(server)


def test_levels_can_be_taken_back_and_bad_ones_are_explained(project: Path, columns: int) -> None:
    with serving(project, []), ChatTerminal(project, columns=columns, rows=60) as chat:
        chat.press("/approve deny\r")
        chat.wait_for("No code of the agent runs")
        chat.press("/approve auto\r")
        chat.wait_for("All code of the agent runs")
        chat.press("/approve maybe\r")
        chat.wait_for("/approve forget")
        chat.press("/approve ask shell\r")
        chat.wait_for("You are asked before")
        chat.press("/context drop x\r")
        chat.wait_for("/context lists")
        chat.press("/context drop 7\r")
        chat.wait_for("no code in this")
        chat.press("/auto maybe\r")
        chat.wait_for("/auto on|next|off")
        chat.wait_for_last_line(PROMPT)


def test_a_terminal_that_cannot_move_its_cursor_has_the_commands_too(project: Path) -> None:
    script = [answer("I see 42."), plan("a"), code("echo one", "bash"), answer("Not allowed.")]
    variables = {**environ(project.parent), "TERM": "dumb"}
    with (
        serving(project, script) as server,
        EmulatedTerminal(CHAT, cwd=project, environ=variables) as chat,
    ):
        chat.press("/auto on\n")
        chat.wait_for("What you run goes")
        chat.press("> print(40 + 2)\n")
        chat.wait_for("I see 42.")
        chat.press("/context\n")
        chat.wait_for("   1  print(40 + 2)")
        chat.press("/context drop 1\n")
        chat.wait_for("Block 1 and what")
        chat.press("/approve deny\n")
        chat.wait_for("No code of the agent runs")
        chat.press("go\n")
        chat.wait_for("■ refused")
        chat.wait_for("Not allowed.")

        assert "40 + 2" not in sent(server)
        assert b"\x1b" not in chat.screen.received


def test_the_mark_of_what_the_agent_knows_is_there_after_resume(project: Path) -> None:
    with serving(project, []):
        with ChatTerminal(project) as chat:
            chat.press("> print('kept', 'private')\r")
            chat.wait_for("[1] ✔ done")
            chat.press("/auto next\r")
            chat.wait_for("with your next message")
            chat.press("! echo shared\r")
            chat.wait_for("[2] ✔ done ◆")
            assert chat.leave() == 0
        (journal,) = project.parent.rglob("journal.jsonl")
        with ChatTerminal(project, "--resume", journal.parent.name, rows=40) as chat:
            assert chat.count("[2] ✔ done ◆") == 1
            assert chat.count("[1] ✔ done") == 1
            assert not chat.count("[1] ✔ done ◆")


def test_what_was_typed_before_a_question_does_not_answer_it(project: Path) -> None:
    def after_typing(_request: RecordedRequest) -> ScriptedAnswer:
        chat.press("y\r")
        return ScriptedAnswer(code("touch unseen", "bash"))

    script: list[str | ScriptEntry] = [
        plan("a"),
        after_typing,
        answer("As you wish."),
        answer("Ok."),
    ]
    with serving(project, script), ChatTerminal(project, rows=40) as chat:
        chat.press("go\r")
        chat.wait_for("Run block 1?")
        chat.press("n\r")
        chat.wait_for("As you wish.")
        chat.wait_for("Ok.")

        assert not (project / "unseen").exists()
