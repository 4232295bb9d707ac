"""A program as vim is one: it has the whole terminal, in raw mode, and says which keys it hears.

`q` ends it with code 7. With `--rude` it puts nothing back.
"""

from __future__ import annotations

import os
import signal
import sys
import termios
import tty

ENTER = "\x1b[?1049h\x1b[?1000h\x1b[?1006h\x1b[?2004h\x1b[?25l\x1b[31m\x1b[2J\x1b[H"
LEAVE = "\x1b[?1000l\x1b[?1006l\x1b[?2004l\x1b[?25h\x1b[0m\x1b[?1049l"


def main() -> None:
    terminal = os.open("/dev/tty", os.O_RDWR)
    before = termios.tcgetattr(terminal)
    tty.setraw(terminal)
    is_in_front = os.tcgetpgrp(terminal) == os.getpgrp()
    columns, rows = os.get_terminal_size(terminal)

    def say(text: str) -> None:
        os.write(terminal, f"{text}\r\n".encode())

    os.write(terminal, ENTER.encode())
    say(f"full screen {columns}x{rows} front={is_in_front}")
    while (key := os.read(terminal, 1)) != b"q":
        if key == b"\x1a":  # as editors do it: by itself, with the terminal put back
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)
            os.kill(0, signal.SIGTSTP)
            tty.setraw(terminal)
            say("continued")
        else:
            say(f"key {key!r}")
    if "--rude" not in sys.argv:
        os.write(terminal, LEAVE.encode())
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
    sys.exit(7)


if __name__ == "__main__":
    main()
