"""Completions while a person types, and help on names, on terminals of several sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.chat_terminal import ChatTerminal, OpenChat, run_piped


@pytest.mark.parametrize("columns", [80, 40])
def test_names_of_the_kernel_are_offered_while_one_types(open_chat: OpenChat, columns: int) -> None:
    chat = open_chat(columns=columns)
    chat.press("> very_special_name, very_strange_name = 1, 2\r")
    chat.wait_for("✔ done")

    chat.press("> very_s")

    chat.wait_for("very_strange_name ")  # in the menu: nobody has pressed Tab
    chat.press("p\t")
    chat.wait_until(lambda: "You ▸ > very_special_name" in chat.screen.lines, "the name")
    chat.press(" + 41\r")
    chat.wait_for(" │   42")
    offered = [line for line in chat.screen.lines if line.strip().startswith("very_")]
    assert not offered  # the menu is gone
    assert any("✔ done" in line for line in chat.screen.lines)  # and no output with it


def test_commands_and_what_they_take_are_offered_and_talk_is_not_disturbed(
    chat: ChatTerminal,
) -> None:
    chat.press("/mo")
    chat.wait_for("what plain lines are")
    chat.press("de ")
    chat.wait_until(lambda: "python" in map(str.strip, chat.screen.lines), "the modes")
    chat.press("\x03please print")

    chat.wait_for("please print")
    assert not any("print(" in line for line in chat.screen.lines)


def test_tab_before_the_kernel_is_there_starts_it(chat: ChatTerminal) -> None:
    chat.press("> zip_longest = 1; zip_lo\t")

    chat.wait_for("zip_longest = 1; zip_longest")


def test_a_line_can_be_sent_while_completions_are_looked_for(chat: ChatTerminal) -> None:
    chat.press("> print(6 * 7)\r")  # the kernel that would complete it is being started

    chat.wait_for(" │   42")


@pytest.mark.parametrize("columns", [80, 40])
def test_help_shows_how_something_is_called_and_where_it_is_from(
    open_chat: OpenChat, columns: int
) -> None:
    chat = open_chat(columns=columns)
    chat.press("> import textwrap\r")
    chat.wait_for("✔ done")

    chat.press("> textwrap.dedent?\r")
    chat.wait_for("textwrap.dedent(text)")
    chat.wait_for("Remove any common leading")
    chat.wait_for("File /")
    chat.press("> ?len\r")
    chat.wait_for("len(obj)")
    chat.press("/mode python\r")
    chat.wait_for(">>>")
    chat.press("textwrap.dedent??\r")
    chat.wait_for("def dedent(text):")


def test_help_works_through_pipes(project: Path) -> None:
    done = run_piped(project, "> len?\n> import textwrap\n> textwrap.dedent??\n")

    assert "len(obj)" in done.stderr + done.stdout
    assert "def dedent(text):" in done.stderr + done.stdout
    assert "textwrap.py, line " in done.stderr + done.stdout
