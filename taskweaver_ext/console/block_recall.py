"""Earlier blocks of code, one after another, in the place of what is being typed."""

from __future__ import annotations

from taskweaver_ext.chat.requests import input_line
from taskweaver_ext.errors import SessionError
from taskweaver_ext.session.code_blocks import CodeBlocks


class BlockRecall:
    """Walks through the blocks of a session, from the newest to the oldest and back."""

    def __init__(self, blocks: CodeBlocks) -> None:
        self._blocks = blocks
        self._number: int | None = None
        """Of the block that is in the input; None: what was typed is."""
        self._typed = ""

    def older(self, text: str) -> str | None:
        """Return the line of the next older block; None where there is none.

        Args:
            text: What is in the input; `newer` brings it back in the end.
        """
        is_first = self._number is None
        number = self._blocks.last_number + 1 if self._number is None else self._number
        while number > 1:
            number -= 1
            if (line := self._line(number)) is not None and line != text:
                self._typed = text if is_first else self._typed
                self._number = number
                return line
        return None

    def newer(self, text: str) -> str | None:
        """Return the line of the next newer block, or at last what was typed; None after that."""
        if self._number is None:
            return None
        while self._number < self._blocks.last_number:
            self._number += 1
            if (line := self._line(self._number)) is not None and line != text:
                return line
        self._number = None
        return self._typed

    def _line(self, number: int) -> str | None:
        try:
            block = self._blocks.get(number)
        except SessionError:  # it was taken back
            return None
        return input_line(block.language, block.code.rstrip("\n"))
