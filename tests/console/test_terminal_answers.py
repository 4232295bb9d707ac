"""Answers of a terminal and what is typed are told apart, wherever they are split."""

from __future__ import annotations

import pytest

from taskweaver_ext.console.terminal_answers import TerminalAnswers

KITTY = "a\x1bP>|kitty(0.4)\x1b\\b\x1b_Gi=31;OK\x1b\\c\x1b[?62;4c\x1b[A"
ITERM = "x\x1bP>|iTerm2 3.5\x1b\\y\x1b]1337;ReportCellSize=16.0;8.0\x1b\\z\x1b[?62;4c\r"


@pytest.mark.parametrize(
    ("text", "typed", "protocol", "name"),
    [
        (KITTY, "abc\x1b[A", "kitty", "kitty(0.4)"),
        (ITERM, "xyz\r", "iterm2", "iTerm2 3.5"),
        ("\x1b_Gi=31;ENOTSUPPORTED\x1b\\q\x1b[?1;2c", "q", None, ""),
        ("\x1bP>|tmux 3.4\x1b\\\x1b[?1;2c", "", None, "tmux 3.4"),
    ],
)
def test_answers_are_heard_and_the_rest_was_typed(
    text: str, typed: str, protocol: str | None, name: str
) -> None:
    for size in range(2, len(text) + 1):
        answers = TerminalAnswers()
        # An answer is not split behind its ESC: that would be the key.
        pieces, rest = [], text
        while rest:
            end = size + 1 if rest[:size].endswith("\x1b") else size
            pieces.append(rest[:end])
            rest = rest[end:]
        heard = "".join(answers.feed(piece) for piece in pieces) + answers.close()

        assert heard == typed, size
        assert (answers.protocol, answers.name, answers.device_answers) == (protocol, name, 1)


def test_a_multiplexer_says_so() -> None:
    answers = TerminalAnswers()
    answers.feed("\x1bP>|tmux 3.4\x1b\\")

    assert answers.is_multiplexer


@pytest.mark.parametrize("keys", ["\x1b", "\x1b[A", "\x1bOP", "\x1b[200~a\x1b[201~", "\x1bb", "é"])
def test_keys_pass_at_once(keys: str) -> None:
    assert TerminalAnswers().feed(keys) == keys


def test_what_only_begins_like_an_answer_was_typed() -> None:
    answers = TerminalAnswers()

    assert answers.feed("\x1b_Gnot") == ""
    assert answers.feed(" an answer\r") == "\x1b_Gnot an answer\r"
    assert answers.feed("\x1b[?" + "1" * 1000) == "\x1b[?" + "1" * 1000
