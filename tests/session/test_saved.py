"""Sessions on the disk are found, listed and read, whatever became of their folders."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.conversation import AttachmentType, Post, Round
from taskweaver_ext.errors import ConfigError, SessionError
from taskweaver_ext.events.journal_lines import JOURNAL
from taskweaver_ext.events.types import RoundEventType, SessionEventType
from taskweaver_ext.llm.scripted import ScriptedModel
from taskweaver_ext.session.folders import SECONDS_PER_DAY
from taskweaver_ext.session.rebuilt import CUT_OFF, FRESH_KERNEL, VARIABLES_LOST, RebuiltSession
from taskweaver_ext.session.saved import (
    SavedSession,
    delete_session,
    find_folder,
    find_session,
    list_sessions,
    rename_session,
)
from tests.support.conversations import Listener, answer, attached

SETTINGS = {"workspace.workspace_path": "kept"}

TASKWEAVER_ROUND = {
    "id": "round-20240102-030405-abcd",
    "user_query": "Sum up a.csv",
    "state": "finished",
    "post_list": [
        {
            "id": "post-1",
            "message": "Sum up a.csv",
            "send_from": "User",
            "send_to": "Planner",
            "attachment_list": [],
        },
        {
            "id": "post-2",
            "message": "It is 42.",
            "send_from": "Planner",
            "send_to": "User",
            "attachment_list": [
                {"id": "a", "type": "plan", "content": "1. sum", "extra": None},
                {"id": "b", "type": "board_of_later_times", "content": {"x": 1}, "extra": None},
            ],
        },
    ],
}


def open_app(project: Path, *replies: str) -> TaskWeaverApp:
    return TaskWeaverApp(project, SETTINGS, model=ScriptedModel(replies))


def ask(project: Path, session_id: str, message: str) -> Path:
    with open_app(project, answer("hello")) as app:
        session = app.get_session(session_id)
        assert session.send_message(message).is_done
        return session.session_dir


def old_session(project: Path, session_id: str = "old") -> Path:
    folder = project / "kept" / "sessions" / session_id
    folder.mkdir(parents=True)
    path = folder / f"{session_id}_{TASKWEAVER_ROUND['id']}.json"
    path.write_text(json.dumps(TASKWEAVER_ROUND))
    return folder


def test_a_list_says_what_sessions_are_about_the_last_one_first(tmp_path: Path) -> None:
    first = ask(tmp_path, "first", "What is\nthe answer? " + "word " * 100)
    yesterday = time.time() - SECONDS_PER_DAY
    for path in (first, *first.iterdir()):
        os.utime(path, (yesterday, yesterday))
    ask(tmp_path, "second", "And the question?")

    sessions = list_sessions(tmp_path / "kept")

    assert [one.session_id for one in sessions] == ["second", "first"]
    assert sessions[1].title.startswith("What is the answer? word")
    assert len(sessions[1].title) == 60
    assert [one.round_count for one in sessions] == [1, 1]
    assert all(one.size_bytes and not one.opened_by for one in sessions)


def test_a_session_that_is_open_is_listed_with_who_has_it_and_not_deleted(tmp_path: Path) -> None:
    with open_app(tmp_path) as app:
        folder = app.get_session("mine").session_dir

        [listed] = list_sessions(tmp_path / "kept")
        with pytest.raises(SessionError, match=f"is open in process {os.getpid()}"):
            delete_session(folder)

    assert listed.opened_by.startswith(f"process {os.getpid()} ")
    delete_session(folder)
    assert list_sessions(tmp_path / "kept") == []


def test_a_session_is_found_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    for name in ("a-1", "a-2", "b"):
        old_session(tmp_path, name)
    workspace = tmp_path / "kept"

    assert find_session(workspace, "b").session_id == "b"
    assert find_session(workspace, "a-1").session_id == "a-1"
    with pytest.raises(SessionError, match="2 sessions begin with 'a': a-2, a-1"):
        find_folder(workspace, "a")
    with pytest.raises(SessionError, match="no session 'c' .* There are: b, a-2, a-1"):
        find_folder(workspace, "c")


@pytest.mark.parametrize("trick", ["", ".", "..", "../kept", "/", "a/../b", "x\0y", "*"])
def test_an_id_is_no_way_to_another_folder(tmp_path: Path, trick: str) -> None:
    old_session(tmp_path)
    with pytest.raises(SessionError, match="no session"):
        find_folder(tmp_path / "kept", trick)
    with open_app(tmp_path) as app, pytest.raises(ConfigError):
        app.get_session(trick or "/")


def test_a_link_is_no_session(tmp_path: Path) -> None:
    elsewhere = old_session(tmp_path / "elsewhere")
    (tmp_path / "kept" / "sessions").mkdir(parents=True)
    (tmp_path / "kept" / "sessions" / "link").symlink_to(elsewhere)

    assert list_sessions(tmp_path / "kept") == []


def test_rounds_of_taskweaver_are_read_as_events(tmp_path: Path) -> None:
    saved = SavedSession(old_session(tmp_path))

    events = list(saved.events())
    rebuilt = RebuiltSession.of(events)

    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert saved.title() == "Sum up a.csv"
    [chat_round] = rebuilt.rounds
    assert (chat_round.state, chat_round.post_list[-1].message) == ("finished", "It is 42.")
    assert attached(chat_round.post_list[-1], AttachmentType.text) == '{"x": 1}'
    assert list(saved.events(after=events[2].seq)) == events[3:]


def test_a_session_of_taskweaver_can_be_continued(tmp_path: Path) -> None:
    old_session(tmp_path)
    model = ScriptedModel([answer("42, as I said."), answer("Still 42.")])
    rounds: list[Round] = []
    for number in range(2):
        with TaskWeaverApp(tmp_path, SETTINGS, model=model) as app:
            session = app.get_session("old")
            assert session.send_message(f"What was it? {number}").is_done
            rounds = session.rounds

    told = "\n".join(message.content for message in model.requests[1])
    assert all(text in told for text in ("Sum up a.csv", "It is 42.", "42, as I said."))
    assert [one.user_query for one in rounds] == [
        "Sum up a.csv",
        "What was it? 0",
        "What was it? 1",
    ]


def test_a_broken_round_costs_only_itself(tmp_path: Path) -> None:
    folder = old_session(tmp_path)
    for name, text in {"0": "", "1": "[]", "2": "{", "3": '{"user_query": 1}'}.items():
        (folder / f"old_round-2025010{name}-000000-x.json").write_text(text)

    assert len(SavedSession(folder).round_starts()) == 1


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b'{"format":99,"session_id":"x"}\n', "has the format 99"),
        (None, "no session that could be read"),
    ],
)
def test_what_cannot_be_read_is_listed_with_the_reason(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    folder = tmp_path / "kept" / "sessions" / "odd"
    folder.mkdir(parents=True)
    if content is not None:
        (folder / JOURNAL).write_bytes(content)

    [listed] = list_sessions(tmp_path / "kept")

    assert problem in listed.problem
    with pytest.raises(SessionError, match=problem):
        find_session(tmp_path / "kept", "odd")


def test_a_journal_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "kept" / "sessions" / "new"
    folder.mkdir(parents=True)
    content = b'{"format":99,"session_id":"new"}\n{"event":"of tomorrow"}\n'
    (folder / JOURNAL).write_bytes(content)

    with open_app(tmp_path) as app:
        for _ in range(2):  # also the second time: nothing keeps it locked
            with pytest.raises(SessionError, match="Install a newer one"):
                app.get_session("new")

    assert (folder / JOURNAL).read_bytes() == content


def test_a_journal_without_a_line_that_makes_sense_is_a_session_without_a_past(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "kept" / "sessions" / "broken"
    folder.mkdir(parents=True)
    (folder / JOURNAL).write_bytes(b"nonsense\n\xff\xfe\n{]\n")

    with open_app(tmp_path, answer("hello")) as app:
        session = app.get_session("broken")
        assert session.rounds == []
        assert session.send_message("hi").is_done

    assert SavedSession(folder).title() == "hi"


def cut_off_after(folder: Path, *, event: str, count: int = 1) -> None:
    """Leave a journal as a process does that is killed after an event."""
    kept: list[bytes] = []
    for line in (folder / JOURNAL).read_bytes().splitlines(keepends=True):
        kept.append(line)
        count -= line.startswith(f'{{"event":"{event}"'.encode())
        if not count:
            break
    (folder / JOURNAL).write_bytes(b"".join(kept) + b'{"event":"torn')


def test_a_round_that_was_cut_off_has_failed_and_says_so_once(tmp_path: Path) -> None:
    folder = ask(tmp_path, "s", "Are you there?")
    cut_off_after(folder, event="post_message_update")

    model = ScriptedModel([answer("Now I am.")])
    with TaskWeaverApp(tmp_path, SETTINGS, model=model) as app:
        [chat_round] = app.get_session("s").rounds
    with TaskWeaverApp(tmp_path, SETTINGS, model=model) as app:
        session = app.get_session("s")
        assert session.send_message("And now?").is_done

    assert (chat_round.state, chat_round.error) == ("failed", CUT_OFF)
    assert [post.message for post in chat_round.post_list] == ["Are you there?"]
    events = list(SavedSession(folder).events())
    errors = [event for event in events if event.t is RoundEventType.round_error]
    assert [event.msg for event in errors] == [CUT_OFF]
    told = "\n".join(message.content for message in model.requests[0])
    assert "Are you there?" in told
    assert "(This round ended without an answer.)" in told
    assert "hello" not in told  # which was half said


def test_a_round_whose_end_was_not_written_has_failed(tmp_path: Path) -> None:
    folder = ask(tmp_path, "s", "one")
    ask(tmp_path, "s", "two")

    events = SavedSession(folder).events()
    rebuilt = RebuiltSession.of(
        event for event in events if event.t is not RoundEventType.round_end
    )

    assert [one.state for one in rebuilt.rounds] == ["failed", "created"]
    assert rebuilt.open_round is rebuilt.rounds[-1]


def test_questions_that_were_left_open_are_cancelled(tmp_path: Path) -> None:
    with open_app(tmp_path) as app:
        session = app.get_session("s")
        session.run_code("python", "input('name? ')", on_input=lambda _prompt, _secret: "me")
        folder = session.session_dir
    cut_off_after(folder, event="session_question")

    with open_app(tmp_path) as app:
        session = app.get_session("s")
        assert session.questions.open_questions == []

    rebuilt = RebuiltSession.of(SavedSession(folder).events())
    assert rebuilt.open_questions == {}
    answered = [
        event.extra["outcome"]
        for event in SavedSession(folder).events()
        if event.t is SessionEventType.session_answered and "outcome" in event.extra
    ]
    assert answered == ["cancelled"]


def test_people_and_the_agent_are_told_once_that_variables_are_lost(tmp_path: Path) -> None:
    def continue_session(*messages: str) -> tuple[list[str], list[Round]]:
        listener = Listener()
        with open_app(tmp_path, *(answer("yes") for _ in messages)) as app:
            session = app.get_session("s")
            with session.emitter.subscribe(listener, after=0):
                for message in messages:
                    session.send_message(message)
        kind = SessionEventType.session_notice
        return [event.msg for event in listener.events if event.t is kind], session.rounds

    assert continue_session("one") == ([], continue_session()[1])
    with open_app(tmp_path) as app:
        app.get_session("s").run_code("python", "x = 1")

    notices, _ = continue_session()  # nobody asks the agent
    later_notices, rounds = continue_session("two", "three")

    assert notices == [FRESH_KERNEL]
    assert later_notices in ([], [FRESH_KERNEL])  # what is kept of the past may be heard again
    posts = [one.post_list[0].message for one in rounds]
    assert [VARIABLES_LOST in message for message in posts] == [False, False, True, False]


def test_forgetting_and_counting_go_on(tmp_path: Path) -> None:
    with open_app(tmp_path, answer("one"), answer("two")) as app:
        session = app.get_session("s")
        session.send_message("remember")
        session.forget()
        session.send_message("and this?")
        used = session.usage.session

    with open_app(tmp_path) as app:
        session = app.get_session("s")
        assert [one.user_query for one in session.memory.rounds] == ["and this?"]
        assert [one.user_query for one in session.rounds] == ["remember", "and this?"]
        assert session.usage.session == used
        assert Post.from_dict(session.rounds[0].post_list[-1].to_dict()).message == "one"


def test_a_title_that_a_person_gives_is_the_one_of_lists(tmp_path: Path) -> None:
    with open_app(tmp_path, "") as app:
        session = app.get_session("s")
        session.run_code("python", "1 + 1")
        session.rename("  Sums\nof all kinds ")
    workspace = app.config.workspace.workspace_path

    assert list_sessions(workspace)[0].title == "Sums of all kinds"
    rename_session(find_folder(workspace, "s"), "Others")
    assert list_sessions(workspace)[0].title == "Others"
    rename_session(find_folder(workspace, "s"), "")
    assert list_sessions(workspace)[0].title == "1 + 1"
