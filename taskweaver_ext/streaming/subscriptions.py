"""Let several listeners follow the channels of one reply, and let any of them stop it.

A policy (too much code, a forbidden word, enough said) is a subscriber that
returns `StopStream`: no further event is delivered, and the model's stream is
closed, which ends its connection instead of paying for the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from taskweaver_ext.streaming.channels import OUTSIDE, ChannelEvent, ChannelParser

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StopStream:
    """Returned by a subscriber to stop the reply."""

    reason: str


Subscriber: TypeAlias = Callable[[ChannelEvent], StopStream | None]
"""Called with each event of its channel, in order, on the thread that runs the stream."""


class ChannelSubscriptions:
    """The subscribers of the channels of one reply."""

    def __init__(self, channels: Iterable[str]) -> None:
        self._parser = ChannelParser(channels)
        self._subscribers: list[tuple[str | None, Subscriber]] = []
        self._failed: set[int] = set()

    @property
    def open_channel(self) -> str:
        """The channel that was opened and not closed, or `OUTSIDE`."""
        return self._parser.open_channel

    def subscribe(self, channel: str | None, subscriber: Subscriber) -> None:
        """Pass the events of a channel (`OUTSIDE` included; None: of all) to a subscriber."""
        if channel not in (None, OUTSIDE, *self._parser.channels):
            raise ValueError(f"There is no channel {channel!r} among {self._parser.channels}")
        self._subscribers.append((channel, subscriber))

    def run(self, chunks: Iterable[str]) -> StopStream | None:
        """Read the whole reply; return why it was stopped, or None when it came to its end.

        `chunks` is closed in any case, if it can be. When it raises, what was
        still waiting is delivered first, and the open channel is not completed.
        """
        has_ended = False
        try:
            for chunk in chunks:
                if stop := self._deliver(self._parser.feed(chunk)):
                    has_ended = True
                    return stop
            has_ended = True
            return self._deliver(self._parser.close())
        finally:
            if not has_ended:
                self._deliver(self._parser.close(broken=True))
            close = getattr(chunks, "close", None)
            if close is not None:
                close()

    def _deliver(self, events: list[ChannelEvent]) -> StopStream | None:
        for event in events:
            stop: StopStream | None = None
            for number, (channel, subscriber) in enumerate(self._subscribers):
                if channel is None or channel == event.channel:
                    stop = self._tell(number, subscriber, event) or stop
            if stop is not None:
                return stop
        return None

    def _tell(self, number: int, subscriber: Subscriber, event: ChannelEvent) -> StopStream | None:
        try:
            return subscriber(event)
        except Exception:
            if number not in self._failed:
                self._failed.add(number)
                logger.exception("A subscriber of channel %r failed", event.channel)
            return None
