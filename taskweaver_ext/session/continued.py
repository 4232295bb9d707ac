"""Continue a session that an earlier process has left: what it knew, and what it left open."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from taskweaver_ext.conversation import PostId, RoundId
from taskweaver_ext.errors import SessionError
from taskweaver_ext.events.emitter import SessionEventEmitter
from taskweaver_ext.events.extras import EventExtra
from taskweaver_ext.events.journal import Journal
from taskweaver_ext.events.journal_lines import JOURNAL
from taskweaver_ext.events.journal_reader import JournalReader
from taskweaver_ext.events.types import (
    EventScope,
    EventType,
    PostEventType,
    RoundEventType,
    SessionEventType,
    TaskWeaverEvent,
)
from taskweaver_ext.machine.private_files import make_private_folder
from taskweaver_ext.session.blocks.numbers import count_blocks
from taskweaver_ext.session.old_rounds import events_of_rounds, round_files
from taskweaver_ext.session.rebuilt import CUT_OFF, NEEDED_KINDS, RebuiltSession

_UNFINISHED = "journal.part"


def open_journal(
    folder: Path, *, session_id: str, project: str, on_failure: Callable[[str], None]
) -> tuple[Journal, RebuiltSession]:
    """Open the journal of a session, new or old, and return what it says the session knew.

    Raises:
        SessionError: The journal is of a newer format, or a conversation kept as JSON cannot be
            written into one.
    """
    if not (folder / JOURNAL).exists() and round_files(folder):
        _adopt_old_rounds(folder, session_id, project)
    journal = Journal(folder, session_id=session_id, project=project, on_failure=on_failure)
    if not journal.last_seq:
        return journal, RebuiltSession()
    try:
        with JournalReader(folder) as reader:
            rebuilt = RebuiltSession.of(reader.events_of(*NEEDED_KINDS))
            if not rebuilt.block_count and rebuilt.rounds:  # earlier versions told no numbers
                rebuilt.block_count = count_blocks(reader.events())
            return journal, rebuilt
    except BaseException:
        journal.close()
        raise


def close_open_ends(past: RebuiltSession, emitter: SessionEventEmitter) -> None:
    """Say how that ended which an earlier process was at when it was killed."""
    for question_id in past.open_questions:
        emitter.emit_session_event(
            SessionEventType.session_answered,
            "",
            {"question_id": question_id, "outcome": "cancelled"},
        )
    cut_off = past.open_round
    if cut_off is None:
        return

    def say(
        kind: EventType, msg: str, extra: EventExtra | None = None, post_id: PostId | None = None
    ) -> None:
        scope = EventScope.round if post_id is None else EventScope.post
        emitter.emit(TaskWeaverEvent(scope, kind, cut_off_id, post_id, msg, extra or {}))

    cut_off_id: RoundId = cut_off.id
    if past.open_post is not None:
        say(PostEventType.post_end, CUT_OFF, post_id=past.open_post)
    say(RoundEventType.round_error, CUT_OFF)
    say(RoundEventType.round_end, "Round ended", {"state": "failed"})
    cut_off.change_round_state("failed")
    cut_off.error = CUT_OFF


def _adopt_old_rounds(folder: Path, session_id: str, project: str) -> None:
    """Give a folder with rounds as JSON a journal with the same conversation."""
    place = folder / _UNFINISHED
    shutil.rmtree(place, ignore_errors=True)
    failures: list[str] = []
    try:
        make_private_folder(place)
        journal = Journal(place, session_id=session_id, project=project, on_failure=failures.append)
        for event in events_of_rounds(folder):
            journal.append(event)
        journal.close()
        if not failures:
            # All at once: a journal with some of the rounds would stand for all of them.
            os.replace(place / JOURNAL, folder / JOURNAL)
    except OSError as error:
        failures.append(str(error))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if failures:
        raise SessionError(
            f"Session {session_id!r} of an earlier version cannot be continued: {failures[0]}"
        )
