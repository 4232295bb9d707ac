"""Pictures in a chat: on terminals that show them, on those that do not, and in a real tmux."""

from __future__ import annotations

import shutil
import struct
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from taskweaver_ext.console.png import read_png
from tests.support.chat_terminal import CHAT, PROMPT, ChatTerminal, environ, run_piped
from tests.support.executions import wait_until
from tests.support.hostile_text import EVIL
from tests.support.picture_terminal import (
    DEVICE,
    ITERM,
    ITERM_QUERY,
    KITTY,
    KITTY_QUERY,
    TMUX,
    PictureTerminal,
)

RED = (200, 10, 10)
SHOW = "> from IPython.display import Image, display; display(Image({path!r}))\r"


def png_of(width: int, height: int, color: tuple[int, int, int] = RED) -> bytes:
    def chunk(name: bytes, piece: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(name + piece))
        return struct.pack(">I", len(piece)) + name + piece + check

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + bytes(color) * width) * height)
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            chunk(b"tEXt", b"Comment\0kept from terminals"),
            chunk(b"IDAT", rows),
            chunk(b"IEND", b""),
        ]
    )


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "p.png"
    path.write_bytes(png_of(320, 160))
    return path


@contextmanager
def shown(terminal: ChatTerminal, picture: Path) -> Iterator[ChatTerminal]:
    with terminal as chat:
        chat.press(SHOW.format(path=str(picture)))
        chat.wait_for("✔ done")
        yield chat


def framed_rows(chat: ChatTerminal) -> list[str]:
    return [line for line in chat.screen.all_lines if line.startswith(" │")]


@pytest.mark.parametrize("columns", [80, 40])
def test_a_terminal_with_kittys_protocol_gets_the_picture(
    project: Path, picture: Path, columns: int
) -> None:
    terminal = PictureTerminal(project, KITTY, columns=columns)
    with shown(terminal, picture):
        [(keys, content)] = terminal.kitty_pictures
        rows = framed_rows(terminal)

    place = dict(one.split("=") for one in keys.split(","))
    assert (place["f"], place["q"], place["C"]) == ("100", "2", "1")
    assert int(place["c"]) <= columns - 6
    assert int(place["r"]) == int(place["c"]) // 4
    png = read_png(content)
    assert png is not None
    assert (png.width, png.height) == (320, 160)
    assert b"Comment" not in content
    assert len([row for row in rows if row == " │"]) == int(place["r"])
    assert "▀" not in "".join(rows)
    assert terminal.count(PROMPT) >= 1


def test_a_terminal_with_iterms_protocol_gets_the_picture(project: Path, picture: Path) -> None:
    terminal = PictureTerminal(project, ITERM)
    with shown(terminal, picture):
        [(keys, content)] = terminal.iterm_pictures

    assert "inline=1" in keys
    assert "doNotMoveCursor=1" in keys
    assert read_png(content) is not None
    assert terminal.kitty_pictures == []


def test_a_terminal_that_shows_no_pictures_gets_blocks_in_two_colors(
    project: Path, picture: Path
) -> None:
    terminal = PictureTerminal(project, DEVICE, COLORTERM="truecolor")
    with shown(terminal, picture):
        rows = framed_rows(terminal)

    assert KITTY_QUERY in terminal.asked
    assert rows.count(" │   " + "▀" * 40) == 10
    assert b"38;2;200;10;10;48;2;200;10;10" in terminal.raw
    assert terminal.kitty_pictures == terminal.iterm_pictures == []


def test_a_multiplexer_is_not_asked_for_pictures_and_gets_blocks(
    project: Path, picture: Path
) -> None:
    terminal = PictureTerminal(project, TMUX)
    with shown(terminal, picture):
        rows = framed_rows(terminal)

    assert KITTY_QUERY not in terminal.asked
    assert ITERM_QUERY not in terminal.asked
    assert b"\x1b_" not in terminal.raw
    assert " │   " + "▀" * 40 in rows
    assert b"\x1b[38;5;160;48;5;160m" in terminal.raw


def test_a_terminal_that_answers_nothing_gets_blocks_and_one_prompt(
    project: Path, picture: Path
) -> None:
    terminal = PictureTerminal(project, {})
    with shown(terminal, picture):
        assert terminal.asked.count(KITTY_QUERY) == 0
        assert any("▀" * 40 in row for row in framed_rows(terminal))


def test_answers_that_come_late_are_not_typed(project: Path) -> None:
    with PictureTerminal(project, {**KITTY, **TMUX}, delay=0.7) as terminal:
        terminal.press("> print('on', 'time')\r")
        terminal.wait_for(" │   on time")
        terminal.wait_for_last_line(PROMPT)

        lines = "\n".join(terminal.screen.all_lines)

    assert "62;22c" not in lines
    assert ">|tmux" not in lines


def test_what_is_typed_while_the_terminal_is_asked_is_not_lost(project: Path) -> None:
    # An answer that comes with keys around it, as when someone types without looking.
    answers = {**KITTY, KITTY_QUERY: "> print('not' \x1b_Gi=31;OK\x1b\\ + ' lost')\r"}
    with PictureTerminal(project, answers) as terminal:
        terminal.wait_for(" │   not lost")

        assert terminal.count("Gi=31") == 0


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "vt100"}])
def test_without_colors_a_picture_is_its_path(
    project: Path, picture: Path, variables: dict[str, str]
) -> None:
    with shown(
        ChatTerminal(project, columns=80, rows=24, first_sight=PROMPT, **variables), picture
    ) as chat:
        lines = chat.screen.all_lines

    assert not any("▀" in line for line in lines)
    assert any("[Picture]" in line for line in lines)


@pytest.mark.parametrize("columns", [80, 40])
def test_the_path_of_a_picture_is_never_cut(project: Path, picture: Path, columns: int) -> None:
    with shown(ChatTerminal(project, columns=columns), picture) as chat:
        lines = chat.screen.all_lines
    first = lines.index(" │   [Picture]")
    rows = lines[first + 1 :]
    path = "".join(rows[: next(n for n, row in enumerate(rows) if row.startswith(" │"))])

    assert Path(path).read_bytes() == picture.read_bytes()


def test_on_a_terminal_that_can_only_print_a_picture_is_its_path(
    project: Path, picture: Path
) -> None:
    with ChatTerminal(project, first_sight="You >", TERM="dumb") as chat:
        chat.press(SHOW.format(path=str(picture)))
        chat.wait_for("[Picture] /")

    assert b"\x1b" not in chat.screen.received
    assert "▀" not in "".join(chat.screen.all_lines)


def test_through_a_pipe_a_picture_is_its_path(project: Path, picture: Path) -> None:
    done = run_piped(project, SHOW.format(path=str(picture)).replace("\r", "\n"))

    assert "▀" not in done.stdout
    assert "\x1b" not in done.stdout
    assert "[Picture] /" in done.stdout


@pytest.mark.parametrize("name", ["x\x1b]0;t\x07.png", "a\u202eb.png", EVIL.replace("/", "")[:60]])
def test_a_hostile_name_of_a_picture_drives_nothing(project: Path, name: str) -> None:
    terminal = PictureTerminal(project, KITTY)
    with terminal as chat:
        code = (
            "from IPython.display import display\n"
            f"display({{'image/png': 'AAAA', 'text/plain': {name!r}}}, raw=True)\n"
            f"print({name!r})\n"
        )
        chat.run(code)
        chat.wait_for("✔ done")

    assert terminal.kitty_pictures == []
    assert b"\x1b]0;" not in terminal.raw
    assert "\u202e".encode() not in terminal.raw


def test_a_figure_that_is_drawn_again_and_again_is_replaced_in_place(
    project: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    paths = []
    for number, color in enumerate([(200, 10, 10), (10, 200, 10), (10, 10, 200)]):
        paths.append(str(tmp_path / f"{number}.png"))
        Path(paths[-1]).write_bytes(png_of(64, 64, color))
    with ChatTerminal(project, COLORTERM="truecolor") as chat:
        chat.run(
            "import os, time\n"
            "from IPython.display import Image, clear_output, display\n"
            f"for path in {paths!r}:\n"
            "    clear_output(wait=True)\n"
            "    display(Image(path))\n"
            f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
        )
        chat.wait_until(lambda: b"48;2;10;10;200" in chat.screen.received, "the last figure")
        gate.touch()
        chat.wait_for("✔ done")

        assert chat.count("▀" * 8) == 4


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
def test_in_a_real_tmux_there_are_blocks_and_its_title_stays(project: Path, picture: Path) -> None:
    tmux = ["tmux", "-S", str(project / "socket")]
    variables = environ(project.parent)
    start = [*tmux, "-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "40"]
    subprocess.run([*start, *CHAT], cwd=project, env=variables, check=True)
    try:

        def pane(*options: str) -> str:
            done = subprocess.run(
                [*tmux, "capture-pane", "-p", *options], capture_output=True, text=True, check=False
            )
            return done.stdout

        def title() -> str:
            return subprocess.check_output([*tmux, "display-message", "-p", "#T"], text=True)

        wait_until(lambda: PROMPT in pane())
        before = title()
        keys = SHOW.format(path=str(picture)).removesuffix("\r")
        subprocess.run([*tmux, "send-keys", "-l", keys], check=True)
        subprocess.run([*tmux, "send-keys", "Enter"], check=True)
        wait_until(lambda: "✔ done" in pane())

        assert pane().count(" │   " + "▀" * 40) == 10
        assert "Gi=31" not in pane("-S", "-")
        assert "1337" not in pane("-S", "-")
        assert title() == before
        assert "48;5;160" in pane("-e")
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)
