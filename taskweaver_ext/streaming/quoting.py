"""Know, while a text streams, whether a place in it is quoted: in backticks or in a JSON string.

A model that talks about a tag quotes it; a model that uses a tag does not.
The parsers of this package tell these trackers all text in order, and ask at
each tag. Trackers keep a few numbers, never the text.
"""

from __future__ import annotations

import re

LOOKAHEAD = 64
"""How many characters, from the start of a tag, may be awaited before it is judged."""

NOT_QUOTED = 0
UNDECIDED = -1

_FENCE_LENGTH = 3
_RUN = re.compile("`+")
_RUN_OR_NEWLINE = re.compile("`+|\n")

_JSON_HEAD_LENGTH = 64
_JSON_START = re.compile(r'\s*(?:```\w*\s*)?\{\s*"')
_QUOTE_OR_ESCAPE = re.compile(r'"|\\.?', re.DOTALL)


class BacktickTracker:
    """Follow inline code and fences.

    - Three or more backticks in a row open a fence, the next such row closes
      it. (Without `has_fences` they are inline code like shorter ones.)
    - One or two open inline code, which ends at a row of the same length, or
      at the end of the line: a stray backtick has no effect beyond its line.
    """

    __slots__ = ("_has_fences", "_run", "fence_rows", "span", "span_just_opened")

    def __init__(self, *, has_fences: bool = True) -> None:
        self._has_fences = has_fences
        self._run = 0  # backticks at the very end of the text so far, of which more may come
        self.fence_rows = 0
        """How many rows of backticks opened or closed a fence so far."""
        self.span = 0
        """How many backticks opened the inline code that is open here; 0 when none is."""
        self.span_just_opened = False
        """Whether they are the last thing that was said."""

    @property
    def in_fence(self) -> bool:
        """Whether this place lies in a fence."""
        return self.fence_rows % 2 == 1

    @property
    def is_in_row(self) -> bool:
        """Whether a backtick is the last thing that was said."""
        return self._run > 0

    def advance(self, text: str) -> None:
        """Take note of the text that comes next."""
        if not text:
            return
        self.span_just_opened = False
        at = 0
        if self._run:
            at = len(text) - len(text.lstrip("`"))
            self._run += at
            if at == len(text):
                return
            self._end_run()
        # Line ends matter only while inline code is open.
        while match := (_RUN_OR_NEWLINE if self.span else _RUN).search(text, at):
            at = match.end()
            if text[match.start()] == "\n":
                self.span = 0
            else:
                self._run = at - match.start()
                if at < len(text):
                    self._end_run()

    def end_row(self) -> None:
        """Take note that something other than a backtick comes next."""
        if self._run:
            had_span = self.span > 0
            self._end_run()
            self.span_just_opened = self.span > 0 and not had_span

    def quoted_until(self, data: str, start: int, end: int, *, is_last: bool) -> int:
        """Say whether inline code quotes the tag `data[start:end]`, all text before it being noted.

        It does when it begins right before the tag and ends on the same line,
        within `LOOKAHEAD` characters of the tag's start; or when it began
        earlier on the line and ends right after the tag. Anything looser
        would let one stray backtick swallow a real tag.

        Returns the end of what is quoted, `NOT_QUOTED`, or `UNDECIDED` when
        more of the text is needed (never when `is_last`).
        """
        if not self.span:
            return NOT_QUOTED
        window = start + LOOKAHEAD
        may_go_on = not is_last and len(data) < window
        if self.span_just_opened:
            for match in _RUN_OR_NEWLINE.finditer(data, end, window):
                if data[match.start()] == "\n":
                    return NOT_QUOTED
                if match.end() == len(data) and may_go_on:
                    return UNDECIDED
                if match.end() - match.start() == self.span and match.end() < window:
                    return match.end()
            return UNDECIDED if may_go_on else NOT_QUOTED
        run = _RUN.match(data, end, window)
        run_end = run.end() if run else end
        if run_end == len(data) and may_go_on:
            return UNDECIDED
        is_closed_here = run_end - end == self.span and run_end < window
        return end if is_closed_here else NOT_QUOTED

    def _end_run(self) -> None:
        run, self._run = self._run, 0
        if run >= _FENCE_LENGTH and self._has_fences:
            self.fence_rows += 1
            self.span = 0
        elif not self.in_fence:
            if self.span == 0:
                self.span = run
            elif self.span == run:
                self.span = 0


class JsonStringTracker:
    """Follow the strings of a text, if it starts like a JSON object: with `{` and a key.

    A fence before the `{` is skipped. Text of any other kind has no strings
    here: the quotation marks of code and prose come in no reliable pairs.
    """

    __slots__ = ("_head", "_in_string", "_is_escaped", "_is_json", "_last_visible")

    def __init__(self) -> None:
        self._head = ""  # what was said while it is not yet clear what this is
        self._is_json: bool | None = None
        self._in_string = False
        self._is_escaped = False
        self._last_visible = ""

    @property
    def is_inside_string(self) -> bool:
        """Whether this place lies in a string.

        After a closing brace or bracket it does not, whatever the quotation
        marks say: one that a model forgot to escape must not hide all the rest.
        """
        return self._in_string and self._last_visible not in "}]"

    def advance(self, text: str) -> None:
        """Take note of the text that comes next."""
        if self._is_json is False or not text:
            return
        at = 0
        if self._is_json is None:
            at = self._strings_start(text)
            if not self._is_json:
                return
        while at < len(text):
            if self._is_escaped:
                self._is_escaped = False
                at += 1
            elif self._in_string:
                stop = _QUOTE_OR_ESCAPE.search(text, at)
                if stop is None:
                    break
                at = stop.end()
                self._in_string = stop[0] != '"'
                self._is_escaped = stop[0] == "\\"
            else:
                at = text.find('"', at) + 1
                if at == 0:
                    break
                self._in_string = True
        if visible := text.rstrip():
            self._last_visible = visible[-1]

    def _strings_start(self, text: str) -> int:
        """Decide what the text is, if that is clear; return where in it the first key begins."""
        head = self._head + text
        start = _JSON_START.match(head, 0, _JSON_HEAD_LENGTH)
        if start is not None:
            self._is_json = self._in_string = True
            at = start.end() - len(self._head)
            self._head = ""
            return at
        if len(head) >= _JSON_HEAD_LENGTH or head.lstrip()[:1] not in "{`":
            self._is_json = False
            self._head = ""
        else:
            self._head = head
        return 0
