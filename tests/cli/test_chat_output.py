"""What running code writes, on the screen of a chat."""

from __future__ import annotations

import time
from pathlib import Path

from tests.support.chat_terminal import PROMPT, ChatTerminal, OpenChat
from tests.support.executions import LIMIT_SECONDS

QUIET_SECONDS = 2.2
"""Longer than any timer of a chat that somebody uses."""


def test_output_appears_while_the_code_runs_and_is_completed_in_place(
    chat: ChatTerminal, project: Path
) -> None:
    gate = project / "gate"
    chat.run(
        "import os, time\n"
        "print('Start', end='', flush=True)\n"
        f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
        "print('ing')\n",
    )
    chat.wait_for(" │   Start")
    assert not any("Starting" in line for line in chat.screen.lines)

    gate.touch()
    chat.wait_for(" │   Starting")
    chat.wait_for(" ╰──● [1] ✔ done")

    assert chat.leave() == 0
    assert [line for line in chat.screen.all_lines if line.startswith(" │")] == [" │   Starting"]


def test_ctrl_c_ends_the_showing_of_collapsed_output(chat: ChatTerminal) -> None:
    chat.press("> for n in range(1_000_000): print(n)\r")
    chat.wait_for("✔ done")

    chat.press("/expand\r")
    chat.wait_for(" │   300")
    chat.press("\x03")

    chat.wait_for("[Cancelled]")
    assert not any("│   900000" in line for line in chat.screen.all_lines)


def test_hostile_output_does_not_break_the_frame_not_even_during_a_resize(
    chat: ChatTerminal, project: Path
) -> None:
    gate = project / "gate"
    chat.run(
        "import os, time\n"
        "print('\\x1b[2J\\x1b[H\\x1b]0;gone\\x07\\x1b[5Atop\\x1b[?1049hend')\n"
        "print('好' * 60 + 'e\\u0301' * 60)\n"
        "print('partial ' * 20, end='', flush=True)\n"
        f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
        "print('and done')\n",
    )
    chat.wait_for("partial")

    chat.resize(50, 24)
    gate.touch()
    chat.wait_for("and done")
    chat.wait_for("✔ done")

    output = [line for line in chat.screen.all_lines if line.startswith(" │")]
    assert output[0] == " │   topend"
    begin = chat.screen.all_lines.index(" │   topend")
    end = chat.screen.all_lines.index(" ╰──● [1] ✔ done")
    assert all(line.startswith(" │   ") for line in chat.screen.all_lines[begin:end])
    shown = "".join(line.removeprefix(" │   ") for line in output).replace(" ", "")
    assert shown.endswith("partial" * 20 + "anddone"), "rows are made for the size there is"
    assert b"\x1b[2J" not in chat.screen.received
    assert b"\x1b[?1049h" not in chat.screen.received


def test_without_color_there_is_none(open_chat: OpenChat) -> None:
    chat = open_chat(NO_COLOR="1")
    chat.press("> import sys; print('plain'); print('mark', file=sys.stderr)\r")

    chat.wait_for(" │ ! mark")

    assert b"\x1b[31m" not in chat.screen.received
    assert b"\x1b[2m" not in chat.screen.received


def test_an_idle_chat_does_nothing(chat: ChatTerminal) -> None:
    chat.press("! sleep 600 &\r> 1\r")
    chat.wait_for("✔ done", times=2)
    chat.wait_for(PROMPT, times=3)

    # A few timers run out once after a key was pressed; then nothing wakes up any more.
    deadline = time.monotonic() + LIMIT_SECONDS
    before = activity_of(chat)
    chat.read(QUIET_SECONDS)
    while (now := activity_of(chat)) != before:
        assert time.monotonic() < deadline, "the chat woke up again and again"
        before = now
        chat.read(QUIET_SECONDS)


def activity_of(chat: ChatTerminal) -> tuple[int, int]:
    """How often any thread has gone to sleep, and how much was written."""
    return voluntary_switches(chat.process.pid), len(chat.screen.received)


def voluntary_switches(pid: int) -> int:
    threads = Path(f"/proc/{pid}/task").iterdir()
    statuses = [(thread / "status").read_text() for thread in threads]
    return sum(int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0]) for status in statuses)


def test_what_threads_and_background_jobs_write_later_is_shown_as_theirs(
    chat: ChatTerminal, project: Path
) -> None:
    gate = project / "gate"
    chat.run(
        "import os, threading, time\n"
        "def wait():\n"
        f"    while not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
        "    print('from a', 'thread')\n"
        "threading.Thread(target=wait).start()\n"
    )
    chat.wait_for("✔ done")
    chat.press(f"! (while [ ! -e {gate} ]; do sleep 0.05; done; echo from a j''ob) &\r")
    chat.wait_for("✔ done", times=2)
    chat.press("> half a line")
    chat.wait_for("> half a line")
    gate.touch()

    chat.wait_for(" ┊   from a thread")
    chat.wait_for(" ┊   from a job")
    chat.wait_for(" ╭╌╌╌< late output of [1] exec(open(")
    chat.wait_for(" ╭╌╌╌< late output of [2] (while")
    chat.wait_for_last_line("You ▸ > half a line")


def test_late_output_does_not_wait_for_other_code_to_end(chat: ChatTerminal, project: Path) -> None:
    gate = project / "gate"
    chat.press(f"! (while [ ! -e {gate} ]; do sleep 0.05; done; echo from a j''ob) &\r")
    chat.wait_for("✔ done")
    chat.press("> import time; print('running'); time.sleep(600)\r")
    chat.wait_for(" │   running")

    gate.touch()

    chat.wait_for(" ┊   from a job")
    chat.wait_for_last_line("Ctrl-C stops")


def test_long_lines_are_cut_before_the_last_column_where_terminals_differ(
    chat: ChatTerminal,
) -> None:
    digits = "0123456789" * 30
    chat.press("> print('0123456789' * 30)\r")
    chat.wait_for("✔ done")

    rows = [line for line in chat.screen.lines if line.startswith(" │   ")]
    assert [len(row) for row in rows[:-1]] == [79] * (len(rows) - 1)
    assert "".join(row.removeprefix(" │   ") for row in rows) == digits
