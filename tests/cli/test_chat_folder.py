"""The person's folder: where commands work, what they leave there, and how files come into it."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.chat_terminal import PROMPT, ChatTerminal, OpenChat, environ
from tests.support.command_line import PROGRAM
from tests.support.conversations import answer
from tests.support.model_server import ModelServer, ScriptedAnswer
from tests.support.terminal_program import LIMIT_SECONDS

DUMB = {"TERM": "dumb", "first_sight": "You >"}


def run(
    folder: Path, *arguments: str, home: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environ(home or folder.parent, **variables),
        timeout=LIMIT_SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def listing(folder: Path) -> dict[str, bytes | None]:
    """Everything in a folder, files with what they hold."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("columns", [80, 40])
def test_the_first_lines_say_folder_model_and_where_code_runs(
    open_chat: OpenChat, columns: int
) -> None:
    chat = open_chat(columns=columns)
    lines = chat.screen.lines

    assert lines.index(PROMPT) == 4
    assert lines[0] == "Folder  ~/project"
    assert lines[1].startswith("Model   none is set; ")
    assert lines[2].startswith("Code    runs here, with your rights")
    assert "/help" in lines[3]
    assert all(len(line) < columns for line in lines)


def test_a_terminal_that_only_prints_lines_shows_the_same(open_chat: OpenChat) -> None:
    chat = open_chat(**DUMB)

    for text in ("Folder  ~/project", "Model   none is set", "Code    runs here"):
        assert chat.count(text) == 1
    chat.press("exit\r")
    assert chat.wait() == 0


def test_the_first_lines_and_info_name_the_model(project: Path, open_chat: OpenChat) -> None:
    settings = {"llm.api_key": "k", "llm.model": "some-model"}
    (project / "taskweaver_config.json").write_text(json.dumps(settings))

    chat = open_chat(columns=200)
    assert "Model   some-model (openai)" in chat.screen.lines
    chat.press("/info\r")
    chat.wait_for(f"folder   {project}")
    chat.wait_for("code     on this machine")


def test_nothing_of_ours_appears_in_the_folder(project: Path, open_chat: OpenChat) -> None:
    (project / "mine.py").write_text("print('a script of mine')")
    before = listing(project)

    chat = open_chat(columns=200, rows=50)
    for line, sight in (
        ("> import os; print('in', os.getcwd())", f"in {project}"),
        ("! pwd", f" │   {project}"),
        ("/snapshot", "Variables are saved"),
        ("/demo", "I made up 180 days"),
        ("/save", "round(s) to"),
    ):
        chat.press(f"{line}\r")
        chat.wait_for(sight)
        chat.wait_for_last_line(PROMPT)
    assert chat.leave() == 0
    assert run(project, "run", "mine.py").stdout == "a script of mine\n"
    assert run(project, "exec", "bash", "-c", "pwd").stdout == f"{project}\n"
    [hint] = [line for line in chat.screen.all_lines if line.startswith("Continue with: ")]
    resumed = open_chat("--resume", hint.rpartition(" ")[2], columns=200, rows=50)
    resumed.press("! pwd\r")
    resumed.wait_for(f" │   {project}", times=2)
    assert resumed.leave() == 0

    assert listing(project) == before


def test_a_request_works_here_and_leaves_nothing(project: Path) -> None:
    with ModelServer([ScriptedAnswer(answer("done"))]) as server:
        settings = {"llm.api_base": server.openai_url, "llm.api_key": "k", "llm.max_retries": 0}
        (project / "taskweaver_config.json").write_text(json.dumps(settings))
        (project / "data.csv").write_text("1")
        before = listing(project)
        done = run(project, "ask", "-f", "data.csv", "look")
        told = json.dumps(server.requests[0].body)

    assert done.returncode == 0, done.stderr
    assert "data.csv" in told
    assert listing(project) == before


def test_another_folder_can_be_named_and_must_be_there(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other place"
    other.mkdir()
    (project / "file").touch()

    with ChatTerminal(project, "--cwd", str(other), columns=200) as chat:
        chat.wait_for("Folder  ~/other place")
        chat.press("> import os; print('in', os.getcwd())\r")
        chat.wait_for(f"in {other}")
    for place in ("missing", "file"):
        for command in (("chat",), ("ask", "x"), ("run", "-c", "1")):
            refused = run(project, *command, "--cwd", place)
            assert refused.returncode == 2
            assert refused.stderr.startswith("error: ")
            assert place in refused.stderr
            assert "Traceback" not in refused.stderr


def test_a_project_decides_where_code_works(project: Path, open_chat: OpenChat) -> None:
    (project / "taskweaver_config.json").write_text('{"session.cwd": "session"}')

    chat = open_chat()
    chat.press("> import os; print('own' if os.getcwd().endswith('/cwd') else 'here')\r")

    chat.wait_for(" │   own")


def test_a_sandbox_at_home_is_refused_with_a_way_out(project: Path) -> None:
    refused = run(project, "chat", "--kernel", "sandbox", home=project)

    assert refused.returncode == 2
    for part in ("cannot be the working folder of a sandbox", "--cwd", "session.cwd"):
        assert part in refused.stderr


@pytest.mark.parametrize("options", [{}, {"columns": 40}, DUMB], ids=["80", "40", "dumb"])
def test_a_loaded_file_can_be_opened_at_once(
    project: Path, tmp_path: Path, open_chat: OpenChat, options: dict[str, object]
) -> None:
    (tmp_path / "data.csv").write_text("new")
    (project / "data.csv").write_text("mine")

    chat = open_chat(**options)
    chat.press("/load ../data.csv data.csv\r")
    chat.wait_for("Code can open: data-2.csv")
    chat.press("> print(open('data.csv').read(), open('data-2.csv').read())\r")

    chat.wait_for("mine new")


@pytest.mark.parametrize(
    "typed",
    [
        "{}/my\\ data.csv",
        "'{}/my data.csv'",
        '"{}/my data.csv"',
        "file://{}/my%20data.csv",
        "{}/my data.csv",
        "  '{0}/my data.csv' {0}/other.csv ",
    ],
)
def test_a_dropped_file_is_loaded(
    tmp_path: Path, open_chat: OpenChat, project: Path, typed: str
) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "my data.csv").write_text("1")
    (folder / "other.csv").write_text("2")

    chat = open_chat()
    chat.press(typed.format(folder) + "\r")

    chat.wait_for("Code can open: my data.csv")
    assert (project / "my data.csv").read_text() == "1"


def test_a_missing_file_is_said_and_nothing_is_loaded(open_chat: OpenChat, project: Path) -> None:
    before = listing(project)
    chat = open_chat()
    chat.press("/load nowhere.csv\r")

    chat.wait_for("There is no file")
    chat.press("/load /usr\r")
    chat.wait_for("/usr is a folder; /load takes files.")
    assert listing(project) == before


@pytest.mark.parametrize(
    ("mode", "typed"),
    [
        *(("agent", word) for word in ("exit", "quit")),
        *(("python", word) for word in ("exit", "quit", "exit()")),
        ("shell", "exit"),
    ],
)
def test_exit_leaves_in_every_mode(chat: ChatTerminal, mode: str, typed: str) -> None:
    chat.press(f"/mode {mode}\r")
    chat.wait_for(f"go to: {mode}")
    chat.press(f"{typed}\r")

    assert chat.wait() == 0


def test_exit_behind_a_prefix_is_code(chat: ChatTerminal) -> None:
    chat.press("! (exit 3); echo still $?\r")

    chat.wait_for(" │   still 3")


@pytest.mark.parametrize("columns", [80, 40])
def test_ctrl_c_empties_a_line_and_leaves_only_twice(open_chat: OpenChat, columns: int) -> None:
    chat = open_chat(columns=columns)
    chat.press("half a li")
    chat.wait_for("half a li")
    chat.press("\x03")
    chat.wait_until(lambda: chat.screen.lines[-1] == PROMPT, "an empty prompt")
    chat.press("\x03")
    chat.wait_for("Ctrl-C again leaves")
    chat.wait_for_last_line(PROMPT)
    chat.press("ab")
    chat.wait_for(f"{PROMPT} ab")
    chat.press("\x03")
    chat.wait_until(lambda: chat.screen.lines[-1] == PROMPT, "an empty prompt")
    chat.press("\x03")  # the line was the answer to the question: this one asks again
    chat.wait_for("Ctrl-C again leaves", times=2)
    chat.wait_for_last_line(PROMPT)
    assert chat.process.poll() is None

    chat.press("\x03")

    assert chat.wait() == 0


@pytest.mark.parametrize("end", ["ctrl-c", "ctrl-d", "exit", "SIGTERM", "SIGHUP"])
def test_however_a_chat_ends_it_says_how_to_go_on_and_that_works(
    open_chat: OpenChat, project: Path, end: str
) -> None:
    chat = open_chat(columns=200)
    chat.press("> print('to be', 'continued')\r")
    chat.wait_for("to be continued")
    chat.wait_for_last_line(PROMPT)
    if end == "ctrl-c":
        chat.press("\x03")
        chat.wait_for("again leaves")
        chat.wait_for_last_line(PROMPT)
        chat.press("\x03")
    elif end.startswith("SIG"):
        chat.process.send_signal(signal.Signals[end])
    else:
        chat.press({"ctrl-d": "\x04", "exit": "exit\r"}[end])
    chat.wait()

    [line] = [line for line in chat.screen.all_lines if line.startswith("Continue with: ")]
    command = line.removeprefix("Continue with: ")
    assert command.startswith(shlex.join(PROGRAM))
    again = subprocess.run(
        f"{command} < /dev/null",
        shell=True,
        cwd=project,
        env=environ(project.parent),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert again.returncode == 0, again.stderr
    assert command in again.stderr


def test_a_reset_says_how_to_go_back(chat: ChatTerminal) -> None:
    chat.press("> 1\r")
    chat.wait_for("✔ done")
    chat.press("/reset\r")

    chat.wait_for("continues the one before")


def test_hints_name_the_script_that_started_us(project: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, "chat"],
        input="> 1\n",
        capture_output=True,
        text=True,
        cwd=project,
        env=environ(project.parent, TASKWEAVER_STARTED_AS="my scripts/start"),
        timeout=LIMIT_SECONDS,
        check=False,
    )

    assert "Continue with: 'my scripts/start' chat --resume" in done.stderr


def test_a_session_whose_folder_is_gone_says_so(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "gone"
    other.mkdir()
    with ChatTerminal(project, "--cwd", str(other)) as chat:
        chat.press("> 1\r")
        chat.wait_for("✔ done")
    other.rmdir()

    with ChatTerminal(project, "--resume", rows=40) as chat:
        chat.wait_for("is not there")
        chat.press("> import os; print('own' if os.getcwd().endswith('/cwd') else 'other')\r")
        chat.wait_for(" │   own")


def test_a_replay_leaves_the_folder_alone_unless_it_is_named(project: Path) -> None:
    (project / "taskweaver_config.json").write_text('{"session.cwd": "here"}')
    (project / "numbers.txt").write_text("7")
    subprocess.run(
        [*PROGRAM, "chat"],
        input="> open('made.txt', 'w').write(open('numbers.txt').read())\n",
        capture_output=True,
        text=True,
        cwd=project,
        env=environ(project.parent),
        timeout=LIMIT_SECONDS,
        check=True,
    )
    (project / "made.txt").unlink()
    before = listing(project)
    [session] = json.loads(run(project, "sessions", "list", "--json").stdout)

    apart = run(project, "sessions", "replay", session["session_id"], "--yes")
    after_apart = listing(project)
    here = run(project, "sessions", "replay", session["session_id"], "--yes", "--cwd", ".")

    assert apart.returncode == 1
    assert "FileNotFoundError" in apart.stdout
    assert after_apart == before
    assert here.returncode == 0, here.stdout + here.stderr
    assert (project / "made.txt").read_text() == "7"


def test_a_current_folder_that_is_gone_is_said_in_one_line(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    in_gone = ["sh", "-c", 'mkdir gone; cd gone; rmdir ../gone; exec "$@"', "sh", *PROGRAM]
    for command in (("chat",), ("ask", "x"), ("run", "-c", "1")):
        done = subprocess.run(
            [*in_gone, *command],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environ(tmp_path),
            timeout=LIMIT_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 2
        assert done.stderr.startswith("error: The current folder cannot be used")
        assert not gone.exists()


@pytest.mark.parametrize("columns", [80, 40])
def test_how_to_resume_can_be_copied_whole_on_a_narrow_terminal(
    open_chat: OpenChat, columns: int
) -> None:
    chat = open_chat(columns=columns)
    chat.press("> 6 * 7\r")
    chat.wait_for("42")
    chat.wait_for_last_line(PROMPT)
    assert chat.leave() == 0

    _, words, hint = "\n".join(chat.screen.all_lines).partition("\nContinue with:\n")
    command = hint.rstrip().replace("\n", "")  # only the terminal has cut it
    assert words
    assert re.fullmatch(rf"{re.escape(shlex.join(PROGRAM))} chat --resume [0-9a-f-]+", command)
    assert all(len(line) == columns for line in hint.rstrip().split("\n")[:-1])


def test_a_demonstration_alone_is_nothing_to_be_continued(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.press("/demo\r")
    chat.wait_for("no model is thinking here")
    chat.wait_for_last_line(PROMPT)
    assert chat.leave() == 0

    assert chat.count("Continue with") == 0
