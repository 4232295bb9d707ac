"""What a session has shown is in its journal, at whatever moment its process is killed.

And another process goes on from there.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.approval import Approval
from taskweaver_ext.ces.execution.events import DisplayProduced
from taskweaver_ext.conversation import Post
from taskweaver_ext.events.event_json import session_event_from_json
from taskweaver_ext.events.journal_reader import JournalReader
from taskweaver_ext.events.types import PostEventType, RoundEventType, TaskWeaverEvent
from taskweaver_ext.llm.chat_model import Message
from taskweaver_ext.llm.scripted import ScriptedModel
from taskweaver_ext.machine.child_environment import child_environment
from taskweaver_ext.roles.base.role import PLANNER
from taskweaver_ext.session.ownership import owner_of
from taskweaver_ext.session.rebuilt import RebuiltSession
from taskweaver_ext.session.saved import SavedSession
from tests.support.conversations import answer, code, plan

ROUNDS = 200

LONGEST_SECONDS = 2.5
"""From its first event a session needs about so long."""

PYTHON = """
import random, sys, time
from IPython.display import display, update_display
display({"text/plain": "0"}, raw=True, display_id="bar")
for number in range(300):
    print("Zeile", number, "ü" * 100, file=sys.stderr if number % 7 == 0 else sys.stdout)
    if number % 30 == 0:
        update_display({"text/plain": str(number)}, raw=True, display_id="bar")
        display({"text/html": "<b>x</b>" * 10_000}, raw=True)
    time.sleep(random.random() / 500)
print("y" * 3_000_000)
"""
BASH = "for ((i = 0; i < 300; i++)); do echo row $i; echo oops $i >&2; done; sleep 0.2; echo end"
SETTINGS = {"workspace.workspace_path": "kept"}
REPLIES = [plan("count"), code(PYTHON), plan("again"), code(BASH, "bash"), answer("done " * 100)]

SESSION = """
import json, os, sys, time
from taskweaver_ext import SessionEventHandler, TaskWeaverApp
from taskweaver_ext.approval import Approval
from taskweaver_ext.events.event_json import event_line
from taskweaver_ext.llm.scripted import ScriptedModel

class Show(SessionEventHandler):
    def handle(self, event):
        line = event_line(event).encode()
        while line:
            line = line[os.write(1, line):]

replies, settings = map(json.loads, sys.argv[2:])
with TaskWeaverApp(sys.argv[1], settings, model=ScriptedModel(replies)) as app:
    session = app.get_session("killed", approval=Approval("auto"))
    with session.emitter.subscribe(Show(), after=0):
        chat_round = session.send_message("count, please")
        assert chat_round.state == "finished", chat_round.error
        time.sleep(1000)
"""


def main(rounds: int, seed: int) -> int:
    """Kill so many sessions; a failed assertion says in which round something was lost."""
    choose = random.Random(seed)
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            play(Path(folder), choose, number)
    return 0


def play(project: Path, choose: random.Random, number: int) -> list[TaskWeaverEvent]:
    """Start a session, kill its process at some moment, and return what its journal has.

    All that was shown is in there by then, and the next process can go on.
    """
    shown = _show_and_kill(project, choose, number)
    folder = project / "kept" / "sessions" / "killed"
    if not shown:
        return []
    with JournalReader(folder) as reader:
        events = list(reader.events())
        assert not reader.skipped_lines, f"round {number}: lines make no sense"
        assert not reader.missing_texts, f"round {number}: output is not in its record"
    for event, kept in zip(shown, events, strict=False):
        assert event == kept, f"round {number}: shown was {event}, but there is {kept}"
    assert len(shown) <= len(events), f"round {number}: {shown[len(events)]} is lost"
    for event in events:
        _assert_files_are_there(event, folder, number)
    assert owner_of(folder) is None, f"round {number}: a dead process owns it"
    _continue(project, events, number)
    return events


def _continue(project: Path, before: list[TaskWeaverEvent], number: int) -> None:
    """Let another process' worth of a session go on from what was shown."""
    model = ScriptedModel([answer("Yes, I remember.")])
    with TaskWeaverApp(project, SETTINGS, model=model) as app:
        session = app.get_session("killed", approval=Approval("auto"))
        events = list(SavedSession(session.session_dir).events())
        assert events[: len(before)] == before, f"round {number}: the past has changed"
        assert not session.questions.open_questions
        cut_off = [one for one in session.rounds if one.state != "finished"]
        assert all(one.state == "failed" and one.error for one in cut_off), f"round {number}"
        chat_round = session.send_message("Do you remember?")
        assert chat_round.state == "finished", (number, chat_round.error)
        again = RebuiltSession.of(SavedSession(session.session_dir).events())
        assert again.known_rounds == session.memory.rounds, f"round {number}: memory"
        assert again.open_round is None, f"round {number}: a round is open"
    _assert_whole_posts_are_known(before, model.requests[0], number)


def _assert_whole_posts_are_known(
    before: list[TaskWeaverEvent], request: Sequence[Message], number: int
) -> None:
    """The planner's model is told of what was said to it, and of nothing that was half said."""
    told = "\n".join(message.content for message in request)
    if any(event.t is RoundEventType.round_start for event in before):
        assert "count, please" in told, f"round {number}: the request is forgotten"
    for event in before:
        if event.t is RoundEventType.round_new_post and "post" in event.extra:
            post = Post.from_dict(event.extra["post"])
            if post.send_to == PLANNER:
                assert post.message in told, f"round {number}: {post.message:.80} is forgotten"


def _show_and_kill(project: Path, choose: random.Random, number: int) -> list[TaskWeaverEvent]:
    """Return what a session has shown until it was killed."""
    with (project / "shown.jsonl").open("wb") as file, (project / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", SESSION, str(project), *map(json.dumps, (REPLIES, SETTINGS))],
            env=child_environment({}),
            stdout=file,
            stderr=log,
        )
        try:
            is_early = choose.random() < 0.05
            while not is_early and not (project / "shown.jsonl").stat().st_size:
                assert process.poll() is None, (number, (project / "log").read_text())
                time.sleep(0.01)
            time.sleep(
                choose.uniform(0, LONGEST_SECONDS)
            )  # that it comes at any moment is the point
            assert process.poll() is None, (number, (project / "log").read_text())
        finally:
            process.kill()
            process.wait()
    lines = (project / "shown.jsonl").read_bytes().split(b"\n")[:-1]
    return [session_event_from_json(json.loads(line)) for line in lines]


def _assert_files_are_there(event: TaskWeaverEvent, folder: Path, number: int) -> None:
    """What an event refers to was written before it was."""
    if event.t is PostEventType.post_execution_event and "event" in event.extra:
        display = event.extra["event"]
        if isinstance(display, DisplayProduced):
            for name in display.files.values():
                assert (folder / name).stat().st_size, f"round {number}: {name} is empty"
