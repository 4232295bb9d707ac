"""Markdown in a chat: answers while they come, and what code writes where a person wants it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.chat_terminal import ChatTerminal, OpenChat, run_piped
from tests.support.conversations import answer
from tests.support.model_server import ModelServer, ScriptedAnswer

REPLY = (
    "# Found\n\nIt is **the tide** at [home](https://example.com/x).\n\n"
    "| name | what |\n|---|---|\n| a | " + "long words " * 8 + "|\n\n- one\n- two\n\n"
    "```python\nprint('never run')\n```\n\x1b[2J\n"
)


@pytest.mark.parametrize("columns", [80, 40])
def test_an_answer_is_drawn_and_fits(project: Path, columns: int) -> None:
    with ModelServer([ScriptedAnswer(answer(REPLY))]) as server:
        settings = {"llm.api_base": server.openai_url, "llm.api_key": "k", "llm.max_retries": 0}
        (project / "taskweaver_config.json").write_text(json.dumps(settings))
        with ChatTerminal(project, columns=columns, rows=40) as chat:
            chat.press("what is it\r")
            chat.wait_for("print('never run')")
            chat.wait_for("tokens:")
            lines = chat.screen.all_lines

    start = lines.index("Found")
    assert lines[start + 1] == "═════"
    assert lines[start + 3].startswith("It is the tide at home")
    assert "• two" in lines
    assert not any("```" in line or "**" in line for line in lines[start:])
    assert lines.count("Found") == 1
    assert b"\x1b[2J" not in chat.screen.received
    assert b"\x1b[1mthe" in chat.screen.received


def test_what_code_prints_is_drawn_when_that_is_wanted(chat: ChatTerminal) -> None:
    text = r"# Title\n\n- a **b**\n"
    chat.press(f"> print('{text}')\r")
    chat.wait_for(" │   # Title")

    chat.press("/markdown 1\r")
    chat.wait_for(" │   ═════")
    chat.wait_for(" │   • a b")
    chat.press("/markdown python on\r")
    chat.wait_for("Markdown: agent on, python on, shell off")
    chat.press(f"> print('{text}')\r")
    chat.wait_for(" │   ═════", times=2)
    chat.press("! printf '# plain'\r")
    chat.wait_for(" │   # plain")
    chat.press("/markdown shell on\r/markdown python off\r! printf '# drawn'\r")
    chat.wait_for(" │   drawn")

    chat.press("/markdown 99\r")
    chat.wait_for("There is no block 99")
    chat.press("/markdown nonsense\r")
    chat.wait_for("/markdown [agent|python|shell] [on|off]")


def test_settings_say_what_is_drawn_at_the_start(project: Path, open_chat: OpenChat) -> None:
    settings = {"console.markdown_shell": True, "console.markdown_agent": False}
    (project / "taskweaver_config.json").write_text(json.dumps(settings))
    chat = open_chat(columns=40)

    chat.press("/markdown\r")

    chat.wait_for("Markdown: agent off, python off, shell")
    chat.press("! printf -- '- item'\r")
    chat.wait_for(" │   • item")


def test_displays_are_text_that_can_be_read(chat: ChatTerminal) -> None:
    chat.run(
        "from IPython.display import HTML, JSON, Latex, Markdown, display\n"
        "class Thing:\n"
        "    def _repr_html_(self): return '<p>only <b>html</b></p>'\n"
        "class Other:\n"
        "    def _repr_markdown_(self): return 'only `markdown`'\n"
        "class Formula:\n"
        "    def _repr_latex_(self): return r'$\\alpha^2$'\n"
        "display(Thing(), Other(), Formula(), JSON({'a': [1, 2]}), Latex('x_1'))\n"
    )
    chat.wait_for("✔ done")

    lines = chat.screen.all_lines
    for line in ("only html", "only markdown", "α²", "{1 key}", "  a: [2 items]", "x₁"):
        assert f" │   {line}" in lines
    assert chat.count("object at 0x") == 0


def test_through_a_pipe_what_is_printed_stays_as_it_is(project: Path) -> None:
    done = run_piped(project, "/markdown python on\n> print('# as it is')\n")

    assert "# as it is" in done.stdout
