"""What a session says is on the disk before anybody hears it, each character once."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import cast

import pytest

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.events.extras import ExecutionOutputExtra
from taskweaver_ext.events.journal_lines import JOURNAL, RECORDS
from taskweaver_ext.events.journal_reader import JournalReader
from taskweaver_ext.events.types import PostEventType, SessionEventType, TaskWeaverEvent
from taskweaver_ext.llm.scripted import ScriptedModel
from tests.support.conversations import Listener, answer, code, plan

SECRET = "a-key-that-nobody-may-see"

SAY_EVERYTHING = f"""
import os, sys
from IPython.display import display
print("Grüße 😀" * 3, end="")
print("warning", file=sys.stderr)
os.write(1, b"not \\xff\\xfe text\\n")
print("the key is {SECRET[:10]}", end="", flush=True)
print("{SECRET[10:]}")
display({{"text/html": "<b>bold</b>" * 10_000}}, raw=True)
for number in range(300):
    print(number, file=sys.stderr if number % 3 else sys.stdout)
print("é" * 2_000_000)
"""
MIXED_SHELL = "printf 'a\\377b\\n'; printf 'oops é\\n' >&2; printf 'partial'"
BINARY_PROGRAM = "console.log('text ü'); process.stdout.write(Buffer.from([255, 0, 254]))"


def journaled(folder: Path) -> list[TaskWeaverEvent]:
    """Everything in the journal of a session."""
    with JournalReader(folder) as reader:
        events = list(reader.events())
        assert (reader.skipped_lines, reader.missing_texts) == (0, 0)
        return events


def outputs(events: list[TaskWeaverEvent]) -> list[TaskWeaverEvent]:
    return [event for event in events if event.t is PostEventType.post_execution_output]


def assert_offsets_are_true(events: list[TaskWeaverEvent], folder: Path) -> None:
    """What each event of output says is what the record has at that place."""
    for event in outputs(events):
        extra = cast(ExecutionOutputExtra, event.extra)
        record = folder / RECORDS / f"{extra['execution_id']}.{extra['stream']}"
        end = extra["offset"] + extra["size"]
        assert record.read_bytes()[extra["offset"] : end].decode("utf-8", "replace") == event.msg


def test_the_journal_has_what_was_heard_and_each_character_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", SECRET)
    model = ScriptedModel([plan("say it"), code(SAY_EVERYTHING), answer("done")])
    listener = Listener()
    with TaskWeaverApp(tmp_path, model=model) as app:
        session = app.get_session("s1")
        with session.emitter.subscribe(listener, after=0):
            session.send_message("say everything")
            session.run_code("bash", MIXED_SHELL)
            session.run_code("javascript", BINARY_PROGRAM)
            session.stop()

    events = journaled(session.session_dir)
    assert events == listener.events
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert "a\ufffdb" in listener.output()
    assert "[masked]" in listener.output()
    assert listener.output().count("é") > 2_000_000 - 1
    assert_offsets_are_true(events, session.session_dir)
    lines = (session.session_dir / JOURNAL).read_text().splitlines()
    written = [json.loads(line) for line in lines if "post_execution_output" in line[:40]]
    assert written
    assert not any("msg" in line for line in written)
    kept = [path for path in session.session_dir.rglob("*") if path.is_file()]
    assert not [path for path in kept if SECRET.encode() in path.read_bytes()]


def test_offsets_are_true_when_the_display_was_too_slow(tmp_path: Path) -> None:
    def be_slow(event: TaskWeaverEvent) -> None:
        if event.t is PostEventType.post_execution_output:
            time.sleep(0.5)  # a terminal that cannot keep up

    listener = Listener(be_slow)
    flood = (
        "import sys\nfor n in range(200_000): print(n, file=sys.stderr if n % 1000 else sys.stdout)"
    )
    with TaskWeaverApp(tmp_path, model=ScriptedModel([])) as app:
        session = app.get_session("s1")
        result = session.run_code("python", flood, listener)
        after = session.run_code("python", "print('ü', end=''); print('next')")

    assert "display_skipped" in {notice.kind for notice in result.notices}
    assert "".join(after.stdout) == "ünext\n"
    events = journaled(session.session_dir)
    assert_offsets_are_true(events, session.session_dir)
    assert outputs(events)[: len(outputs(listener.events))] == outputs(listener.events)


def test_a_session_that_is_opened_again_goes_on_numbering(tmp_path: Path) -> None:
    folder = Path()
    for _ in range(3):
        with TaskWeaverApp(tmp_path, model=ScriptedModel([answer("hello")])) as app:
            session = app.get_session("s1")
            session.send_message("hi")
            folder = session.session_dir

    events = journaled(folder)
    starts = [event for event in events if event.t is SessionEventType.session_start]
    assert len(starts) == 3
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    with JournalReader(folder) as reader:
        assert (reader.epoch, reader.session_id) == (3, "s1")
        assert Path(reader.project) == tmp_path
