"""Events and replies as lines in a pipe, read at whatever pace."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator

import pytest

from taskweaver_ext.events.emitter import SessionEventEmitter
from taskweaver_ext.events.types import SessionEventType
from taskweaver_ext.stdio.line_writer import MAX_WAITING_REPLIES, LineWriter
from tests.support.conversations import Background
from tests.support.executions import wait_until


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    source, target = os.pipe()
    yield source, target
    for descriptor in (source, target):
        try:
            os.close(descriptor)
        except OSError:
            continue  # the test has closed it


def say(emitter: SessionEventEmitter, count: int) -> None:
    for _ in range(count):
        emitter.emit_session_event(SessionEventType.session_notice, "x" * 1000)


def lines_in(source: int) -> list[dict[str, object]]:
    with open(source, "rb", closefd=False) as file:
        return [json.loads(line) for line in file]


def test_a_reply_comes_after_what_happened_before_it_however_late_that_is_read(
    pipe: tuple[int, int],
) -> None:
    source, target = pipe
    emitter = SessionEventEmitter()
    writer = LineWriter(emitter, target, lambda: None, first_line='{"protocol":1}\n')
    say(emitter, 2000)  # far more than a pipe holds, and than is written at once
    writer.reply('{"reply":1}\n')
    say(emitter, 1000)
    reader = Background(lambda: lines_in(source))
    assert writer.close()
    os.close(target)
    lines = reader.result()

    assert isinstance(lines, list)
    assert lines[0] == {"protocol": 1}
    assert [line["seq"] for line in lines if "seq" in line] == list(range(1, 3001))
    assert lines.index({"reply": 1}) > 2000


def test_a_reader_that_never_looks_bounds_what_waits_until_there_is_no_time(
    pipe: tuple[int, int],
) -> None:
    _, target = pipe
    emitter = SessionEventEmitter()
    writer = LineWriter(emitter, target, lambda: None)
    say(emitter, 1000)
    replied: list[int] = []

    def reply() -> None:
        for number in range(MAX_WAITING_REPLIES + 10):
            writer.reply("{}\n")
            replied.append(number)

    thread = threading.Thread(target=reply, daemon=True)
    thread.start()
    wait_until(lambda: len(replied) == MAX_WAITING_REPLIES)
    assert thread.is_alive()
    writer.hurry()
    thread.join()

    assert len(replied) == MAX_WAITING_REPLIES + 10
    assert not writer.close(seconds=0)
    os.close(pipe[0])  # lets the thread that writes end


def test_a_reader_that_is_gone_is_told_of_once(pipe: tuple[int, int]) -> None:
    source, target = pipe
    emitter = SessionEventEmitter()
    failures: list[bool] = []
    writer = LineWriter(emitter, target, lambda: failures.append(True))
    os.close(source)
    say(emitter, 10)
    wait_until(lambda: failures)
    writer.reply("{}\n")

    assert not writer.close()
    assert failures == [True]
    assert isinstance(writer.failure, BrokenPipeError)
