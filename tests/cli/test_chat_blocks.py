"""Numbered blocks of code in the chat: their state, and what can be done with them."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.chat_terminal import PROMPT, ChatTerminal, OpenChat, environ
from tests.support.conversations import answer, code, plan
from tests.support.emulated_terminal import EmulatedTerminal
from tests.support.model_server import ModelServer, ScriptedAnswer

PROPOSAL = "You could also try:\n\n```python\nprint('pro' + 'posed')\n```\n"
ALT_UP, ALT_DOWN = "\x1b[1;3A", "\x1b[1;3B"


@contextmanager
def chatting(
    project: Path, *script: str, columns: int = 80, rows: int = 24
) -> Iterator[ChatTerminal]:
    """A chat with a model that follows a script."""
    with ModelServer([ScriptedAnswer(one) for one in script]) as server:
        settings = {"llm.api_base": server.openai_url, "llm.api_key": "k", "llm.max_retries": 0}
        (project / "taskweaver_config.json").write_text(json.dumps(settings))
        with ChatTerminal(project, columns=columns, rows=rows) as chat:
            yield chat


def lines_of(chat: ChatTerminal) -> list[str]:
    return [line.rstrip() for line in chat.screen.all_lines]


@pytest.mark.parametrize("columns", [80, 40])
def test_a_simple_question_reads_as_code_output_and_answer(project: Path, columns: int) -> None:
    script = [
        plan("Compute it.", steps="1. compute\n2. report to the User"),
        code("x = 6 * 7\nprint(x)"),
        answer(PROPOSAL),
    ]
    with chatting(project, *script, columns=columns) as chat:
        chat.press("what is 6 * 7?\r")
        chat.wait_for("[2] ○ not run")
        chat.wait_for("tokens")

        lines = lines_of(chat)
        start = lines.index("You ▸ what is 6 * 7?")
        assert lines[start + 1].startswith(" ╶─ Planner → CodeInterpreter: Com")
        assert lines[start + 2 : start + 9] == [
            " ╭─► [1]",
            " │   x = 6 * 7",
            " │   print(x)",
            " ├─► [output]",
            " │   42",
            " ╰──● [1] ✔ done",
            "",
        ]
        assert not any("so be it" in line or "because" in line for line in lines)

        chat.press("/run 2\r")
        chat.wait_for("[3] ✔ done (again: 2)")
        assert " │   proposed" in lines_of(chat)


def test_verbose_shows_what_roles_plan_and_think(project: Path) -> None:
    script = [plan("Compute it."), code("print(42)"), answer("Done.")]
    with chatting(project, *script, rows=40) as chat:
        chat.press("/verbose on\r")
        chat.wait_for("From now on you see all")
        chat.press("go\r")
        chat.wait_for("sending message to User")
        for row in (" ╭───< Planner >", " ├─► [thought] so be it", " ├─► [1] ✔ done"):
            assert row in lines_of(chat)


@pytest.mark.parametrize("columns", [80, 40])
def test_each_run_shows_its_number_and_how_it_ended(open_chat: OpenChat, columns: int) -> None:
    chat = open_chat(columns=columns)
    for line, end in (
        ("> print('fine')", "[1] ✔ done"),
        ("> 1/0", "[2] ✖ failed"),
        ("! false", "[3] ✖ failed"),
        ("> pass", "[4] ✔ done"),
    ):
        chat.press(f"{line}\r")
        chat.wait_for(f" ╰──● {end}")
    chat.press("> import time; print('begun'); time.sleep(600)\r")
    chat.wait_for(" │   begun")
    chat.wait_for("[5] running")
    chat.press("\x03")
    chat.wait_for(" ╰──● [5] ■ cancelled")

    rows = lines_of(chat)
    assert any(row.startswith(" │ ! ZeroDivisionError") for row in rows), "errors are set apart"
    passed = rows.index(" ╰──● [4] ✔ done")
    assert rows[passed - 1] == "You ▸ > pass", "nothing where there is no output"


def test_signs_survive_without_color_and_on_ascii_terminals(open_chat: OpenChat) -> None:
    latin = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    chat = open_chat(NO_COLOR="1", first_sight="You >", **latin)
    chat.press("> 1\r")
    chat.wait_for(" +--* [1] + done")
    chat.press("> 1/0\r")

    chat.wait_for(" +--* [2] x failed")
    assert b"\x1b[32m" not in chat.screen.received
    assert b"\x1b[31m" not in chat.screen.received


def test_a_dumb_terminal_says_how_code_ended_and_shows_blocks(project: Path) -> None:
    with EmulatedTerminal(
        [sys.executable, "-m", "taskweaver_ext.cli", "chat"],
        cwd=project,
        environ=environ(project.parent, TERM="dumb"),
        columns=80,
        rows=40,
    ) as chat:
        chat.wait_for("You >")
        chat.press("> for n in range(30): print('row', n)\r")
        chat.wait_for("[1] ✔ done")
        assert sum(line.startswith("row ") for line in chat.screen.all_lines) == 30
        chat.press("/find row 2\r")
        chat.wait_for(" [1]    30: row 29")
        chat.press("/edit 1\r")
        chat.wait_for("Lines cannot be edited here")
        chat.press("/copy 1\r")
        chat.wait_for("to be copied from here")
        assert b"\x1b]52" not in chat.screen.received


def test_of_long_output_a_preview_stays_and_the_rest_is_found_and_expanded(
    chat: ChatTerminal,
) -> None:
    chat.press("> for n in range(5000): print('row', n)\r")
    chat.wait_for("[1] ✔ done")
    rows = [line for line in lines_of(chat) if line.startswith(" │")]
    assert rows[:10] == [f" │   row {n}" for n in range(10)]
    assert rows[10] == " │   ⋯ 4,980 more lines: /expand 1"
    assert rows[11:] == [f" │   row {n}" for n in range(4990, 5000)]

    chat.press("/find ROW\r")
    chat.wait_for("'ROW' was not found")
    chat.press("/find 1 row 2500\r")
    chat.wait_for(" [1] 2,501: row 2500")
    chat.press("/find row 25\r")
    chat.wait_for("61 more lines")
    chat.press("/expand\r")
    chat.wait_until(lambda: lines_of(chat).count(" │   row 4999") == 2, "the last line again")
    assert " │   row 2500" in lines_of(chat)
    chat.press("/expand 7\r")
    chat.wait_for("There is no block 7 in this session; the only one is 1.")


def test_a_block_is_edited_in_the_input_and_runs_under_a_new_number(chat: ChatTerminal) -> None:
    chat.press("! echo one tw''o\r")
    chat.wait_for("[1] ✔ done")
    chat.press("> for n in range(2):\rprint('n', n)\r\r")
    chat.wait_for("[2] ✔ done")

    chat.press("/edit 1\r")
    chat.wait_for_last_line("You ▸ ! echo one tw''o")
    chat.press(" three\r")
    chat.wait_for(" │   one two three")
    chat.wait_for("[3] ✔ done")
    chat.press("/edit 2\r")
    chat.wait_for("You ▸ > for n in range(2):", times=2)
    chat.press("\r\r")
    chat.wait_for("[4] ✔ done")
    assert lines_of(chat).count(" │   n 1") == 2


def test_a_block_is_edited_in_the_persons_editor(open_chat: OpenChat, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text(
        "#!/bin/sh\n[ -t 0 ] && stty -a | grep -q ' echo ' && echo EDITING\n"
        "case $1 in *.py) sed -i s/before/after/ $1;; esac\n"
    )
    editor.chmod(0o755)
    chat = open_chat(EDITOR=str(editor))
    chat.press("> print('bef' + 'ore', 'before'.upper())\r")
    chat.wait_for("[1] ✔ done")

    chat.press("/edit!\r")

    chat.wait_for("EDITING")
    chat.wait_for_last_line("You ▸ > print('bef' + 'ore', 'after'.upper())")
    chat.press("\r")
    chat.wait_for(" │   before AFTER")


def test_alt_up_and_down_walk_through_blocks_and_back_to_what_was_typed(
    chat: ChatTerminal,
) -> None:
    chat.press("> first = 1\r")
    chat.wait_for("[1] ✔ done")
    chat.press("! true\r")
    chat.wait_for("[2] ✔ done")

    chat.press("half a line")
    chat.wait_for_last_line("You ▸ half a line")
    chat.press(ALT_UP)
    chat.wait_for_last_line("You ▸ ! true")
    chat.press(ALT_UP)
    chat.wait_for_last_line("You ▸ > first = 1")
    chat.press(ALT_UP)
    chat.press(ALT_DOWN)
    chat.wait_for_last_line("You ▸ ! true")
    chat.press(ALT_DOWN)
    chat.wait_for_last_line("You ▸ half a line")


def test_a_copied_block_goes_to_the_clipboard_in_a_safe_form(chat: ChatTerminal) -> None:
    chat.press("> text = 'a\\x1bb'\r")
    chat.wait_for("[1] ✔ done")

    chat.press("/copy 1\r")

    chat.wait_for("was sent to the clipboard (1 line)")
    [sent] = re.findall(rb"\x1b\]52;c;([A-Za-z0-9+/=]*)\x07", chat.screen.received)
    assert base64.b64decode(sent).decode() == "text = 'a\\x1bb'"


def test_a_block_is_shown_with_its_state_also_in_a_session_of_another_day(
    project: Path, open_chat: OpenChat
) -> None:
    first = open_chat()
    first.press("> print('kept', 'output')\r")
    first.wait_for("[1] ✔ done")
    first.leave()
    [session_id] = re.findall(r"--resume (\S+)", " ".join(lines_of(first)))

    with ChatTerminal(project, "--resume", session_id) as second:
        second.wait_for(" ╰──● [1] ✔ done")
        second.press("/show\r")
        second.wait_for("[1] ✔ done · by you")
        second.press("/run 1\r")
        second.wait_for("[2] ✔ done (again: 1)")
        second.press("/run nonsense\r")
        second.wait_for("/run [NUMBER] runs a block of code again.")


def test_help_fits_one_screen(chat: ChatTerminal) -> None:
    chat.press("/clear\r")
    chat.press("/help\r")
    chat.wait_for("/help COMMAND says more")
    chat.wait_for(PROMPT, times=1)

    screen = chat.screen.lines
    assert "You ▸ /help" in screen, "the whole of it is on 24 rows"
    assert not any("…" in line for line in screen)
    chat.press("/help export\r")
    chat.wait_for("/export [--force] FILE: as .ipynb")


def test_an_answers_block_offers_only_what_can_be_done_with_it(project: Path) -> None:
    blocks = "```json\n{}\n```\n\n```js\n1\n```\n\n```bash\nls\n```\n"
    with chatting(project, answer(blocks)) as chat:
        chat.press("show me\r")
        chat.wait_for("tokens")

        assert [line for line in lines_of(chat) if "not run" in line] == [
            " [1] ○ not run: /copy 1  json: {}",
            " [2] ○ not run: /run 2, /copy 2  javascript: 1",
            " [3] ○ not run: /run 3, /edit 3  bash: ls",
        ]


def test_a_block_without_output_is_shown_without_a_heading_for_it(open_chat: OpenChat) -> None:
    chat = open_chat()
    for code_of_two_lines in ("x = 1\x1b\ry = 2\r", "x = 3\x1b\rprint('x', x)\r"):
        chat.press(f"> {code_of_two_lines}")
        chat.wait_for_last_line(PROMPT)
    chat.press("/show 1\r")
    chat.wait_for("[1] ✔ done · by you")
    chat.press("/show 2\r")
    chat.wait_for("[2] ✔ done · by you")

    lines = lines_of(chat)
    assert lines[lines.index(" ╰──● [1] ✔ done · by you") - 1] == " │   y = 2"
    end = lines.index(" ╰──● [2] ✔ done · by you")
    assert lines[end - 2 : end] == [" ├─► [output]", " │   x 3"]


def test_what_is_said_after_a_resize_has_the_new_width(open_chat: OpenChat) -> None:
    chat = open_chat(columns=40, rows=50)
    chat.resize(80, 50)
    chat.press("/help\r")
    chat.wait_for("Blocks of code are known")

    assert any(line.startswith("/run ") and " /load " in line for line in lines_of(chat))


def test_a_session_that_is_continued_shows_what_was_typed_as_it_was(
    open_chat: OpenChat, project: Path
) -> None:
    chat = open_chat()
    chat.press("> def f():\rreturn 1\r\r")
    chat.wait_for("[1] ✔ done")
    chat.press("!! true\r")
    chat.wait_for("[2] ✔ done")
    for number in (3, 4):
        chat.wait_for_last_line(PROMPT)
        chat.press(f"/run {number - 2}\r")
        chat.wait_for(f"[{number}] ✔ done")
    assert chat.leave() == 0
    resumed = open_chat("--resume", session_id := _session_id(chat), rows=50)
    resumed.wait_for_last_line(PROMPT)

    lines = lines_of(resumed)
    assert any(line.startswith("1 earlier request:") for line in lines)
    assert f"sessions show {session_id}" in "".join(resumed.screen.all_lines)
    assert "You ▸ !! true" in lines
    start = lines.index("You ▸ > def f():")
    assert lines[start + 1] == "      …     return 1"


def _session_id(chat: ChatTerminal) -> str:
    return "".join(chat.screen.all_lines).rpartition("--resume ")[2].strip()
