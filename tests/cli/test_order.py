"""What happened, in its order, in every frontend: on the screen of a chat, of `run`, in pipes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.chat_terminal import ChatTerminal, OpenChat, environ, run_piped
from tests.support.command_line import PROGRAM
from tests.support.emulated_terminal import EmulatedTerminal
from tests.support.terminal_program import LIMIT_SECONDS

REWRITES = """
from IPython.display import clear_output, display
print("first"); clear_output()
handle = display("0 %", display_id=True)
print("between")
for n in range(1, 11):
    handle.update(f"{n * 10} %")
"""
FRAMES = """
from IPython.display import clear_output
for n in range(5):
    clear_output(wait=True)
    print("frame", n)
    print("w" * 200)
"""
UNTIL_GATE = """
import pathlib, threading, time
def wait():
    while not pathlib.Path({gate!r}).exists():
        time.sleep(0.01)
    print("late at last")
waiting = threading.Thread(target=wait)
waiting.start()
"""


def rows_of(chat: ChatTerminal) -> list[str]:
    return [line for line in chat.screen.all_lines if line.startswith((" │", " ╰"))]


def run_on_terminal(project: Path, code: str, **options: int) -> list[str]:
    """What is left on the terminal of a script, scrollback included."""
    (project / "script.py").write_text(code)
    with EmulatedTerminal(
        [*PROGRAM, "run", "script.py"],
        cwd=project,
        environ=environ(project.parent),
        columns=options.get("columns", 80),
        rows=options.get("rows", 24),
    ) as terminal:
        terminal.wait()
        return terminal.screen.all_lines


def run_in_pipe(project: Path, code: str) -> subprocess.CompletedProcess[str]:
    (project / "script.py").write_text(code)
    return subprocess.run(
        [*PROGRAM, "run", "script.py"],
        capture_output=True,
        text=True,
        cwd=project,
        env=environ(project.parent),
        timeout=LIMIT_SECONDS,
        check=False,
    )


def test_a_chat_shows_what_was_written_before_how_it_ended(chat: ChatTerminal) -> None:
    chat.press("> print('x', end=''); 1/0\r")
    chat.wait_for("✖ failed")
    rows = rows_of(chat)

    assert rows[0] == " │   x"
    assert rows[1].startswith(" │ ! ----")
    assert rows[-2] == " │ ! ZeroDivisionError: division by zero"

    chat.press("! printf 'a\\nb'; printf err >&2; false\r")
    chat.wait_for("✖ failed", times=2)

    assert rows_of(chat)[-5:] == [
        " │   a",
        " │   b",
        " │ ! err",
        " │ ! The command ended with exit code 1.",
        " ╰──● [2] ✖ failed",
    ]


@pytest.mark.parametrize("columns", [80, 40])
def test_a_chat_updates_displays_and_clears_output(open_chat: OpenChat, columns: int) -> None:
    chat = open_chat(columns=columns)
    chat.run(REWRITES)
    chat.wait_for("✔ done")

    assert rows_of(chat) == [" │   '100 %'", " │   between", " ╰──● [1] ✔ done"]

    chat.run(FRAMES)
    chat.wait_for("✔ done", times=2)
    rows = rows_of(chat)[3:]

    assert rows[0] == " │   frame 4"
    assert sum(row.count("w") for row in rows) == 200


def test_a_chat_says_below_what_cannot_be_replaced_any_more(chat: ChatTerminal) -> None:
    chat.run(
        "from IPython.display import display\n"
        "handle = display('old', display_id=True)\n"
        "for n in range(18): print('row', n)\n"
        "handle.update('new')\n"
    )
    chat.wait_for("✔ done")
    rows = rows_of(chat)

    assert rows[0] == " │   'old'"
    assert rows[1:-2] == [f" │   row {n}" for n in range(18)]
    assert rows[-2] == " │   'new'"


def test_a_question_has_above_it_all_that_was_written(chat: ChatTerminal) -> None:
    chat.run("for n in range(3): print('choice', n)\nprint('end')\nx = input('which? ')")
    chat.wait_for("which?")
    chat.wait_for(" │   end")

    lines = chat.screen.all_lines
    assert lines.index(" │   choice 2") < lines.index(" │   end")
    chat.press("1\r")
    chat.wait_for("✔ done")


def test_a_person_learns_that_variables_were_lost(chat: ChatTerminal) -> None:
    chat.press("> import os; os.kill(os.getpid(), 9)\r")
    chat.wait_for("✖ kernel died")
    chat.press("> print('fresh')\r")
    chat.wait_for("✔ done")
    text = " ".join(row[5:] for row in rows_of(chat)).replace("  ", " ")

    assert "Its variables are lost" in text
    assert "[Restarted] The kernel was gone (killed by SIGKILL)" in text
    assert text.index("[Restarted]") < text.index("fresh [2] ✔ done")


def test_pictures_logs_and_late_output_are_shown(open_chat: OpenChat, project: Path) -> None:
    gate = project / "gate"
    chat = open_chat(columns=400)  # so that no path is cut
    chat.run(
        "import base64\n"
        "from IPython.display import Image, display\n"
        "display(Image(data=base64.b64decode('iVBORw0KGgo='), format='png'))\n"
        + UNTIL_GATE.format(gate=str(gate))
    )
    chat.wait_for("✔ done")
    gate.touch()
    chat.wait_for(" ┊   late at last")

    [picture] = [row for row in rows_of(chat) if "[Picture] " in row]
    assert Path(picture.partition("[Picture] ")[2]).read_bytes() == b"\x89PNG\r\n\x1a\n"
    assert not chat.count("artifact_paths")
    assert chat.count("late output of [1] exec(open(")


def test_a_piped_chat_keeps_the_order_and_names_late_output(project: Path) -> None:
    gate = project / "gate"
    (project / "late.py").write_text(UNTIL_GATE.format(gate=str(gate)))
    done = run_piped(
        project,
        "> print('x', end=''); display(3)\n"
        f"> exec(open({str(project / 'late.py')!r}).read())\n"
        f"> open({str(gate)!r}, 'w').close(); waiting.join()\n"
        "> import os; os.kill(os.getpid(), 9)\n"
        "> print('fresh')\n",
    )

    assert done.stdout.startswith("x\n3\n")
    assert done.stdout.endswith("fresh\n")
    assert "[Late output of exec(open(" in done.stderr
    assert "late at last\n" in done.stdout
    assert "[Restarted] The kernel was gone (killed by SIGKILL)" in done.stderr


@pytest.mark.parametrize("columns", [80, 40])
def test_run_updates_displays_and_clears_output(project: Path, columns: int) -> None:
    assert run_on_terminal(project, REWRITES, columns=columns) == ["'100 %'", "between"]

    lines = run_on_terminal(project, FRAMES, columns=columns)

    assert lines[0] == "frame 4"
    assert sum(line.count("w") for line in lines) == 200


def test_run_appends_what_it_cannot_replace(project: Path) -> None:
    tall = f"{REWRITES}\nfor n in range(100): print('row', n)\nhandle.update('new')\nclear_output()"

    lines = run_on_terminal(project, tall, rows=10)
    piped = run_in_pipe(project, REWRITES)

    assert lines == ["'100 %'", "between", *(f"row {n}" for n in range(100)), "'new'"][: len(lines)]
    assert piped.stdout == "first\n'0 %'\nbetween\n" + "".join(
        f"'{n * 10} %'\n" for n in range(1, 11)
    )


def test_run_shows_what_was_written_before_the_traceback(project: Path) -> None:
    lines = run_on_terminal(project, "print('x', end=''); 1/0")

    assert lines[0] == "x"
    assert lines[1].startswith("----")
    assert lines[-1] == "ZeroDivisionError: division by zero"
