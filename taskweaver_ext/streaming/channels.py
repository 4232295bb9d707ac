"""Split a streamed reply into its channels: `<channel:NAME>...</channel:NAME>`.

Linear in time, bounded in memory, and independent of where the chunks are
cut. Text is passed on as soon as it cannot be part of a tag; what may become
one waits, for at most 64 characters. Nothing that was said is lost: it is in
the channel, or outside of all channels (`OUTSIDE`).

What is a tag:

- Names are letters, digits, `_` and `-`, at most 40 of them. One blank is
  accepted after `<`, after `/` and before `>`; capitals do not matter, and the
  event carries the name as it was declared.
- An opening tag with a name that was not declared is text, where it stands.
- A tag with anything else in it is text, zero-width characters included: so
  a tag can be written that shall not count.
- A tag that is never completed is text once that is clear, at the latest when
  the reply ends.

What a tag does:

- An opening tag completes the channel that is open, whatever its name, and
  starts the next instance of its own channel (0, 1, ...): models forget to
  close channels more often than they nest them.
- A closing tag with the name of the open channel completes it. Any other closes
  nothing and belongs to no channel: it is delivered as text outside.
- A channel still open when the reply ends is completed by `close`, unless the
  stream broke off.

Where a tag is only text, because it is quoted:

- in inline code that begins right before it, or ends right after it, on the
  same line (`BacktickTracker.quoted_until`); a stray backtick quotes nothing;
- between two quotation marks that touch it on both sides (`"<channel:code>"`),
  which is how code speaks of tags; everywhere else in code a tag is a tag;
- inside a string of a channel that holds a JSON object;
- inside a fence of three or more backticks. There the tag that closes the
  open channel still counts, unless the same fence showed its opening tag:
  so a fence that is never closed cannot swallow the rest of the reply.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from taskweaver_ext.streaming.quoting import (
    NOT_QUOTED,
    UNDECIDED,
    BacktickTracker,
    JsonStringTracker,
)

OUTSIDE = ""
"""The channel of the events with text that belongs to no channel."""

MAX_NAME_LENGTH = 40

_NAME = re.compile(r"[A-Za-z0-9_-]+")


def _cut_short(word: str) -> str:
    """Return a pattern for the beginnings of a word, the empty one included."""
    pattern = ""
    for letter in reversed(word):
        pattern = f"(?:{letter}{pattern})?"
    return pattern


# A whole tag (with a name), or what may become one at the very end of the text (without).
_TAG = re.compile(
    r"<[ \t]?(?P<slash>/?)[ \t]?(?:"
    rf"channel:(?P<name>[A-Za-z0-9_-]{{1,{MAX_NAME_LENGTH}}})[ \t]?>"
    rf"|(?:channel:(?P<begun>[A-Za-z0-9_-]{{0,{MAX_NAME_LENGTH}}}[ \t]?)|{_cut_short('channel')})\Z"
    r")",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class ChannelEvent:
    """Some more text of a channel, or its end."""

    channel: str
    """The name as it was declared, or `OUTSIDE`."""
    instance: int
    """How many channels of this name came before it; always 0 outside."""
    text: str
    completed: bool
    """True, with no text, for the last event of an instance; never outside."""


class ChannelParser:
    """Turn the chunks of one reply into channel events."""

    def __init__(self, channels: Iterable[str]) -> None:
        self._declared: dict[str, str] = {}
        for name in channels:
            if not _NAME.fullmatch(name) or len(name) > MAX_NAME_LENGTH:
                raise ValueError(f"{name!r} cannot name a channel (letters, digits, '_', '-')")
            if name.lower() in self._declared:
                raise ValueError(f"The channel {name!r} is declared twice; capitals do not matter")
            self._declared[name.lower()] = name
        self._instances_begun = dict.fromkeys(self._declared.values(), 0)
        self._channel = OUTSIDE
        self._instance = 0
        self._context = _TagContext(in_channel=False)
        self._waiting = ""
        self._is_closed = False

    @property
    def channels(self) -> tuple[str, ...]:
        """The declared names."""
        return tuple(self._declared.values())

    @property
    def open_channel(self) -> str:
        """The channel that was opened and not closed; after `close`, the one it had to complete."""
        return self._channel

    def feed(self, chunk: str) -> list[ChannelEvent]:
        """Take the next chunk of the reply and return what it says, in order."""
        if self._is_closed:
            raise ValueError("This reply was closed; a parser reads one reply.")
        return self._read(self._waiting + chunk if self._waiting else chunk, is_last=False)

    def close(self, *, broken: bool = False) -> list[ChannelEvent]:
        """Return what was still waiting, and complete the channel that is open.

        Args:
            broken: The reply ended before its time: the open channel is not completed.
        """
        if self._is_closed:
            return []
        self._is_closed = True
        events = self._read(self._waiting, is_last=True)
        if self._channel != OUTSIDE and not broken:
            events.append(ChannelEvent(self._channel, self._instance, "", True))
        return events

    def _read(self, data: str, *, is_last: bool) -> list[ChannelEvent]:
        events: list[ChannelEvent] = []
        said = 0  # all before this is in events
        noted = 0  # all before this is known to the context
        searched = 0
        stop = len(data)
        while tag := _TAG.search(data, searched):
            if tag["name"] is None:
                if not is_last and self._may_become_a_tag(tag):
                    stop = tag.start()
                break
            self._context.advance(data[noted : tag.start()])
            noted = tag.start()
            hidden_until = self._quoted_until(tag, is_last=is_last)
            if hidden_until == UNDECIDED:
                stop = tag.start()
                break
            if hidden_until == NOT_QUOTED:
                self._say(data[said : tag.start()], events)
                self._apply(tag, events)
                said = noted = searched = tag.end()
            else:
                searched = hidden_until
        self._context.advance(data[noted:stop])
        self._say(data[said:stop], events)
        self._waiting = data[stop:]
        return events

    def _may_become_a_tag(self, beginning: re.Match[str]) -> bool:
        if beginning["slash"]:
            return self._channel != OUTSIDE
        begun = beginning["begun"]
        if not begun:
            return True
        name = begun.lower()
        if name[-1] in " \t":
            return name[:-1] in self._declared
        return any(declared.startswith(name) for declared in self._declared)

    def _quoted_until(self, tag: re.Match[str], *, is_last: bool) -> int:
        """Return how far the text is hidden by quotes, `NOT_QUOTED` for a tag, or `UNDECIDED`."""
        name = self._declared.get(tag["name"].lower())
        closes = bool(tag["slash"])
        if name is None and not closes or closes and self._channel == OUTSIDE:
            return tag.end()
        is_own = self._channel != OUTSIDE and name == self._channel
        if self._context.hides(is_own=is_own, closes=closes):
            return tag.end()
        return self._context.quoted_until(tag, is_last=is_last)

    def _apply(self, tag: re.Match[str], events: list[ChannelEvent]) -> None:
        name = self._declared.get(tag["name"].lower(), OUTSIDE)
        closes = bool(tag["slash"])
        if closes and name != self._channel:
            events.append(ChannelEvent(OUTSIDE, 0, tag[0], False))
            return
        if self._channel != OUTSIDE:
            events.append(ChannelEvent(self._channel, self._instance, "", True))
        if closes:
            self._channel, self._instance = OUTSIDE, 0
        else:
            self._channel, self._instance = name, self._instances_begun[name]
            self._instances_begun[name] += 1
        self._context = _TagContext(in_channel=not closes)

    def _say(self, text: str, events: list[ChannelEvent]) -> None:
        if text:
            events.append(ChannelEvent(self._channel, self._instance, text, False))


class _TagContext:
    """Everything about the text since the last tag that decides whether the next one is quoted."""

    __slots__ = ("_backticks", "_fence", "_json", "_last_character", "_own_tags_shown")

    def __init__(self, *, in_channel: bool) -> None:
        self._backticks = BacktickTracker()
        self._json = JsonStringTracker() if in_channel else None
        self._last_character = ""
        self._fence = 0  # the fence that `_own_tags_shown` counts in
        self._own_tags_shown = 0  # opening tags of the open channel that it hides, not closed in it

    def advance(self, text: str) -> None:
        if text:
            self._backticks.advance(text)
            if self._json is not None:
                self._json.advance(text)
            self._last_character = text[-1]

    def hides(self, *, is_own: bool, closes: bool) -> bool:
        """Say whether a JSON string or a fence hides the tag that comes next.

        Called once per tag that is hidden, because a fence counts what it shows.
        """
        self._backticks.end_row()
        if self._json is not None and self._json.is_inside_string:
            return True
        if not self._backticks.in_fence:
            return False
        if self._fence != self._backticks.fence_rows:
            self._fence, self._own_tags_shown = self._backticks.fence_rows, 0
        if is_own and closes:
            if self._own_tags_shown == 0:
                return False
            self._own_tags_shown -= 1
        elif is_own:
            self._own_tags_shown += 1
        return True

    def quoted_until(self, tag: re.Match[str], *, is_last: bool) -> int:
        """Say how far quotes hide the tag, like `BacktickTracker.quoted_until`."""
        mark = self._last_character
        if mark and mark in "\"'":
            after = tag.string[tag.end() : tag.end() + 2]
            if after[:1] == mark or after == "\\" + mark:
                return tag.end()
            if after in ("", "\\") and not is_last:
                return UNDECIDED
        return self._backticks.quoted_until(tag.string, tag.start(), tag.end(), is_last=is_last)
