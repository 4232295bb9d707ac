"""`/markdown`: what is drawn as Markdown from now on, and one block drawn so once more."""

from __future__ import annotations

from taskweaver_ext.chat.requests import MODES
from taskweaver_ext.console.display import Display
from taskweaver_ext.console.markdown import Drawing
from taskweaver_ext.console.rows import OUTPUT, Painter
from taskweaver_ext.errors import SessionError
from taskweaver_ext.session.blocks import Cell, TextOutput, read_blocks
from taskweaver_ext.session.saved import SavedSession
from taskweaver_ext.session.session import Session
from taskweaver_ext.text.terminal import strip_terminal

USAGE = "/markdown [agent|python|shell] [on|off], or /markdown NUMBER for one block of code."


def set_markdown(arguments: str, display: Display) -> bool:
    """Change what is drawn as Markdown, and say what is; False when that is not what is asked."""
    use = display.transcript.markdown
    *names, state = arguments.split() or ["?"]
    if state in MODES and not names:
        display.say(f"Markdown: {state} {'on' if getattr(use, state) else 'off'}")
        return True
    if state not in ("on", "off", "?") or any(name not in MODES for name in names):
        return False
    for name in (names or MODES) if state != "?" else ():
        setattr(use, name, state == "on")
    display.say(f"Markdown: {use.describe()}")
    return True


def redraw_as_markdown(number: int, session: Session, display: Display) -> None:
    """Draw the output of one block as Markdown, below all else.

    Raises:
        SessionError: There is no such block, or it has written nothing.
    """
    cell = _find_cell(session, number)
    text = "".join(
        output.text
        for output in cell.outputs
        if isinstance(output, TextOutput) and output.stream == "stdout"
    )
    if not text.strip():
        raise SessionError(f"Block {number} has written nothing that could be drawn.")
    transcript = display.transcript
    painter: Painter = transcript.painter
    drawing = Drawing(transcript.width - len(OUTPUT), painter.has_color, is_framed=True)
    frame = painter.paint(OUTPUT, "2")
    transcript.rows += [frame + row for row in drawing.rows(strip_terminal(text).strip("\n"))]
    display.draw()


def _find_cell(session: Session, number: int) -> Cell:
    saved = SavedSession(session.session_dir)
    last = 0
    for block in read_blocks(saved.events):
        if isinstance(block, Cell):
            last = block.number
            if last == number:
                return block
    there = f"The last is {last}." if last else "There is none yet."
    raise SessionError(f"There is no block {number}. {there}")
