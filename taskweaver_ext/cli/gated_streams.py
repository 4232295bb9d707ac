"""The door to a terminal for all that is said line by line: errors, lists, logs, tracebacks.

The rule: a terminal hears of us through this module, through `Screen` (`cli/screen.py`, what
programs write), or through the rows of a chat (`console/screen.py`, `console/prompt.py`), and
through nothing else. Each lets text and plain colours pass. Here `sys.stdout` and `sys.stderr`
themselves are the door, so that click, logging, warnings and Python's own tracebacks go
through it without knowing.
"""

from __future__ import annotations

import io
import sys
from typing import TextIO

from taskweaver_ext.text.terminal import message_text


class GatedTerminal(io.TextIOWrapper):
    """A terminal's stream that writes text and nothing that could drive the terminal.

    A carriage return may begin what is written at once: our own progress is drawn in one line.
    """

    def __init__(self, terminal: TextIO) -> None:
        super().__init__(terminal.buffer, terminal.encoding, "replace", line_buffering=True)

    def write(self, text: str) -> int:
        """Write what may be shown of a text."""
        is_redrawn = text.startswith("\r") and not text.startswith("\r\n")
        super().write(("\r" if is_redrawn else "") + message_text(text[is_redrawn:]))
        return len(text)


def gate_terminals() -> None:
    """Put the gate before our standard streams where they are terminals."""
    for name in ("stdout", "stderr"):
        stream: TextIO = getattr(sys, name)
        if stream.isatty() and not isinstance(stream, GatedTerminal):
            stream.flush()
            setattr(sys, name, GatedTerminal(stream))
