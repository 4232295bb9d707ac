"""A conversation that has been, as rows of a screen: what was typed, and what was seen of it."""

from __future__ import annotations

from typing import cast

from taskweaver_ext.chat.requests import input_line, prefix_width
from taskweaver_ext.console.display import Display
from taskweaver_ext.console.rows import BOLD, DIM, RED, YELLOW
from taskweaver_ext.console.transcript import Transcript
from taskweaver_ext.conversation import AttachmentType, PostId, RoundId
from taskweaver_ext.events.extras import (
    AnsweredExtra,
    AttachmentExtra,
    EventExtra,
    QuestionExtra,
    QuestionId,
    RoundEndExtra,
    RoundStartExtra,
)
from taskweaver_ext.events.types import (
    PostEventType,
    RoundEventType,
    SessionEventHandlerBase,
    SessionEventType,
)
from taskweaver_ext.session.saved import SavedSession

SHOWN_ROUNDS = 3
"""How much of a conversation a person sees again who continues it."""
MAX_SHOWN_EVENTS = 20_000
"""Beyond that, what code wrote is not shown again: it would take long, and roll off the screen."""

_PROMPT = "You ▸ "
_CONTINUATION = "… "
_WITHOUT_TEXT = {"approved": "(approved)", "refused": "(refused)", "cancelled": "(not answered)"}


def show_end_of(saved: SavedSession, display: Display, how_to_show: str) -> None:
    """Show the last rounds of a session; for the thread that owns the terminal.

    Args:
        how_to_show: The command that shows all of them.
    """
    past = PastConversation(display.transcript)
    starts = saved.round_starts()
    if not starts:
        return
    first = starts[-SHOWN_ROUNDS:][0]
    earlier = len(starts[:-SHOWN_ROUNDS])
    if earlier:
        requests = f"{earlier} earlier request{'s' if earlier > 1 else ''}"
        past.transcript.say_command(f"{requests}:", how_to_show, color=DIM)
    has_output = saved.last_seq() - first <= MAX_SHOWN_EVENTS
    for event in saved.events(after=first - 1, with_output=has_output):
        past.handle(event)
    past.transcript.cut_off()
    if not has_output:
        past.transcript.say("(What the code wrote is not shown again.)", color=DIM)
    display.draw()


class PastConversation(SessionEventHandlerBase):
    """Draws the events of a session that is over into a transcript."""

    def __init__(self, transcript: Transcript) -> None:
        self.transcript = transcript
        self._typed = ""
        """Code of a person, until it is known in which language it is."""
        self._questions: dict[QuestionId, QuestionExtra] = {}

    def handle_session(self, type: SessionEventType, msg: str, extra: EventExtra) -> None:
        """Show what was asked and answered, and what the session said of itself."""
        if type is SessionEventType.session_question:
            question = cast(QuestionExtra, extra)
            self._questions[question["question_id"]] = question
        elif type is SessionEventType.session_answered:
            self._show_answer(cast(AnsweredExtra, extra))
        else:
            self.transcript.handle_session(type, msg, extra)

    def handle_round(
        self, type: RoundEventType, msg: str, extra: EventExtra, round_id: RoundId
    ) -> None:
        """Show what was typed, and how it ended."""
        if type is RoundEventType.round_start:
            details = cast(RoundStartExtra, extra)
            if details["kind"] == "message":
                self._show_typed(details["user_query"])
            else:
                self._typed = details["user_query"]
        self.transcript.handle_round(type, msg, extra, round_id)
        if type is RoundEventType.round_end:
            failure = self.transcript.pop_failure()
            if cast(RoundEndExtra, extra)["state"] == "cancelled":
                self.transcript.say("[Cancelled]", color=YELLOW)
            elif failure:
                self.transcript.say(f"error: {failure}", color=RED)

    def handle_post(
        self, type: PostEventType, msg: str, extra: EventExtra, post_id: PostId, round_id: RoundId
    ) -> None:
        """Show what a role said, or code wrote."""
        if self._typed and type is PostEventType.post_attachment_update:
            kind = cast(AttachmentExtra, extra)["type"]
            if kind is AttachmentType.reply_type:
                self._show_typed(input_line(msg, self._typed) or f"[{msg}] {self._typed}")
                self._typed = ""
        self.transcript.handle_post(type, msg, extra, post_id, round_id)

    def _show_typed(self, text: str) -> None:
        cells = len(_PROMPT) + prefix_width(text)
        lines = text.replace("\n", f"\n{_CONTINUATION:>{cells}}")
        self.transcript.say(f"{_PROMPT}{lines}", color=BOLD)

    def _show_answer(self, extra: AnsweredExtra) -> None:
        question = self._questions.pop(extra["question_id"], None)
        if question is None or (question["kind"] == "approval" and extra["outcome"] == "edited"):
            return  # the edited code is to be seen where it runs
        answer = extra.get("answer") or _WITHOUT_TEXT.get(extra["outcome"], "(hidden)")
        self.transcript.say(f"{question['prompt']} {answer}", color=DIM)
