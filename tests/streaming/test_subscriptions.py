"""Listeners follow the channels of a reply, and any of them may stop it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from taskweaver_ext.errors import ModelError
from taskweaver_ext.streaming.channels import OUTSIDE, ChannelEvent
from taskweaver_ext.streaming.subscriptions import ChannelSubscriptions, StopStream


class ModelStream:
    """Chunks of a reply, which know how far they were read and whether they were closed."""

    def __init__(self, *chunks: str, error: ModelError | None = None) -> None:
        self.read = 0
        self.is_closed = False
        self._chunks = chunks
        self._error = error

    def __iter__(self) -> Iterator[str]:
        for chunk in self._chunks:
            self.read += 1
            yield chunk
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self.is_closed = True


def test_each_subscriber_hears_its_channel_in_order() -> None:
    subscriptions = ChannelSubscriptions(("thinking", "code"))
    heard: dict[str | None, list[tuple[str, str, bool]]] = {"code": [], OUTSIDE: [], None: []}

    def note(key: str | None, event: ChannelEvent) -> None:
        heard[key].append((event.channel, event.text, event.completed))

    for key in heard:
        subscriptions.subscribe(key, lambda event, key=key: note(key, event))  # type: ignore[misc] # mypy cannot infer a lambda with a default
    stream = ModelStream("hi<channel:thi", "nking>a</channel:thinking><channel:code>", "x")

    outcome = subscriptions.run(stream)

    assert outcome is None
    assert stream.is_closed
    assert heard["code"] == [("code", "x", False), ("code", "", True)]
    assert heard[OUTSIDE] == [(OUTSIDE, "hi", False)]
    assert [channel for channel, _, _ in heard[None]] == [
        OUTSIDE,
        "thinking",
        "thinking",
        "code",
        "code",
    ]


def test_a_subscriber_that_stops_the_reply_closes_the_model_stream() -> None:
    subscriptions = ChannelSubscriptions(("code",))
    heard: list[str] = []

    def forbid(event: ChannelEvent) -> StopStream | None:
        return StopStream("forbidden word") if "rm -rf" in event.text else None

    subscriptions.subscribe("code", forbid)
    subscriptions.subscribe(None, lambda event: heard.append(event.text))
    stream = ModelStream("<channel:code>ls\n", "rm -rf /</channel:code>tail<", "never asked for")

    outcome = subscriptions.run(stream)

    assert outcome == StopStream("forbidden word")
    assert stream.is_closed
    assert stream.read == 2
    assert heard == ["ls\n", "rm -rf /"]


def test_stopping_ends_a_generator_where_it_waits() -> None:
    ended: list[str] = []

    def chunks() -> Iterator[str]:
        try:
            yield "<channel:code>"
            yield "x"
            ended.append("read to the end")
        finally:
            ended.append("connection closed")

    subscriptions = ChannelSubscriptions(("code",))
    subscriptions.subscribe("code", lambda event: StopStream("enough"))

    subscriptions.run(chunks())

    assert ended == ["connection closed"]


def test_a_stream_that_breaks_off_delivers_what_waited_and_completes_nothing() -> None:
    subscriptions = ChannelSubscriptions(("code",))
    heard: list[ChannelEvent] = []
    subscriptions.subscribe("code", heard.append)
    stream = ModelStream("<channel:code>x</chan", error=ModelError("connection lost"))

    with pytest.raises(ModelError, match="connection lost"):
        subscriptions.run(stream)

    assert heard == [ChannelEvent("code", 0, "x", False), ChannelEvent("code", 0, "</chan", False)]
    assert stream.is_closed
    assert subscriptions.open_channel == "code"


def test_a_subscriber_that_fails_is_logged_once_and_the_others_still_hear(
    caplog: pytest.LogCaptureFixture,
) -> None:
    subscriptions = ChannelSubscriptions(("code",))
    heard: list[str] = []

    def fail(event: ChannelEvent) -> None:
        raise KeyError(event.text)

    subscriptions.subscribe("code", fail)
    subscriptions.subscribe("code", lambda event: heard.append(event.text))

    with caplog.at_level(logging.ERROR):
        subscriptions.run(["<channel:code>a", "b", "c</channel:code>"])

    assert heard == ["a", "b", "c", ""]
    assert len(caplog.records) == 1


def test_a_channel_that_was_not_declared_cannot_be_subscribed_to() -> None:
    with pytest.raises(ValueError, match="no channel 'cod'"):
        ChannelSubscriptions(("code",)).subscribe("cod", lambda event: None)
