"""Commands about numbered blocks of code: run, edit, copy, show, expand, find.

All of them read the session's record, so that blocks of another day, or of another process, are
as near as those on the screen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from taskweaver_ext.chat.requests import input_line
from taskweaver_ext.console.block_status import block_label, status_text
from taskweaver_ext.console.command_words import UsageError
from taskweaver_ext.console.editor import edit_outside
from taskweaver_ext.console.output_block import (
    FRAMES,
    OWN_PREVIEW_LINES,
    OutputBlock,
    framed_output,
)
from taskweaver_ext.console.request_runner import RequestRunner
from taskweaver_ext.console.rows import DIM, YELLOW, clip
from taskweaver_ext.session.blocks import TERMINAL
from taskweaver_ext.session.code_blocks import CodeBlock, FoundLine
from taskweaver_ext.text.terminal import CutLine

MAX_COPIED_BYTES = 50_000
"""What terminals take for the clipboard at once, at least."""
_BEFORE_MATCH = 20
"""How much of a long line is shown before what was found in it."""


class BlockCommands:
    """Does what a person asks for with a block's number, on the thread that owns the terminal."""

    def __init__(self, runner: RequestRunner, prefill: Callable[[str], bool]) -> None:
        """Prepare.

        Args:
            prefill: Lets the next line begin with a text; False where lines cannot be edited.
        """
        self._runner = runner
        self._display = runner.display
        self._prefill = prefill

    def run(self, arguments: str) -> None:
        """Run a block again, as the person's own code."""
        block = self._block(arguments, "/run [NUMBER] runs a block of code again.")
        if block.language == TERMINAL:
            self._runner.run_in_terminal(block.code)
            return
        transcript = self._display.transcript
        transcript.show_code(f"{block_label(block.number)} again", block.language, block.code)
        self._display.draw()
        self._runner.run_code(block.language, block.code, repeats=block.number)

    def edit(self, arguments: str) -> None:
        """Let the next line begin with a block's code."""
        block = self._block(arguments, "/edit [NUMBER] opens a block of code in the input.")
        self._begin_line(block, block.code)

    def edit_outside(self, arguments: str) -> None:
        """Let the person edit a block in their editor; what comes of it begins the next line."""
        block = self._block(arguments, "/edit! [NUMBER] opens a block of code in $EDITOR.")
        self._require_line(block)
        if self._runner.terminal_jobs.lend is None:
            raise UsageError("There is no terminal for an editor here. /show prints a block.")
        code = edit_outside(block.code, block.language, self._runner.terminal_jobs, self._display)
        if not code.strip():
            self._display.say("Nothing is left of it.", color=YELLOW)
        else:
            self._begin_line(block, code.rstrip("\n"))

    def copy(self, arguments: str) -> None:
        """Put a block's code into the clipboard, or where it can be copied from."""
        block = self._block(arguments, "/copy [NUMBER] copies a block of code.")
        is_small = len(block.code.encode(errors="replace")) <= MAX_COPIED_BYTES
        if is_small and self._display.copy(block.code):
            self._display.say(
                f"Block {block.number} was sent to the clipboard ({_lines(block.code)})."
                " A terminal that does not allow that ignores it: /show prints the block."
            )
            return
        self._display.say(f"Block {block.number}, to be copied from here:", color=DIM)
        self._display.say(block.code)

    def show(self, arguments: str) -> None:
        """Show a block: its code, how it stands, and a preview of its output."""
        block = self._block(arguments, "/show [NUMBER] shows a block of code.")
        transcript = self._display.transcript
        transcript.show_code(block_label(block.number, block.language), block.language, block.code)
        painter = transcript.painter
        self._display.draw()
        if not block.is_proposed and not self._display.show_long(self._output(block)):
            return
        known = {item.post_id for item in self._runner.session.known_items}
        text, color = status_text(
            block.number,
            block.status,
            seconds=block.duration_seconds,
            repeats=block.repeats,
            is_known=block.post_id in known,
        )
        who = "you" if block.by == "person" else "the agent"
        row = painter.paint(" ╰──● ", DIM) + painter.paint(text, color)
        transcript.rows.append(row + painter.paint(f" · by {who}", DIM))
        self._display.draw()

    def _output(self, block: CodeBlock) -> Iterator[list[str]]:
        """The rows of a preview, below a heading where there are any and the code is long."""
        painter = self._display.transcript.painter
        preview = OutputBlock(
            self._display.width, painter, number=block.number, preview_lines=OWN_PREVIEW_LINES
        )
        lines = self._runner.session.code_blocks.lines(block.number, keep_colors=True)
        fed = (preview.feed(line.stream, _with_end(line.text)) for line in lines)
        heading = [painter.paint(" ├─► [output]", DIM)] if "\n" in block.code.strip() else []
        for rows in chain(fed, map(OutputBlock.close, [preview])):
            yield heading + rows if rows else []
            heading = [] if rows else heading

    def expand(self, arguments: str) -> None:
        """Show all that a block has written."""
        number = _number(arguments, "/expand [NUMBER] shows the whole output of a block of code.")
        lines = self._runner.session.code_blocks.lines(number, keep_colors=True)
        width, painter = self._display.size[0], self._display.transcript.painter
        is_empty = True

        def rows() -> Iterator[list[str]]:
            nonlocal is_empty
            for line in lines:
                is_empty = False
                frame = FRAMES[line.stream]
                yield framed_output(frame, line.stream, line.text, width, painter)

        if self._display.show_long(rows()) and is_empty:
            self._display.say("It has written nothing.")

    def find(self, arguments: str) -> None:
        """Show the lines of output that hold a text."""
        first, _, rest = arguments.partition(" ")
        is_in_one = bool(rest.strip()) and first.isdecimal()
        number, text = (int(first), rest.strip()) if is_in_one else (None, arguments)
        if not text:
            raise UsageError("/find [NUMBER] TEXT searches what code has written.")
        self._display.begin_showing()
        found, more = self._runner.session.code_blocks.find(
            text, number, is_stopped=lambda: not self._display.is_showing
        )
        where = "" if number is None else f" in block {number}"
        if not found:
            is_whole = self._display.is_showing
            self._display.say(f"{text!r} was not found{where}." if is_whole else "[Cancelled]")
            return
        for line in found:
            self._show_found(line, text)
        if more:
            advice = f"/expand {number}" if number else "/find NUMBER TEXT looks into one block."
            self._display.transcript.say(f"{more:,} more lines{where}: {advice}", color=DIM)
        self._display.draw()

    def _show_found(self, line: FoundLine, text: str) -> None:
        transcript = self._display.transcript
        place = f" [{line.number}] {line.line:>5,}: "
        start = line.text.lower().find(text.lower())
        shown = line.text
        room = self._display.size[0] - len(place)
        if start + len(text) > room:
            shown = "…" + shown[max(0, start - _BEFORE_MATCH) :]
        row = clip(shown.replace("\t", " "), max(8, room))
        transcript.rows.append(transcript.painter.paint(place, DIM) + row)

    def _block(self, arguments: str, usage: str) -> CodeBlock:
        return self._runner.session.code_blocks.get(_number(arguments, usage))

    def _begin_line(self, block: CodeBlock, code: str) -> None:
        line = self._require_line(block, code)
        if not self._prefill(line):
            raise UsageError("Lines cannot be edited here. /show prints a block.")

    def _require_line(self, block: CodeBlock, code: str = "") -> str:
        line = input_line(block.language, code or block.code)
        if line is None:
            raise UsageError(
                f"Block {block.number} is {block.language}; a line can be Python (>) or shell (!)"
                f" alone. /copy {block.number} copies it."
            )
        return line


def _number(arguments: str, usage: str) -> int | None:
    word = arguments.strip().removeprefix("[").removesuffix("]")
    if word and not (word.isdecimal() and len(word) < 10):
        raise UsageError(usage)
    return int(word) if word else None


def _with_end(text: str) -> str:
    return text if isinstance(text, CutLine) else text + "\n"


def _lines(code: str) -> str:
    count = len(code.strip("\n").split("\n"))
    return f"{count:,} line{'s' if count > 1 else ''}"
