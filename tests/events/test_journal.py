"""A journal gives back what was written, whatever happened to its file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskweaver_ext.ces.execution.results import ExecutionId
from taskweaver_ext.conversation import AttachmentType, RoundId
from taskweaver_ext.errors import SessionError
from taskweaver_ext.events.emitter import SessionEventEmitter
from taskweaver_ext.events.journal import Journal
from taskweaver_ext.events.journal_lines import JOURNAL, RECORDS
from taskweaver_ext.events.journal_reader import JournalReader
from taskweaver_ext.events.lines_of_file import MAX_LINE_BYTES
from taskweaver_ext.events.types import PostEventType, SessionEventType, TaskWeaverEvent
from tests.support.conversations import Listener
from tests.support.executions import LIMIT_SECONDS


def open_journal(folder: Path, failures: list[str] | None = None) -> Journal:
    on_failure = (failures if failures is not None else []).append
    return Journal(folder, session_id="s1", project="/project", on_failure=on_failure)


def say(emitter: SessionEventEmitter, text: str) -> None:
    emitter.emit_session_event(SessionEventType.session_notice, text)


def written(folder: Path, texts: list[str]) -> list[TaskWeaverEvent]:
    """Write events with these texts, and return what a listener heard."""
    journal = open_journal(folder)
    emitter = SessionEventEmitter(journal)
    listener = Listener()
    with emitter.subscribe(listener):
        for text in texts:
            say(emitter, text)
    journal.close()
    return listener.events


def read(folder: Path, after: int = 0) -> list[TaskWeaverEvent]:
    with JournalReader(folder) as reader:
        return list(reader.events(after))


def intact(events: list[TaskWeaverEvent]) -> list[TaskWeaverEvent]:
    """All but those that say that others are missing."""
    return [one for one in events if one.t is not SessionEventType.session_events_missed]


def test_what_was_written_is_read_from_any_number_on(tmp_path: Path) -> None:
    heard = written(tmp_path, [f"{number} ü\ud800\x00" * number for number in range(300)])

    for after in (0, 1, 2, 77, 150, 298, 299, 300):
        assert read(tmp_path, after) == heard[after:]
    with JournalReader(tmp_path) as reader:
        assert (reader.session_id, reader.project) == ("s1", "/project")
        assert (reader.epoch, reader.last_seq) == (1, 300)
        assert reader.last_page(7) == heard[-7:]
        assert reader.last_page(1000) == heard
        assert reader.last_page(0) == []
        assert reader.skipped_lines == 0


def test_the_last_event_of_each_epoch_is_known(tmp_path: Path) -> None:
    written(tmp_path, ["one", "two"])
    written(tmp_path, [])
    written(tmp_path, ["three"])

    with JournalReader(tmp_path) as reader:
        assert [reader.last_seq_of(epoch) for epoch in range(5)] == [0, 2, 2, 3, 3]


def test_an_event_is_in_the_file_when_it_is_heard(tmp_path: Path) -> None:
    read_when_heard: list[list[TaskWeaverEvent]] = []
    journal = open_journal(tmp_path)
    emitter = SessionEventEmitter(journal)
    listener = Listener(lambda event: read_when_heard.append(read(tmp_path, event.seq - 1)))
    with emitter.subscribe(listener):
        for number in range(5):
            say(emitter, str(number))
    journal.close()

    assert read_when_heard == [[event] for event in listener.events]


def test_a_reader_that_is_late_gets_everything_from_the_journal(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    emitter = SessionEventEmitter(journal, max_kept_events=10)
    listener = Listener()
    with emitter.subscribe(listener):
        for number in range(500):
            say(emitter, "x" * number)
    events: list[TaskWeaverEvent] = []
    while piece := emitter.read(events[-1].seq if events else 0, max_bytes=5000):
        events += piece
    journal.close()

    assert events == listener.events


def test_reading_goes_on_while_another_thread_writes(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    emitter = SessionEventEmitter(journal)

    def write() -> None:
        for number in range(2000):
            say(emitter, str(number))

    writer = threading.Thread(target=write)
    writer.start()
    seen: list[TaskWeaverEvent] = []
    with JournalReader(tmp_path) as reader:
        while writer.is_alive() or len(seen) < 2000:
            seen += reader.events(after=len(seen))
    writer.join(LIMIT_SECONDS)
    journal.close()

    assert [event.msg for event in seen] == [str(number) for number in range(2000)]


def test_output_comes_from_the_record_or_from_the_line_where_there_is_none(tmp_path: Path) -> None:
    (tmp_path / RECORDS).mkdir(parents=True)
    (tmp_path / RECORDS / "e1.stdout").write_text("0123ü\n")
    journal = open_journal(tmp_path)
    emitter = SessionEventEmitter(journal)
    listener = Listener()
    with emitter.subscribe(listener):
        emitter.start_round(RoundId("r1"))
        post = emitter.create_post_proxy("User")
        post.emit_execution_output("stdout", "3ü\n", ExecutionId("e1"), offset=3, size=4)
        post.emit_execution_output("stdout", "no such record", ExecutionId("e2"), 0, 14)
        post.emit_execution_output("stdout", "longer than it", ExecutionId("e1"), 0, 14)
        post.emit_execution_output("stdout", "said by a role")
        post.emit_execution_output("stdout", "outside", ExecutionId("../../x"), 0, 7)
    journal.close()

    lines = (tmp_path / JOURNAL).read_bytes().splitlines()
    assert [b'"msg"' in line for line in lines[-5:]] == [False, True, True, True, True]
    with JournalReader(tmp_path) as reader:
        assert list(reader.events()) == listener.events
        assert [event.t for event in reader.events(with_output=False)] == [
            event.t for event in listener.events[:-5]
        ]
        (tmp_path / RECORDS / "e1.stdout").unlink()
    with JournalReader(tmp_path) as reader:
        outputs = [
            one.msg for one in reader.events() if one.t is PostEventType.post_execution_output
        ]
        assert outputs == ["", "no such record", "longer than it", "said by a role", "outside"]
        assert reader.missing_texts == 1


def test_a_torn_end_is_ignored_and_cut_off_by_the_next_owner(tmp_path: Path) -> None:
    heard = written(tmp_path, ["one", "two", "three"])
    content = (tmp_path / JOURNAL).read_bytes()
    last_line = content.rindex(b"\n", 0, -1) + 1
    for end in range(last_line, len(content)):
        (tmp_path / JOURNAL).write_bytes(content[:end])
        assert read(tmp_path) == heard[:2]

        again = written(tmp_path, ["four"])

        assert again[0].seq == 3
        assert read(tmp_path) == heard[:2] + again
        with JournalReader(tmp_path) as reader:
            assert (reader.epoch, reader.skipped_lines) == (2, 0)


@pytest.mark.parametrize("left", [b"", b'{"format":1,"ses'])
def test_a_journal_whose_owner_died_at_once_is_begun_again(tmp_path: Path, left: bytes) -> None:
    (tmp_path / JOURNAL).write_bytes(left)
    with pytest.raises(SessionError, match="empty"):
        JournalReader(tmp_path)

    heard = written(tmp_path, ["one"])

    assert read(tmp_path) == heard
    with JournalReader(tmp_path) as reader:
        assert (reader.session_id, reader.epoch) == ("s1", 1)


def test_what_is_no_journal_of_ours_is_refused_and_left_alone(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="no journal"):
        JournalReader(tmp_path)
    newer = b'{"format":2,"session_id":"s1"}\n'
    (tmp_path / JOURNAL).write_bytes(newer)
    with pytest.raises(SessionError, match="newer"):
        JournalReader(tmp_path)
    with pytest.raises(SessionError, match="newer"):
        open_journal(tmp_path)
    assert (tmp_path / JOURNAL).read_bytes() == newer
    (tmp_path / JOURNAL).unlink()
    os.mkfifo(tmp_path / JOURNAL)  # nothing waits for a writer
    with pytest.raises(SessionError):
        JournalReader(tmp_path)
    with pytest.raises(SessionError):
        open_journal(tmp_path)


def test_missing_events_are_named_where_they_are_missing(tmp_path: Path) -> None:
    heard = written(tmp_path, [str(number) for number in range(10)])
    lines = (tmp_path / JOURNAL).read_bytes().splitlines(keepends=True)
    del lines[4:7]  # the events 3 to 5
    (tmp_path / JOURNAL).write_bytes(b"".join(lines))

    events = read(tmp_path)

    assert intact(events) == heard[:2] + heard[5:]
    assert events[2].extra == {"first_seq": 3, "last_seq": 5}
    assert read(tmp_path, after=4)[0].extra == {"first_seq": 5, "last_seq": 5}


def test_an_event_that_json_cannot_hold_costs_only_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Unspeakable:
        def __str__(self) -> str:
            raise RuntimeError("no words")

    journal = open_journal(tmp_path)
    emitter = SessionEventEmitter(journal)
    extra = {"blocks": [Unspeakable()]}
    emitter.emit_session_event(SessionEventType.session_context_update, "", extra)  # type: ignore[arg-type]
    say(emitter, "next")
    journal.close()

    assert [event.msg for event in intact(read(tmp_path))] == ["next"]
    assert "left out of the journal" in caplog.text


def test_a_fork_of_the_owner_writes_nothing(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    emitter = SessionEventEmitter(journal)
    say(emitter, "ours")
    child = os.fork()
    if child == 0:
        say(emitter, "the fork's")
        os._exit(0)
    os.waitpid(child, 0)
    say(emitter, "ours again")
    journal.close()

    assert [event.msg for event in read(tmp_path)] == ["ours", "ours again"]


# --- a full disk ----------------------------------------------------------------------------------

FILL_THE_DISK = """
import json, logging, resource, sys, time
from pathlib import Path
from taskweaver_ext.events import journal as journals
from taskweaver_ext.events.emitter import SessionEventEmitter
from taskweaver_ext.events.types import SessionEventType
logging.basicConfig(stream=sys.stderr, format="LOG %(message)s")
notice = SessionEventType.session_notice
heard = []
class Keep:
    def handle(self, event): heard.append(event.msg[:40])
def fail(message):
    emitter.emit_session_event(notice, message)
folder = Path(sys.argv[1])
journal = journals.Journal(folder, session_id="s1", project="p", on_failure=fail)
emitter = SessionEventEmitter(journal, max_kept_events=5)
emitter.register(Keep())
def say(text): emitter.emit_session_event(notice, text)
say("before")
size = (folder / "journal.jsonl").stat().st_size
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 30, hard))  # less than a line
say("lost")
for number in range(20): say(f"lost {number}")
assert (folder / "journal.jsonl").stat().st_size == size, "torn bytes stay"
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
deadline = time.monotonic() + 60
while (folder / "journal.jsonl").stat().st_size == size and time.monotonic() < deadline:
    say("is there room?")
    time.sleep(0.05)
say("after")
print(json.dumps(heard))
"""


def test_a_full_disk_is_said_once_and_costs_only_the_journal(tmp_path: Path) -> None:
    program = [sys.executable, "-c", FILL_THE_DISK, str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=LIMIT_SECONDS)

    assert done.returncode == 0, done.stderr
    heard = json.loads(done.stdout)
    assert heard[:4] == ["before", "lost", f"The session's journal {tmp_path}"[:40], "lost 0"]
    assert heard[22] == "lost 19"
    assert heard[-1] == "after"
    assert done.stderr.count("cannot be written") == 1
    assert done.stderr.count("is written again") == 1
    events = read(tmp_path)
    assert [event.msg for event in intact(events)][:2] == ["before", "is there room?"]
    assert events[1].t is SessionEventType.session_events_missed
    assert events[-1].msg == "after"
    assert events[-1].seq == len(heard)


def test_numbers_stay_unique_when_a_role_attaches_a_list_that_holds_itself(tmp_path: Path) -> None:
    endless: list[object] = []
    endless.append(endless)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    journal = open_journal(tmp_path)
    emitter = SessionEventEmitter(journal)
    emitter.start_round(RoundId("r1"))
    post = emitter.create_post_proxy("Odd")
    post.update_attachment("first", AttachmentType.text, extra=endless)
    post.update_attachment("second", AttachmentType.text, extra=deep)
    emitter.add_post(post.end())
    emitter.end_round(RoundId("r1"))
    journal.close()

    events = read(tmp_path)

    assert [event.seq for event in events] == list(range(1, emitter.last_seq + 1))
    assert [event.msg for event in events[2:4]] == ["first", "second"]


def test_a_journal_that_is_removed_is_said_once(tmp_path: Path) -> None:
    failures: list[str] = []
    journal = open_journal(tmp_path, failures)
    emitter = SessionEventEmitter(journal)
    say(emitter, "before")
    (tmp_path / JOURNAL).unlink()
    for number in range(3):
        say(emitter, f"after {number}")
    journal.close()

    [failure] = failures
    assert "it was removed" in failure
    assert [event.msg for event in emitter.read(0)] == ["before", "after 0", "after 1", "after 2"]


def test_an_event_that_no_reader_would_take_is_said_to_be_lost(tmp_path: Path) -> None:
    failures: list[str] = []
    journal = open_journal(tmp_path, failures)
    emitter = SessionEventEmitter(journal)
    for text in ("before", "x" * MAX_LINE_BYTES, "after"):
        say(emitter, text)
    journal.close()

    [failure] = failures
    assert failure.startswith("Event 2 is too large")
    assert [event.msg for event in intact(read(tmp_path))] == ["before", "after"]
    assert (tmp_path / JOURNAL).stat().st_size < 1000


# --- newer versions -------------------------------------------------------------------------------

POST = '"round_id":"r","post_id":"p"'
NEWER = (
    '{"event":"session_v2_kind","seq":%d,"at":1.0,"msg":"?","extra":{"new":1}}',
    '{"event":"post_execution_event","seq":%d,"at":1.0,' + POST + ',"extra":{"execution_id":"e",'
    '"event":{"event":"hologram","execution_id":"e"}}}',
    '{"event":"post_attachment_update","seq":%d,"at":1.0,' + POST + ',"extra":{"type":"hologram",'
    '"extra":null,"id":"a","is_end":true}}',
)


@pytest.mark.parametrize("newer", NEWER)
def test_events_that_a_newer_version_has_added_are_passed_over(tmp_path: Path, newer: str) -> None:
    known = '{"event":"session_notice","seq":%d,"at":1.0,"msg":"known","new":[1],"extra":{"new":1}}'
    lines = [known % 1, newer % 2, newer % 3, known % 4, newer % 7, known % 8, newer % 9]
    header = '{"format":1,"session_id":"s1","new":true}\n{"epoch":1,"new":2}\n'
    (tmp_path / JOURNAL).write_text(header + "\n".join(lines) + "\n")

    with JournalReader(tmp_path) as reader:
        events = list(reader.events())
        assert (reader.last_seq, reader.skipped_lines) == (9, 0)

    assert [event.seq for event in events] == [1, 4, 6, 8]
    assert events[2].extra == {"first_seq": 5, "last_seq": 6}, "these are missing indeed"
    again = written(tmp_path, ["next"])
    assert [event.seq for event in again] == [10]


# --- large journals -------------------------------------------------------------------------------


def test_memory_does_not_grow_with_the_journal(tmp_path: Path) -> None:
    event = '{"event":"session_notice","seq":%d,"at":1.0,"msg":"' + "x" * 2000 + '"}\n'
    count = 20_000  # 40 MB
    with (tmp_path / JOURNAL).open("w") as file:
        file.write('{"format":1,"session_id":"s1"}\n{"epoch":1}\n')
        file.writelines(event % number for number in range(1, count + 1))
    tracemalloc.start()
    try:
        with JournalReader(tmp_path) as reader:
            assert (reader.epoch, reader.last_seq) == (1, count)
            assert [one.seq for one in reader.last_page(3)] == [count - 2, count - 1, count]
            assert next(reader.events(count // 2)).seq == count // 2 + 1
            assert sum(1 for _ in reader.read(count - 1000, 100_000)) < 100
            assert sum(1 for _ in reader.events(count - 5000)) == 5000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 4 << 20


# --- anything -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def journal_lines(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The lines of a journal of all kinds of events."""
    folder = tmp_path_factory.mktemp("journal")
    written(folder, ["a", "b" * 50, "ü", "", "c\n"])
    written(folder, [f"{number}" for number in range(20)])
    return (folder / JOURNAL).read_bytes().splitlines(keepends=True)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzzed")


DAMAGE = st.lists(
    st.tuples(
        st.sampled_from(["drop", "double", "copy", "garble", "insert", "swap"]),
        st.integers(0, 100),
        st.binary(max_size=30),
    ),
    max_size=4,
)


def damaged(lines: list[bytes], damage: list[tuple[str, int, bytes]]) -> list[bytes]:
    lines = list(lines)
    for kind, place, noise in damage:
        index = place % max(len(lines), 1)
        if kind == "insert" or not lines:
            lines.insert(index, noise + b"\n")
        elif kind == "drop":
            del lines[index]
        elif kind == "double":
            lines.insert(index, lines[index])
        elif kind == "copy":
            lines.insert(len(noise) % len(lines), lines[index])
        elif kind == "swap":
            lines[index], lines[0] = lines[0], lines[index]
        else:
            cut = place % len(lines[index])
            lines[index] = lines[index][:cut] + noise + lines[index][cut + len(noise) :]
    return lines


def read_everything(folder: Path) -> list[TaskWeaverEvent]:
    """Call all that a reader offers; return the events."""
    try:
        with JournalReader(folder) as reader:
            events = list(reader.events())
            list(reader.events(with_output=False))
            for after in (1, 7, reader.last_seq):
                list(reader.events(after))
            assert len(reader.last_page(5)) <= 5
            assert reader.epoch >= 1
            reader.read(3, 100)
    except SessionError:
        return []
    numbers = [event.seq for event in events]
    assert numbers == sorted(set(numbers))
    return intact(events)


@settings(max_examples=300, deadline=None)
@given(damage=DAMAGE, cut=st.integers(0, 50))
def test_what_is_intact_is_read_whatever_became_of_the_rest(
    journal_lines: list[bytes], scratch: Path, damage: list[tuple[str, int, bytes]], cut: int
) -> None:
    content = b"".join(damaged(journal_lines, damage))
    content = content[: len(content) - cut]
    (scratch / JOURNAL).write_bytes(content)

    events = read_everything(scratch)

    assert len(events) <= 25 + len(damage)
    kinds = {kind for kind, _, _ in damage}
    # A copy in a wrong place is believed no more than any number there, so the line must be left.
    is_left = not cut and kinds <= {"double", "insert", "copy"}
    if is_left or kinds <= {"double", "insert", "drop"}:
        left = set(content.splitlines(keepends=True)) & set(journal_lines)
        expected = [line for line in journal_lines if line in left and b'"event"' in line]
        assert [event.seq for event in events] == [json.loads(line)["seq"] for line in expected]


@settings(max_examples=300, deadline=None)
@given(content=st.binary(max_size=300) | st.text('{}[]":,0eE-\n\\u', max_size=300).map(str.encode))
def test_no_bytes_break_the_reader_or_the_next_owner(scratch: Path, content: bytes) -> None:
    (scratch / JOURNAL).write_bytes(content)

    read_everything(scratch)
    try:
        heard = written(scratch, ["goes on"])
    except SessionError:
        return
    assert [event.msg for event in read(scratch, heard[0].seq - 1)] == ["goes on"]


CORPUS = {
    "a number that no event has": b'{"event":"session_notice","seq":99999999999999999999,"at":1}\n',
    "a number below one": b'{"event":"session_notice","seq":-1,"at":1}\n',
    "deep nesting": b'{"event":"session_notice","seq":1,"at":1,"extra":' + b"[" * 100_000 + b"\n",
    "a size that fills the memory": b'{"event":"post_execution_output","seq":1,"at":1,"round_id":"r'
    b'","post_id":"p","extra":{"stream":"stdout","execution_id":"e","offset":0,"size":1e30}}\n',
    "an endless size": b'{"event":"post_execution_output","seq":1,"at":1,"round_id":"r","post_id":'
    b'"p","extra":{"stream":"stdout","execution_id":"e","offset":4611686018427387903,"size":4611686'
    b"018427387903}}\n",
    "another folder": b'{"event":"post_execution_output","seq":1,"at":1,"round_id":"r","post_id":"p'
    b'","extra":{"stream":"stdout","execution_id":"../../../etc/passwd","offset":0,"size":10}}\n',
    "a huge number": b'{"event":"session_notice","seq":1,"at":' + b"9" * 5000 + b"}\n",
    "an epoch that is none": b'{"epoch":true}\n{"epoch":-4}\n{"epoch":"x"}\n{"epoch":1e999}\n',
    "no end of line": b"x" * 200_000,
    "nothing but ends of lines": b"\n" * 100_000,
    "a zeroed block": b"\x00" * 4096 + b"\n",
}


@pytest.mark.parametrize("name", CORPUS)
def test_damage_that_was_seen_before_is_survived(tmp_path: Path, name: str) -> None:
    heard = written(tmp_path, ["one", "two"])
    header, *rest = (tmp_path / JOURNAL).read_bytes().splitlines(keepends=True)
    (tmp_path / JOURNAL).write_bytes(header + CORPUS[name] + b"\n" + b"".join(rest))
    (tmp_path / RECORDS).mkdir(parents=True)
    (tmp_path / RECORDS / "e.stdout").write_bytes(b"short")

    events = read_everything(tmp_path)

    assert [event for event in events if event.seq == 2] == heard[1:]
    assert not any("root:" in event.msg for event in events)
