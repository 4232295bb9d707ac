"""On a terminal that can only print a person is asked, too: by plain lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.chat_terminal import CHAT, environ
from tests.support.conversations import answer, code, plan
from tests.support.emulated_terminal import EmulatedTerminal
from tests.support.model_server import ModelServer, ScriptedAnswer

PROMPT = "You >"


@contextmanager
def chatting(
    project: Path, script: Sequence[str] = ()
) -> Iterator[tuple[EmulatedTerminal, ModelServer]]:
    """A chat on a simple terminal, at its prompt, with a model that follows a script."""
    with ModelServer([ScriptedAnswer(entry) for entry in script]) as server:
        settings = {"llm.api_base": server.openai_url, "llm.api_key": "k", "llm.max_retries": 0}
        (project / "taskweaver_config.json").write_text(json.dumps(settings))
        variables = environ(project.parent, TERM="dumb")
        with EmulatedTerminal(CHAT, cwd=project, rows=60, environ=variables) as chat:
            chat.wait_for(PROMPT)
            yield chat, server
        assert b"\x1b" not in chat.screen.received


def sent(server: ModelServer) -> str:
    return json.dumps(server.requests[-1].body)


def test_what_is_no_answer_is_asked_again_and_code_runs_when_allowed(project: Path) -> None:
    script = [plan("a"), code("echo o''ne", "bash"), answer("Done.")]
    with chatting(project, script) as (chat, _):
        chat.press("go\n")
        chat.wait_for("Run block 1? [y]es [n]o [e]dit [a]lways [p]attern [?]")
        chat.press("maybe\n")
        chat.wait_for("Type one of y, n, e, a, p; ? explains them.")
        chat.wait_for("Run block 1?", times=2)
        chat.press("?\n")
        chat.wait_for("Ctrl-C stops the agent")
        chat.wait_for("Run block 1?", times=3)
        assert not any(line.strip(" │") == "one" for line in chat.screen.all_lines)
        chat.press("y\n")
        chat.wait_for("Done.")
        assert any(line.strip(" │") == "one" for line in chat.screen.all_lines)


def test_what_is_refused_does_not_run_and_why_goes_to_the_agent(project: Path) -> None:
    mark = project / "mark"
    script = [plan("a"), code(f"touch {mark}", "bash"), answer("As you wish.")]
    with chatting(project, script) as (chat, server):
        chat.press("go\n")
        chat.wait_for("Run block 1?")
        chat.press("n use Python\n")
        chat.wait_for("As you wish.")

        assert not mark.exists()
        assert "The user said: use Python" in sent(server)


def test_code_is_edited_by_typing_what_is_to_run_instead(project: Path) -> None:
    script = [plan("a"), code("echo dangerous", "bash"), answer("Done.")]
    with chatting(project, script) as (chat, server):
        chat.press("go\n")
        chat.wait_for("Run block 1?")
        chat.press("e\n")
        chat.wait_for("a line with a dot alone")
        chat.press(".\n")
        chat.wait_for("Run block 1?", times=2)
        chat.press("e\n")
        chat.wait_for("a line with a dot alone", times=2)
        chat.press("echo nowhere-else\n")
        chat.press("\x03")
        chat.wait_for("Run block 1?", times=3)
        chat.press("e\n")
        chat.wait_for("a line with a dot alone", times=3)
        chat.press("echo harm''less\n\necho tw''ice\n.\n")
        chat.wait_for("Done.")

        shown = [line.strip(" │") for line in chat.screen.all_lines]
        assert shown.count("harmless") == shown.count("twice") == 1
        assert "dangerous" not in shown
        assert "nowhere-else" not in sent(server)
        assert "harmless" in sent(server)


def test_a_pattern_is_proposed_and_enter_accepts_it(project: Path) -> None:
    script = [
        plan("a"),
        code("echo on''e", "bash"),
        plan("b"),
        code("echo 2", "bash"),
        answer("Ok"),
    ]
    with chatting(project, script) as (chat, _):
        chat.press("go\n")
        chat.wait_for("Run block 1?")
        chat.press("p\n")
        chat.wait_for("Pattern [echo on''e]:")
        chat.press("ls\n")
        chat.wait_for("does not allow this command")
        chat.wait_for("Run block 1?", times=2)
        chat.press("p\n")
        chat.wait_for("Pattern [echo on''e]:", times=2)
        chat.press("\n")
        chat.wait_for("Run block 2?")
        chat.press("n\n")
        chat.wait_for("Ok")


def test_code_reads_lines_and_passwords_are_not_shown(project: Path) -> None:
    with chatting(project) as (chat, _):
        chat.press("> name = input('Who? '); print('hello', name)\n")
        chat.wait_until(lambda: chat.screen.lines[-1] == "Who?", "the question")
        chat.press("Ada\n")
        chat.wait_for("hello Ada")
        chat.press("> import getpass; word = getpass.getpass('Word? '); print(len(word))\n")
        chat.wait_until(lambda: chat.screen.lines[-1] == "Word?", "the question")
        chat.wait_until(lambda: not chat.echoes, "nothing typed is shown")
        chat.press("sesame\n")
        chat.wait_until(lambda: "6" in chat.screen.all_lines, "its length")
        chat.wait_for(PROMPT, times=3)

        assert b"sesame" not in chat.screen.received
        assert chat.echoes


def test_ctrl_c_at_a_question_stops_the_agent_and_never_leaves(project: Path) -> None:
    script = [plan("a"), code("echo one", "bash"), answer("Here I am.")]
    with chatting(project, script) as (chat, _):
        chat.press("go\n")
        chat.wait_for("Run block 1?")
        chat.press("\x03")
        chat.wait_for("[Cancelled]")
        chat.press("> input('Who? ')\n")
        chat.wait_until(lambda: chat.screen.lines[-1] == "Who?", "the question")
        chat.press("\x03")
        chat.wait_for("[Cancelled]", times=2)
        chat.press("again\n")
        chat.wait_for("Here I am.")
        chat.wait_for(PROMPT, times=4)
        chat.press("half a line\x03")
        chat.wait_for("Ctrl-C again leaves")
        chat.press("> 6 * 7\n")
        chat.wait_for("42")
        chat.wait_for(PROMPT, times=6)
        chat.press("\x03")
        chat.wait_for("Ctrl-C again leaves", times=2)
        chat.press("\x03")

        chat.wait()


def test_what_was_typed_before_a_question_does_not_answer_it(project: Path) -> None:
    script = [plan("a"), code("echo on''e", "bash"), answer("Refused, then."), answer("Hm.")]
    with chatting(project, script) as (chat, server):
        chat.press("go\ny\n> print('typed', 'ahead')\n")
        chat.wait_for("Run block 1?")
        chat.press("n\n")
        chat.wait_for("Refused, then.")
        chat.wait_for("typed ahead")

        assert not any(line.strip(" │") == "one" for line in chat.screen.all_lines)
