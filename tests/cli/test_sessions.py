"""Sessions are listed, shown, deleted and continued, as a person does it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.chat_terminal import PROMPT, ChatTerminal, environ, run_piped
from tests.support.command_line import PROGRAM
from tests.support.conversations import answer, code, plan
from tests.support.model_server import ModelServer, ScriptedAnswer
from tests.support.terminal_program import LIMIT_SECONDS

HOSTILE = "print('\\x1b]0;title\\x07\\x1b[2Jafter'); 1/0"


def run(project: Path, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        capture_output=True,
        text=True,
        cwd=project,
        env=environ(project.parent),
        timeout=LIMIT_SECONDS,
        check=False,
        input=str(options.get("input", "")),
    )


def sessions(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(project, "sessions", *arguments)


def ids(project: Path) -> list[str]:
    """Of all sessions, the one that was used last first."""
    return [one["session_id"] for one in json.loads(sessions(project, "list", "--json").stdout)]


def configure(project: Path, server: ModelServer) -> None:
    settings = {
        "execution_service.kernel_mode": "local",
        "llm.api_base": server.openai_url,
        "llm.api_key": "secret-key",
        "llm.max_retries": 0,
    }
    (project / "taskweaver_config.json").write_text(json.dumps(settings))


def told(server: ModelServer, number: int) -> str:
    """All that the model was told with one of its requests."""
    return json.dumps(server.requests[number].body, ensure_ascii=False)


def test_a_request_goes_on_where_the_one_before_ended(project: Path) -> None:
    script = [plan("print"), code("x = 7; print(x)"), answer("It is **7**."), answer("As I said.")]
    with ModelServer([ScriptedAnswer(reply) for reply in script]) as server:
        configure(project, server)
        first = run(project, "ask", "what is lucky?")
        [session_id] = ids(project)
        second = run(project, "ask", "--resume", session_id[:-3], "what was it?")
        request = told(server, 3)

    assert first.stderr.rstrip().endswith(
        f"Continue with: {shlex.join(PROGRAM)} chat --resume {session_id}"
    )
    assert (second.stdout, second.returncode) == ("As I said.\n", 0), second.stderr
    assert "what is lucky?" in request
    assert "It is **7**." in request
    assert "variables of earlier code are lost" in request
    assert ids(project) == [session_id]


def test_a_session_elsewhere_is_continued_there(project: Path, tmp_path: Path) -> None:
    run_piped(project, "> 1\n")
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    [session_id] = ids(project)

    done = run(elsewhere, "chat", "-p", str(project), "--resume", session_id, input="> 2\n")

    command = f"{shlex.join(PROGRAM)} chat -p {project} --resume {session_id}"
    assert done.stderr.rstrip().endswith(command)


def test_a_list_and_a_conversation_can_be_read(project: Path) -> None:
    run_piped(project, f"> {HOSTILE}\n! echo from the shell\n")
    [session_id] = ids(project)

    table = sessions(project, "list").stdout
    shown = sessions(project, "show", session_id).stdout

    assert session_id in table
    assert "print(" in table
    for text in ("You ▸ > print(", " │   after", "ZeroDivisionError", "You ▸ ! echo", "from the"):
        assert text in shown
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", table + shown)
    assert "title" not in shown.replace(HOSTILE, "")


def test_the_last_requests_are_shown_as_text_and_as_events(project: Path) -> None:
    run_piped(project, "".join(f"> print('number', {n})\n" for n in range(4)))
    [session_id] = ids(project)

    shown = sessions(project, "show", session_id, "--last", "2").stdout
    lines = sessions(project, "show", session_id, "--last", "2", "--json").stdout.splitlines()
    everything = sessions(project, "show", session_id, "--json").stdout.splitlines()

    assert re.findall(r"number \d", shown) == ["number 2", "number 3"]
    assert "(2 earlier requests" in shown
    assert everything[-len(lines) :] == lines
    events = [json.loads(line) for line in everything]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))


def test_a_reader_that_leaves_early_is_no_failure(project: Path) -> None:
    run_piped(project, "> print('x' * 100)\n" * 3)
    [session_id] = ids(project)
    command = f"{' '.join(PROGRAM)} sessions show {session_id} --json | head -n 1"

    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        cwd=project,
        env=environ(project.parent),
        timeout=LIMIT_SECONDS,
    )

    assert done.stderr == ""


def test_sessions_are_deleted_by_name_and_by_age(project: Path) -> None:
    for number in range(3):
        run_piped(project, f"> {number}\n")
    newest, *others = ids(project)

    by_name = sessions(project, "delete", newest)
    too_young = sessions(project, "delete", "--older-than", "1h")
    assert ids(project) == others
    by_age = sessions(project, "delete", "--older-than", "0d")

    assert by_name.stdout == f"deleted {newest}\n"
    assert (too_young.stdout, too_young.returncode) == ("", 0)
    assert sorted(by_age.stdout.split()[1::2]) == sorted(others)
    assert sessions(project, "list").stdout == ""


@pytest.mark.parametrize(
    ("arguments", "message", "exit_code"),
    [
        (["delete"], "error: Say which: ID..., or --older-than AGE.", 2),
        (["delete", "x", "--older-than", "1d"], "error: Say which", 2),
        (["delete", "--older-than", "soon"], "'soon' is no age; write 12h, 30d or 8w.", 2),
        (["delete", "../x"], "error: There is no session '../x'", 1),
        (["show", "x"], "error: There is no session 'x'", 1),
        (["show"], "Missing argument 'ID'", 2),
    ],
)
def test_what_makes_no_sense_is_said_in_a_line(
    project: Path, arguments: list[str], message: str, exit_code: int
) -> None:
    done = sessions(project, *arguments)

    assert message in done.stderr
    assert done.returncode == exit_code
    assert len(done.stderr.splitlines()) <= 2


@pytest.mark.parametrize("command", [["chat"], ["ask", "hello"]])
def test_what_cannot_be_continued_is_said_in_a_line(project: Path, command: list[str]) -> None:
    done = run(project, *command, "--resume", "nothing")

    assert done.stderr.startswith("error: There is no session 'nothing'")
    assert done.returncode == 1


def test_nothing_to_choose_from_is_said(project: Path) -> None:
    none = run(project, "chat", "--resume")
    run_piped(project, "> 1\n")
    run_piped(project, "> 2\n")
    two = run(project, "chat", "--resume")

    assert none.stderr.startswith("error: There is no session to continue")
    assert two.stderr.startswith("error: There are 2 sessions to continue. Say which")


def test_a_session_that_is_open_elsewhere_is_named_and_left_alone(project: Path) -> None:
    with ChatTerminal(project) as chat:
        chat.press("> print(6 * 7)\r")
        chat.wait_for(" │   42")
        [session_id] = ids(project)

        table = sessions(project, "list").stdout
        shown = sessions(project, "show", session_id).stdout
        deleted = sessions(project, "delete", session_id)
        resumed = run(project, "chat", "--resume", session_id, input="> 1\n")

        owner = f"process {chat.process.pid} "
        assert f"open in {owner}" in table
        assert " │   42" in shown
        for refused in (deleted, resumed):
            assert owner in refused.stderr
            assert refused.returncode == 1
        assert ids(project) == [session_id]


def test_a_chat_is_continued_on_a_terminal(project: Path) -> None:
    with ChatTerminal(project) as chat:
        chat.press("> x = 6 * 7; print('first', x)\r")
        chat.wait_for(" │   first 42")
        chat.leave()
        [session_id] = ids(project)
        assert f"--resume {session_id}" in "".join(chat.screen.all_lines)

    with ChatTerminal(project, "--resume", rows=40) as chat:  # there is only one
        chat.wait_for("You ▸ > x = 6 * 7")
        chat.wait_for(" │   first 42")
        chat.wait_for("[Notice] This session was continued: the variables")
        chat.press("> print('second', 'x' in globals())\r")
        chat.wait_for(" │   second False")


def test_another_session_is_chosen_in_the_chat_and_before_it(project: Path) -> None:
    run_piped(project, "> print('one', 'first')\n")
    run_piped(project, "> print('two', 'second')\n")
    second, first = ids(project)

    with ChatTerminal(project, "--resume", columns=120, rows=40, first_sight="Which one?") as chat:
        chat.press("two\r")
        chat.wait_for("Type a number from 1 to 2")
        chat.press("2\r")
        chat.wait_for(PROMPT)
        chat.wait_for(" │   one first")
        chat.press("/sessions\r")
        chat.wait_for("[this session]")
        chat.press(f"/resume {second}\r")
        chat.wait_for(" │   two second")
        chat.press("/info\r")
        chat.wait_for(f"session  {second}")
        chat.press("/resume\r")  # the only other one
        chat.wait_until(lambda: chat.count(" │   one first") == 2, "the first one again")
        chat.leave()
        chat.wait_for(f"--resume {first}")


def test_a_session_in_which_nothing_was_asked_says_so(project: Path) -> None:
    run_piped(project, "/info\n")
    [session_id] = ids(project)

    shown = sessions(project, "show", session_id)

    assert (shown.returncode, shown.stdout) == (0, "")
    assert shown.stderr == f"nothing was asked in {session_id}\n"
