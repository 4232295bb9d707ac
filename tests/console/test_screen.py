"""Rows on a terminal: finished ones stay, live ones are drawn over."""

from __future__ import annotations

import os
import pty
import termios
from collections.abc import Iterator

import pytest

from taskweaver_ext.console.rows import UnframedRow
from taskweaver_ext.console.screen import PlainScreen, TerminalScreen
from taskweaver_ext.console.terminal_settings import echo_off
from tests.support.emulated_terminal import EmulatedScreen


class Bench:
    """A screen of ours whose bytes go to an emulator."""

    def __init__(self) -> None:
        self.emulated = EmulatedScreen(30, 6)
        self._read, write = os.pipe()
        self.screen = TerminalScreen(write)
        self._write = write

    def update(self, finished: list[str], live: list[str]) -> bytes:
        self.screen.update(finished, live)
        os.write(self._write, b"\0")
        content = os.read(self._read, 1 << 20).removesuffix(b"\0")
        self.emulated.feed(content)
        return content

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()


def test_live_rows_are_replaced_and_finished_rows_stay(bench: Bench) -> None:
    bench.update(["one"], ["bar 10%", "status"])
    bench.update([], ["bar 20%", "status"])
    bench.update(["bar 100%"], ["status"])

    assert bench.emulated.lines == ["one", "bar 100%", "status"]

    bench.update(["end"], [])

    assert bench.emulated.lines == ["one", "bar 100%", "end"]


@pytest.mark.parametrize("length", [80, 81, 160, 161])
def test_a_row_without_a_frame_is_wrapped_by_the_terminal(bench: Bench, length: int) -> None:
    bench.emulated = EmulatedScreen(80, 10)
    bench.update(["one"], ["some bar", "status " * 5])
    path = "/" + "x" * (length - 1)

    bench.update([UnframedRow(path), "two"], ["status"])

    wrapped = [path[start : start + 80] for start in range(0, length, 80)]
    assert bench.emulated.lines == ["one", *wrapped, "two", "status"]


def test_output_taller_than_the_screen_is_in_the_scrollback(bench: Bench) -> None:
    for start in range(0, 100, 7):
        bench.update([f"row {n}" for n in range(start, min(100, start + 7))], ["live", "status"])
    bench.update([], [])

    assert bench.emulated.all_lines == [f"row {n}" for n in range(100)]


def test_live_rows_may_shrink_and_grow(bench: Bench) -> None:
    for count in (1, 4, 2, 5, 0, 3):
        bench.update([], [f"live {n}" for n in range(count)])

        assert bench.emulated.lines == ([f"live {n}" for n in range(count)] or [""])


def test_a_row_wider_than_we_think_cannot_push_the_others(bench: Bench) -> None:
    wide = "x" * 100

    bench.update([wide], [wide, "status"])
    bench.update([], [wide + "!", "status 2"])

    assert [line[:8] for line in bench.emulated.lines] == ["xxxxxxxx", "xxxxxxxx", "status 2"]


def test_what_stays_the_same_is_not_written_again(bench: Bench) -> None:
    bench.update([], ["long row that stays", "spinner 1"])

    assert bench.update([], ["long row that stays", "spinner 1"]) == b""
    assert b"stays" not in bench.update([], ["long row that stays", "spinner 2"])


def test_the_cursor_is_hidden_only_while_something_is_live(bench: Bench) -> None:
    bench.update(["a"], ["live"])
    assert not bench.emulated.has_cursor

    bench.update([], [])
    assert bench.emulated.has_cursor


def test_a_window_made_narrower_does_not_lose_finished_rows(bench: Bench) -> None:
    bench.update(["kept 1", "kept 2"], ["a live row of some length", "status"])

    bench.emulated.resize(12, 6)
    bench.update(["kept 3"], ["narrow", "status"])

    assert bench.emulated.lines == ["kept 1", "kept 2", "kept 3", "narrow", "status"]


def test_what_is_typed_meanwhile_does_not_appear_but_is_kept() -> None:
    ours, theirs = pty.openpty()
    saved = os.dup(0)
    os.dup2(theirs, 0)
    try:
        with echo_off(lambda suspend: suspend()):
            os.write(ours, b"typed")
            os.write(theirs, b"end")
            assert os.read(ours, 100) == b"end"
            assert os.read(0, 100) == b"typed"
    finally:
        os.dup2(saved, 0)
        for descriptor in (saved, ours, theirs):
            os.close(descriptor)


def test_a_pipe_gets_finished_rows_alone() -> None:
    read, write = os.pipe()

    PlainScreen(write).update(["one", "two"], ["live"])
    os.close(write)

    assert os.read(read, 100) == b"one\ntwo\n"
    os.close(read)


def test_frames_are_drawn_in_characters_that_the_terminal_has() -> None:
    read, write = os.pipe()

    PlainScreen(write, "latin-1").update([" ├─► [code] é 中", " ╰──● SUCCESS"], [])
    os.close(write)

    assert os.read(read, 100) == " +-> [code] é ?\n +--* SUCCESS\n".encode("latin-1")
    os.close(read)


def wrapped_anew(screen: EmulatedScreen, columns: int, rows: int) -> EmulatedScreen:
    """What a terminal that wraps long rows when it is narrowed shows then."""
    narrow = EmulatedScreen(columns, rows)
    cursor_row, _ = screen.cursor
    cursor_row_now = 0
    pieces: list[str] = []
    for number, line in enumerate(screen.lines, 1):
        if number == cursor_row:
            cursor_row_now = len(pieces) + 1
        pieces += [line[start : start + columns] for start in range(0, len(line) or 1, columns)]
    narrow.feed("\r\n".join(pieces).encode() + f"\x1b[{cursor_row_now};1H".encode())
    return narrow


@pytest.mark.parametrize("late_updates", [0, 1, 2])
def test_live_rows_that_a_narrower_terminal_has_wrapped_are_drawn_over(late_updates: int) -> None:
    ours, theirs = pty.openpty()
    try:
        termios.tcsetwinsize(theirs, (12, 80))
        screen = TerminalScreen(theirs)
        screen.update(["kept"], ["x" * 70, "好" * 20, "status"])
        emulated = EmulatedScreen(80, 12)
        emulated.feed(os.read(ours, 65536))
        assert emulated.cursor == (2, 1), "it waits where the live rows begin"

        emulated = wrapped_anew(emulated, 30, 12)
        for number in range(late_updates):  # before its new size reaches us
            screen.update([], ["x" * 70, "好" * 20, f"status {number}"])
            emulated.feed(os.read(ours, 65536))
        termios.tcsetwinsize(theirs, (12, 30))
        screen.update(["also kept"], ["narrow", "status"])
        emulated.feed(os.read(ours, 65536))

        assert emulated.lines == ["kept", "also kept", "narrow", "status"]
    finally:
        os.close(ours)
        os.close(theirs)


def test_live_rows_are_never_erased_from_the_corner_where_terminals_would_keep_them(
    bench: Bench,
) -> None:
    bench.update([], ["live"])

    content = bench.update([], [])

    assert content.index(b"\x1b[C") < content.index(b"\x1b[J")
    assert bench.emulated.lines == [""]
