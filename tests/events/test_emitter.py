"""Events are numbered without gaps and heard by all handlers in one order, late ones included."""

from __future__ import annotations

import hashlib
import logging
import queue
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskweaver_ext.ces.execution.results import ExecutionId
from taskweaver_ext.conversation import AttachmentType, Post, PostId, RoundId
from taskweaver_ext.errors import ProtocolError, SessionError
from taskweaver_ext.events.emitter import PostEventProxy, SessionEventEmitter
from taskweaver_ext.events.extras import CodeExecExtra, EventExtra
from taskweaver_ext.events.types import (
    EventScope,
    PostEventType,
    RoundEventType,
    SessionEventHandler,
    SessionEventHandlerBase,
    SessionEventType,
    TaskWeaverEvent,
)

LIMIT_SECONDS = 120
ROUND = RoundId("round-1")
KIB = 1024


class Recorder(SessionEventHandler):
    """Keep every event; optionally do something else while hearing it."""

    def __init__(self, reaction: Callable[[TaskWeaverEvent], None] | None = None) -> None:
        self.events: list[TaskWeaverEvent] = []
        self._reaction = reaction

    def handle(self, event: TaskWeaverEvent) -> None:
        self.events.append(event)
        if self._reaction is not None:
            self._reaction(event)

    @property
    def numbers(self) -> list[int]:
        return [event.seq for event in self.events]

    @property
    def messages(self) -> list[str]:
        return [event.msg for event in self.events]


def say(emitter: SessionEventEmitter, msg: str) -> None:
    emitter.emit(TaskWeaverEvent(EventScope.round, RoundEventType.round_new_post, ROUND, None, msg))


@contextmanager
def running(*targets: Callable[[], None]) -> Iterator[None]:
    """Run each target on a thread of its own; at the end all have ended, or the test fails."""
    failures: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

    def run(target: Callable[[], None]) -> None:
        try:
            target()
        except BaseException as error:  # noqa: BLE001 - handed to the test's own thread
            failures.put(error)

    threads = [threading.Thread(target=run, args=(target,), daemon=True) for target in targets]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join(LIMIT_SECONDS)
    assert not any(thread.is_alive() for thread in threads)
    if not failures.empty():
        raise failures.get()


def wait_for(event: threading.Event) -> None:
    assert event.wait(LIMIT_SECONDS)


# --- shapes ---------------------------------------------------------------------------------------


def test_event_types_are_spelled_as_in_taskweaver_plus_ours() -> None:
    assert [member.value for member in EventScope] == ["session", "round", "post"]
    assert {member.value for member in SessionEventType} == {
        "session_start",
        "session_end",
        "session_new_round",
        "session_events_missed",
        "session_late_output",
        "session_question",
        "session_answered",
        "session_context_update",
        "session_memory_update",
        "session_settings",
        "session_folder",
        "session_files_added",
        "session_notice",
        "session_renamed",
    }
    assert {member.value for member in RoundEventType} == {
        "round_start",
        "round_end",
        "round_error",
        "round_new_post",
    }
    assert {member.value for member in PostEventType} == {
        "post_start",
        "post_end",
        "post_error",
        "post_status_update",
        "post_send_to_update",
        "post_message_update",
        "post_attachment_update",
        "post_execution_output",
        "post_execution_event",
        "post_code_exec",
        "post_code_block",
    }


@pytest.mark.parametrize(
    ("scope", "kind", "round_id", "post_id", "complaint"),
    [
        (EventScope.post, RoundEventType.round_start, "r", "p", "not an event of a post"),
        (EventScope.session, PostEventType.post_end, "r", "p", "not an event of a session"),
        (EventScope.round, RoundEventType.round_start, None, None, "id of its round"),
        (EventScope.post, PostEventType.post_end, None, "p", "id of its round"),
        (EventScope.post, PostEventType.post_end, "r", None, "id of its post"),
    ],
)
def test_an_event_that_no_handler_could_place_is_refused(
    scope: EventScope,
    kind: RoundEventType | PostEventType,
    round_id: RoundId | None,
    post_id: PostId | None,
    complaint: str,
) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        TaskWeaverEvent(scope, kind, round_id, post_id, "")


def test_a_handler_written_for_taskweaver_hears_each_scope_by_its_method() -> None:
    calls: list[tuple[object, ...]] = []

    class OldHandler(SessionEventHandlerBase):
        def handle_session(self, type, msg, extra, **kwargs):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN003, ANN202
            calls.append((type, msg, extra))

        def handle_round(self, type, msg, extra, round_id, **kwargs):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN003, ANN202
            calls.append((type, msg, round_id))

        def handle_post(self, type, msg, extra, post_id, round_id, **kwargs):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN003, ANN202
            calls.append((type, msg, extra, post_id, round_id))

    emitter = SessionEventEmitter()
    with emitter.handle_events_ctx(OldHandler()):
        emitter.emit(
            TaskWeaverEvent(EventScope.session, SessionEventType.session_start, None, None, "hi")
        )
        emitter.start_round(ROUND)
        post = emitter.create_post_proxy("Planner").end()

    assert calls == [
        (SessionEventType.session_start, "hi", {}),
        (RoundEventType.round_start, "Round started", ROUND),
        (PostEventType.post_start, "Post created", {"role": "Planner"}, post.id, ROUND),
        (PostEventType.post_end, "", {}, post.id, ROUND),
    ]


def test_a_base_handler_may_leave_out_every_method() -> None:
    emitter = SessionEventEmitter()

    with emitter.subscribe(SessionEventHandlerBase()):
        emitter.start_round(ROUND)
        emitter.create_post_proxy("Planner").end()
        emitter.emit(
            TaskWeaverEvent(EventScope.session, SessionEventType.session_end, None, None, "")
        )

    assert emitter.last_seq == 4


# --- the post proxy and rounds --------------------------------------------------------------------


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def proxy(recorder: Recorder) -> Iterator[PostEventProxy]:
    emitter = SessionEventEmitter()
    emitter.start_round(ROUND)
    with emitter.subscribe(recorder):
        yield emitter.create_post_proxy("CodeInterpreter")


def last(recorder: Recorder) -> tuple[object, str, EventExtra]:
    event = recorder.events[-1]
    return event.t, event.msg, event.extra


def test_a_post_is_built_piece_by_piece_and_every_piece_is_heard(
    proxy: PostEventProxy, recorder: Recorder
) -> None:
    proxy.update_status("thinking")
    assert last(recorder) == (PostEventType.post_status_update, "thinking", {})

    proxy.update_send_to("Planner")
    assert last(recorder) == (PostEventType.post_send_to_update, "", {"role": "Planner"})

    proxy.update_message("Hel", is_end=False)
    assert last(recorder) == (PostEventType.post_message_update, "Hel", {"is_end": False})

    proxy.update_message("lo")
    assert last(recorder) == (PostEventType.post_message_update, "lo", {"is_end": True})

    post = proxy.end("bye")
    assert last(recorder) == (PostEventType.post_end, "bye", {})
    assert (post.message, post.send_from, post.send_to) == ("Hello", "CodeInterpreter", "Planner")
    assert {event.post_id for event in recorder.events} == {post.id}
    assert {event.round_id for event in recorder.events} == {ROUND}


def test_an_attachment_grows_by_its_id_and_always_names_its_type(
    proxy: PostEventProxy, recorder: Recorder
) -> None:
    code = proxy.update_attachment("print(", AttachmentType.reply_content, is_end=False)
    proxy.update_attachment("hm", AttachmentType.thought)
    proxy.update_attachment("1)", id=code.id, extra={"lines": 1})

    assert last(recorder) == (
        PostEventType.post_attachment_update,
        "1)",
        {
            "type": AttachmentType.reply_content,
            "extra": {"lines": 1},
            "id": code.id,
            "is_end": True,
        },
    )
    assert [attachment.content for attachment in proxy.post.attachment_list] == ["print(1)", "hm"]
    assert code.extra == {"lines": 1}


def test_output_of_running_code_is_an_event_of_its_post(
    proxy: PostEventProxy, recorder: Recorder
) -> None:
    proxy.emit_execution_output("stderr", "oops\n", ExecutionId("exec-7"), offset=3)
    proxy.emit_execution_output("stdout", "fine\n")

    assert [(event.t, event.msg, event.extra) for event in recorder.events[-2:]] == [
        (
            PostEventType.post_execution_output,
            "oops\n",
            {"stream": "stderr", "text": "oops\n", "execution_id": "exec-7", "offset": 3},
        ),
        (
            PostEventType.post_execution_output,
            "fine\n",
            {"stream": "stdout", "text": "fine\n", "execution_id": proxy.post.id, "offset": 0},
        ),
    ]


def test_a_piece_of_the_execution_panel_is_an_event_of_its_post(
    proxy: PostEventProxy, recorder: Recorder
) -> None:
    extra: CodeExecExtra = {
        "marker": "subsystem",
        "sub_type": "code_exec.code",
        "format": "text",
        "title": "Generated Code",
        "index": 0,
        "completed": False,
        "execution_id": ExecutionId("exec-7"),
        "language": "python",
    }

    proxy.emit_code_exec("print(1)\n", extra)

    assert last(recorder) == (PostEventType.post_code_exec, "print(1)\n", extra)


def test_an_error_takes_the_place_of_what_the_post_said(
    proxy: PostEventProxy, recorder: Recorder
) -> None:
    proxy.update_attachment("hm", AttachmentType.thought)
    proxy.update_message("Hello")

    proxy.error("The model did not answer.")

    assert last(recorder) == (PostEventType.post_error, "The model did not answer.", {})
    assert proxy.post.message == "The model did not answer."
    assert proxy.post.attachment_list == []


def test_misuse_of_a_post_is_refused_by_name(proxy: PostEventProxy, recorder: Recorder) -> None:
    thought = proxy.update_attachment("hm", AttachmentType.thought)
    proxy.update_message("done")
    heard = list(recorder.events)

    with pytest.raises(SessionError, match="complete already"):
        proxy.update_message("more")
    with pytest.raises(SessionError, match="needs a type"):
        proxy.update_attachment("x")
    with pytest.raises(SessionError, match="has no attachment 'atta-0'"):
        proxy.update_attachment("x", id="atta-0")
    with pytest.raises(SessionError, match="has no plan attachment"):
        proxy.update_attachment("x", AttachmentType.plan, id=thought.id)

    assert recorder.events == heard
    assert (proxy.post.message, thought.content) == ("done", "hm")


def test_rounds_begin_fail_and_end_one_after_another(recorder: Recorder) -> None:
    emitter = SessionEventEmitter()
    with emitter.subscribe(recorder):
        emitter.start_round(ROUND)
        emitter.emit_error("no model")
        emitter.end_round(ROUND)
        emitter.start_round(RoundId("round-2"))

    assert [(event.t, event.msg, event.round_id) for event in recorder.events] == [
        (RoundEventType.round_start, "Round started", ROUND),
        (RoundEventType.round_error, "no model", ROUND),
        (RoundEventType.round_end, "Round ended", ROUND),
        (RoundEventType.round_start, "Round started", "round-2"),
    ]


def test_misuse_of_rounds_is_refused_by_name() -> None:
    emitter = SessionEventEmitter()

    with pytest.raises(SessionError, match="No round is under way"):
        emitter.create_post_proxy("Planner")
    with pytest.raises(SessionError, match="No round is under way"):
        emitter.emit_error("x")
    emitter.start_round(ROUND)
    with pytest.raises(SessionError, match="'round-1' has not ended"):
        emitter.start_round(RoundId("round-2"))
    with pytest.raises(SessionError, match="'round-2' cannot end"):
        emitter.end_round(RoundId("round-2"))

    assert emitter.last_seq == 1


# --- numbers, order, replay -----------------------------------------------------------------------


def test_events_are_numbered_from_one_also_without_handlers() -> None:
    emitter = SessionEventEmitter()
    recorder = Recorder()
    event = TaskWeaverEvent(EventScope.session, SessionEventType.session_start, None, None, "")

    emitter.emit(event)
    emitter.emit(event)
    with emitter.subscribe(recorder):
        emitter.emit(event)

    assert recorder.numbers == [3]
    assert event.seq == 0


@pytest.mark.parametrize("after", range(6))
def test_a_late_handler_hears_what_came_after_the_number_it_names(after: int) -> None:
    emitter = SessionEventEmitter()
    for number in range(1, 6):
        say(emitter, f"event {number}")
    recorder = Recorder()

    with emitter.subscribe(recorder, after=after):
        replayed = recorder.numbers
        say(emitter, "event 6")

    assert replayed == list(range(after + 1, 6))
    assert recorder.numbers == list(range(after + 1, 7))
    assert recorder.messages == [f"event {number}" for number in recorder.numbers]


@pytest.mark.parametrize("after", [-1, 1])
def test_going_on_from_a_number_that_never_was_is_refused(after: int) -> None:
    emitter = SessionEventEmitter()

    with (
        pytest.raises(SessionError, match=f"no event {after} to go on from; the newest is 0"),
        emitter.subscribe(Recorder(), after=after),
    ):
        pass


def test_the_last_ten_thousand_events_are_kept_and_what_is_gone_is_named() -> None:
    emitter = SessionEventEmitter()
    for _ in range(10_005):
        say(emitter, "")
    whole, cut = Recorder(), Recorder()

    with emitter.subscribe(whole, after=5), emitter.subscribe(cut, after=2):
        pass

    assert whole.numbers == list(range(6, 10_006))
    marker = cut.events[0]
    assert (marker.t, marker.extra) == (
        SessionEventType.session_events_missed,
        {"first_seq": 3, "last_seq": 5},
    )
    assert cut.numbers == list(range(5, 10_006))


def test_what_is_kept_is_bounded_by_its_text_too() -> None:
    emitter = SessionEventEmitter()
    emitter.start_round(ROUND)
    proxy = emitter.create_post_proxy("CodeInterpreter")
    for number in range(400):
        proxy.emit_execution_output("stdout", f"{number:09}|" + "x" * (64 * KIB - 10))
    recorder = Recorder()

    with emitter.subscribe(recorder, after=0):
        pass

    kept = recorder.events[1:]
    assert recorder.events[0].t is SessionEventType.session_events_missed
    assert 15 * KIB * KIB < sum(len(event.msg) for event in kept) <= 16 * KIB * KIB
    assert recorder.numbers[1:] == list(range(403 - len(kept), 403))


def test_text_in_extra_counts_and_the_newest_event_is_always_kept() -> None:
    emitter = SessionEventEmitter(max_kept_bytes=10_000)
    emitter.start_round(ROUND)
    proxy = emitter.create_post_proxy("Planner")
    proxy.update_attachment(
        "see", AttachmentType.image_url, extra={"urls": ["data:" + "A" * 50_000]}
    )
    recorder = Recorder()

    with emitter.subscribe(recorder, after=2):
        pass
    say(emitter, "small")
    with emitter.subscribe(recorder, after=3):
        pass
    with emitter.subscribe(recorder, after=2):
        pass

    assert [event.t.value for event in recorder.events] == [
        "post_attachment_update",
        "round_new_post",
        "session_events_missed",
        "round_new_post",
    ]


@given(
    limit=st.integers(1, 20),
    emitted=st.integers(0, 60),
    more=st.integers(0, 10),
    data=st.data(),
)
def test_replay_has_neither_gap_nor_duplicate_for_any_history(
    limit: int, emitted: int, more: int, data: st.DataObject
) -> None:
    emitter = SessionEventEmitter(max_kept_events=limit)
    for _ in range(emitted):
        say(emitter, "")
    after = data.draw(st.integers(0, emitted))
    recorder = Recorder()

    with emitter.subscribe(recorder, after=after):
        for _ in range(more):
            say(emitter, "")

    expected = list(range(after + 1, emitted + more + 1))
    missed = max(0, emitted - limit - after)
    if missed:
        assert recorder.events[0].extra == {"first_seq": after + 1, "last_seq": after + missed}
        expected = expected[missed - 1 :]
    assert recorder.numbers == expected


def test_events_that_handlers_emit_come_after_the_one_they_heard_for_all() -> None:
    emitter = SessionEventEmitter()
    first, third = Recorder(), Recorder()

    def answer(event: TaskWeaverEvent) -> None:
        if not event.msg.startswith("re: re:"):
            say(emitter, f"re: {event.msg}")

    with (
        emitter.subscribe(first),
        emitter.subscribe(Recorder(answer)),
        emitter.subscribe(third),
    ):
        say(emitter, "a")
        say(emitter, "b")

    expected = ["a", "re: a", "re: re: a", "b", "re: b", "re: re: b"]
    assert first.messages == third.messages == expected
    assert first.numbers == third.numbers == [1, 2, 3, 4, 5, 6]


def test_many_threads_and_answering_handlers_make_one_order_for_all() -> None:
    emitter = SessionEventEmitter(max_kept_events=64)
    threads, each = 8, 500

    def answer(event: TaskWeaverEvent) -> None:
        if event.seq % 7 == 0 and not event.msg.startswith("re:"):
            say(emitter, f"re: {event.msg}")

    def speaker(name: int) -> Callable[[], None]:
        def speak() -> None:
            for number in range(each):
                say(emitter, f"{name} {number}")

        return speak

    recorders = [Recorder(), Recorder(answer), Recorder()]
    with (
        emitter.subscribe(recorders[0]),
        emitter.subscribe(recorders[1]),
        emitter.subscribe(recorders[2]),
        running(*(speaker(name) for name in range(threads))),
    ):
        pass

    assert recorders[0].numbers == list(range(1, emitter.last_seq + 1))
    assert recorders[0].events == recorders[1].events == recorders[2].events
    for name in range(threads):
        own = [msg for msg in recorders[0].messages if msg.startswith(f"{name} ")]
        assert own == [f"{name} {number}" for number in range(each)]


def test_handlers_that_come_and_go_while_threads_emit_hear_without_gap_or_duplicate() -> None:
    emitter = SessionEventEmitter(max_kept_events=200)
    is_over = threading.Event()
    heard: queue.SimpleQueue[tuple[int, Recorder]] = queue.SimpleQueue()

    def speak() -> None:
        for number in range(3000):
            say(emitter, str(number))

    def come_and_go() -> None:
        choice = random.Random(threading.get_ident())
        while not is_over.is_set():
            recorder = Recorder()
            after = max(0, emitter.last_seq - choice.randrange(400))
            with emitter.subscribe(recorder, after=after):
                before = emitter.last_seq
            assert not recorder.numbers or recorder.numbers[-1] >= before
            heard.put((after, recorder))

    with running(come_and_go, come_and_go, come_and_go):
        with running(speak, speak):
            pass
        is_over.set()

    count = heard.qsize()
    assert count > 0
    for _ in range(count):
        after, recorder = heard.get()
        if recorder.events and recorder.events[0].t is SessionEventType.session_events_missed:
            assert recorder.events[0].extra == {
                "first_seq": after + 1,
                "last_seq": recorder.numbers[0],
            }
            after = recorder.numbers[0] - 1
        assert recorder.numbers == list(range(after + 1, after + 1 + len(recorder.events)))


def test_no_handler_is_ever_called_by_two_threads_at_once() -> None:
    emitter = SessionEventEmitter()
    busy = threading.Lock()
    overlaps: list[int] = []
    enough_to_let_other_threads_run = bytes(64 * KIB)

    def check(event: TaskWeaverEvent) -> None:
        if not busy.acquire(blocking=False):
            overlaps.append(event.seq)
            return
        hashlib.sha256(enough_to_let_other_threads_run)
        busy.release()

    checked = Recorder(check)

    def speak() -> None:
        for _ in range(300):
            say(emitter, "")

    def replay() -> None:
        for _ in range(10):
            with emitter.subscribe(checked, after=emitter.last_seq // 2):
                pass

    with emitter.subscribe(checked), running(speak, speak, replay):
        pass

    assert overlaps == []


def test_no_lock_is_held_while_a_handler_runs() -> None:
    emitter = SessionEventEmitter()
    late = Recorder()

    def use_the_emitter() -> None:
        say(emitter, "from another thread")
        emitter.register(late)

    def let_another_thread_in(event: TaskWeaverEvent) -> None:
        if event.msg == "go":
            with running(use_the_emitter):
                pass

    recorder = Recorder(let_another_thread_in)
    with emitter.subscribe(recorder):
        say(emitter, "go")
        say(emitter, "end")

    assert recorder.messages == ["go", "from another thread", "end"]
    assert late.messages == ["end"]


def test_emitting_returns_at_once_while_another_thread_dispatches() -> None:
    emitter = SessionEventEmitter()
    is_inside, may_leave = threading.Event(), threading.Event()

    def hold(event: TaskWeaverEvent) -> None:
        if event.msg == "hold":
            is_inside.set()
            wait_for(may_leave)

    recorder = Recorder(hold)
    with emitter.subscribe(recorder), running(lambda: say(emitter, "hold")):
        wait_for(is_inside)
        say(emitter, "next")
        heard_meanwhile = recorder.messages
        may_leave.set()

    assert heard_meanwhile == ["hold"]
    assert recorder.messages == ["hold", "next"]


def test_emitting_waits_while_a_slow_handler_has_too_much_to_hear() -> None:
    emitter = SessionEventEmitter(max_kept_events=10)
    is_inside, may_leave, has_said_all = threading.Event(), threading.Event(), threading.Event()

    def hold(event: TaskWeaverEvent) -> None:
        if event.seq == 1:
            is_inside.set()
            wait_for(may_leave)

    def say_much() -> None:
        for number in range(50):
            say(emitter, str(number))
        has_said_all.set()

    recorder = Recorder(hold)
    with emitter.subscribe(recorder), running(lambda: say(emitter, "hold")):
        wait_for(is_inside)
        with running(say_much):
            wait_until(lambda: emitter.last_seq == 12)
            was_held_back = not has_said_all.wait(0.2)
            numbers_meanwhile = emitter.last_seq
            may_leave.set()

    assert was_held_back
    assert numbers_meanwhile == 12
    assert recorder.numbers == list(range(1, 52))


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for what is not announced; the pause only keeps the wait from being busy."""
    pause = threading.Event()
    for _ in range(LIMIT_SECONDS * 1000):
        if condition():
            return
        pause.wait(0.001)
    pytest.fail("the condition never came true")


# --- handlers that fail or leave ------------------------------------------------------------------


def test_a_handler_that_raises_is_logged_once_and_the_others_still_hear(
    caplog: pytest.LogCaptureFixture,
) -> None:
    emitter = SessionEventEmitter()

    def fail(event: TaskWeaverEvent) -> None:
        raise ValueError(f"cannot draw {event.msg}")

    failing, other = Recorder(fail), Recorder()
    with caplog.at_level(logging.DEBUG), emitter.subscribe(failing), emitter.subscribe(other):
        say(emitter, "a")
        say(emitter, "b")

    assert failing.messages == other.messages == ["a", "b"]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "failed on event 1 (round_new_post)" in caplog.text
    assert "cannot draw a" in caplog.text


def test_an_interrupt_inside_a_handler_loses_nothing_for_the_others() -> None:
    emitter = SessionEventEmitter()
    other = Recorder()

    def interrupt(event: TaskWeaverEvent) -> None:
        if event.msg == "a":
            raise KeyboardInterrupt

    interrupted = Recorder(interrupt)
    with emitter.subscribe(interrupted), emitter.subscribe(other):
        with pytest.raises(KeyboardInterrupt):
            say(emitter, "a")
        say(emitter, "b")

    assert interrupted.messages == other.messages == ["a", "b"]


def test_an_interrupt_while_a_round_ends_leaves_the_next_one_possible() -> None:
    emitter = SessionEventEmitter()
    emitter.start_round(ROUND)

    def interrupt(event: TaskWeaverEvent) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), emitter.subscribe(Recorder(interrupt)):
        emitter.end_round(ROUND)

    emitter.start_round(RoundId("round-2"))
    assert emitter.current_round_id == "round-2"


def test_an_interrupt_while_a_round_starts_leaves_the_next_one_possible() -> None:
    emitter = SessionEventEmitter()

    def interrupt(event: TaskWeaverEvent) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), emitter.subscribe(Recorder(interrupt)):
        emitter.start_round(ROUND)

    emitter.start_round(RoundId("round-2"))
    assert emitter.current_round_id == "round-2"


def test_a_handler_is_unregistered_when_its_block_fails() -> None:
    emitter = SessionEventEmitter()
    recorder = Recorder()

    def fail_inside() -> None:
        with emitter.handle_events_ctx(recorder):
            say(emitter, "in")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()
    say(emitter, "after")

    assert recorder.messages == ["in"]


def test_leaving_waits_until_everything_emitted_before_was_heard() -> None:
    emitter = SessionEventEmitter()
    is_inside, may_leave = threading.Event(), threading.Event()

    def hold(event: TaskWeaverEvent) -> None:
        if event.msg == "hold":
            is_inside.set()
            wait_for(may_leave)

    holder, leaving = Recorder(hold), Recorder()
    with emitter.subscribe(holder), running(lambda: say(emitter, "hold")):
        wait_for(is_inside)
        with emitter.subscribe(leaving):
            say(emitter, "last words")
            may_leave.set()
        heard_on_leaving = leaving.messages

    assert heard_on_leaving == ["last words"]


def test_leaving_does_not_wait_for_other_handlers() -> None:
    emitter = SessionEventEmitter()
    is_inside, may_leave = threading.Event(), threading.Event()

    def hold(event: TaskWeaverEvent) -> None:
        is_inside.set()
        wait_for(may_leave)

    leaving = Recorder()
    emitter.register(Recorder(hold))
    with running(lambda: say(emitter, "hold")):
        wait_for(is_inside)
        with emitter.subscribe(leaving):
            say(emitter, "heard all the same")
        heard_on_leaving = list(leaving.messages)
        may_leave.set()

    assert heard_on_leaving == ["heard all the same"]


def test_leaving_does_not_wait_for_ever_for_a_handler_that_hangs(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taskweaver_ext.events.dispatcher.MAX_WAIT_SECONDS", 0.05)
    emitter = SessionEventEmitter()
    is_inside, may_leave = threading.Event(), threading.Event()

    def hold(event: TaskWeaverEvent) -> None:
        is_inside.set()
        wait_for(may_leave)

    hanging = Recorder(hold)
    emitter.register(hanging)
    with running(lambda: say(emitter, "hold")):
        wait_for(is_inside)
        say(emitter, "unheard")
        emitter.unregister(hanging)
        may_leave.set()

    assert hanging.messages == ["hold"]
    assert "was unregistered before it had heard everything" in caplog.text


def test_a_handler_may_leave_from_inside_a_call() -> None:
    emitter = SessionEventEmitter()

    def leave(event: TaskWeaverEvent) -> None:
        say(emitter, "unheard by the handler that left")
        emitter.unregister(leaver)

    leaver, other = Recorder(leave), Recorder()
    emitter.register(leaver)
    emitter.register(other)
    say(emitter, "a")

    assert leaver.messages == ["a"]
    assert other.messages == ["a", "unheard by the handler that left"]


def test_unregistering_a_stranger_is_refused_and_no_handler_at_all_is_fine() -> None:
    emitter = SessionEventEmitter()

    with pytest.raises(SessionError, match="is not registered"):
        emitter.unregister(Recorder())
    with emitter.handle_events_ctx(None):
        say(emitter, "a")

    assert emitter.last_seq == 1


def test_a_post_proxy_can_be_made_for_a_post_that_exists() -> None:
    emitter = SessionEventEmitter()
    recorder = Recorder()
    post = Post.create("", "User", "Planner")

    with emitter.subscribe(recorder):
        PostEventProxy(emitter, ROUND, post).update_message("hi")

    assert post.message == "hi"
    assert [event.post_id for event in recorder.events] == [post.id, post.id]
