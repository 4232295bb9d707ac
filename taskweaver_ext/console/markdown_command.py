"""`/markdown`: what is drawn as Markdown from now on, and one block drawn so once more."""

from __future__ import annotations

from taskweaver_ext.chat.requests import MODES
from taskweaver_ext.console.display import Display
from taskweaver_ext.console.markdown import Drawing
from taskweaver_ext.console.markdown_stream import MarkdownStream
from taskweaver_ext.console.rows import DIM, OUTPUT
from taskweaver_ext.errors import SessionError
from taskweaver_ext.session.blocks import Message, read_blocks
from taskweaver_ext.session.code_blocks import CodeBlock
from taskweaver_ext.session.saved import SavedSession
from taskweaver_ext.session.session import Session

MAX_ROWS = 2_000
"""More is not drawn at a time."""
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
    """Draw the output of one block as Markdown below all else, or the answer it stands in.

    Raises:
        SessionError: There is no such block, or it has written nothing.
    """
    block = session.code_blocks.get(number)
    transcript = display.transcript
    if block.is_proposed:
        transcript.show_answer(_answer_with(block, session))
    else:
        stream = MarkdownStream(
            Drawing(transcript.width - len(OUTPUT), transcript.painter.has_color, is_framed=True)
        )
        frame = transcript.painter.paint(OUTPUT, DIM)
        transcript.rows += [frame + row for row in _drawn(stream, number, session)]
    display.draw()


def _drawn(stream: MarkdownStream, number: int, session: Session) -> list[str]:
    rows: list[str] = []
    for line in session.code_blocks.lines(number):
        if len(rows) >= MAX_ROWS:
            return [*rows, f"⋯ /show {number} has the rest."]
        rows += stream.feed(line.text) if line.stream == "stdout" else ()
    rows += stream.close()
    if not rows:
        raise SessionError(f"Block {number} has written nothing that could be drawn.")
    return rows


def _answer_with(block: CodeBlock, session: Session) -> str:
    saved = SavedSession(session.session_dir)
    for one in read_blocks(saved.events):
        if isinstance(one, Message) and one.post_id == block.post_id:
            return one.text
    raise SessionError(f"The answer with block {block.number} is no longer kept.")
