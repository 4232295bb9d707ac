"""Asks the person at the terminal about code of the agent, until an answer makes sense."""

from __future__ import annotations

from collections.abc import Callable

from taskweaver_ext.approval import ApprovalAnswer, ApprovalRequest
from taskweaver_ext.approval.rules import covers
from taskweaver_ext.console.display import Display
from taskweaver_ext.console.inbox import Question
from taskweaver_ext.console.rows import DIM
from taskweaver_ext.events.extras import QuestionId, QuestionOutcome

_LETTERS: dict[str, QuestionOutcome] = {
    "y": "approved",
    "n": "refused",
    "e": "edited",
    "a": "always",
    "p": "pattern",
}
_WORDS: dict[QuestionOutcome, str] = {
    "approved": "[y]es",
    "refused": "[n]o",
    "edited": "[e]dit",
    "always": "[a]lways",
    "pattern": "[p]attern",
}
_MEANINGS: dict[QuestionOutcome, str] = {
    "approved": "y  runs it, this once.",
    "refused": "n  does not run it, and the agent is told that you refused. What you write behind"
    " the n goes along: n use Python instead",
    "edited": "e  lets you change it first. What you make of it runs, and the agent is told so.",
}
_ROOM = 15
"""The cells that the frame and a short answer need beside the question."""


class ApprovalDialog:
    """The questions about one block of code after another.

    Threads:
        `ask` is called on a thread of the session; the thread that owns the terminal shows and
        reads what it asks.
    """

    def __init__(self, display: Display, is_open: Callable[[QuestionId], bool]) -> None:
        """Prepare to ask.

        Args:
            is_open: Whether a question still waits for an answer; another frontend may be first.
        """
        self._display = display
        self._is_open = is_open

    def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Return what the person decides; what is no answer is asked again."""
        self._display.show_approval(request)
        while self._is_open(request.question_id):
            typed = self._display.answer_for(
                Question(_prompt(request, self._display.width), question_id=request.question_id)
            )
            if typed is None:  # Ctrl-C ends the round, Ctrl-D refuses; or it was answered elsewhere
                break
            answer = self._understand(typed.strip(), request)
            if answer is not None:
                return answer
        return ApprovalAnswer(False)

    def _understand(self, typed: str, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Return what was typed as an answer; None to ask again."""
        word, _, rest = typed.partition(" ")
        if word == "?":
            self._explain(request)
            return None
        outcome = _outcome_of(word.lower())
        if outcome not in request.choices or (rest and outcome != "refused"):
            letters = [key for key, one in _LETTERS.items() if one in request.choices]
            self._say(f"Type one of {', '.join(letters)}; ? explains them.")
            return None
        match outcome:
            case "approved":
                return ApprovalAnswer(True)
            case "refused":
                return ApprovalAnswer(False, reason=rest.strip())
            case "edited":
                return self._edit(request)
            case "always":
                self._say(request.always)
                return ApprovalAnswer(True, allows_kind=True)
            case _:
                return self._ask_for_pattern(request)

    def _edit(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        self._say(self._display.how_to_edit)
        edited = self._display.answer_for(
            Question(
                "",
                default=request.code,
                language=request.language,
                question_id=request.question_id,
                is_optional=True,
            )
        )
        if edited is None:
            return None
        if not edited.strip():
            self._say("Nothing is left of it to run; n refuses it.")
            return None
        edited = edited.rstrip()
        return ApprovalAnswer(True, code=None if edited == request.code.rstrip() else edited)

    def _ask_for_pattern(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        self._say(
            "Enter allows such commands from now on, * is any text; with a pipe, a redirection or"
            " a second command in it one still asks. Ctrl-C allows none."
        )
        pattern = self._display.answer_for(
            Question(
                "Pattern: ",
                default=request.pattern,
                question_id=request.question_id,
                is_optional=True,
            )
        )
        if pattern is None:
            return None
        pattern = pattern.strip()
        if not covers(pattern, request.code):
            self._say(f"The pattern {pattern!r} does not allow this command: choose another one.")
            return None
        self._say(
            f"From now on shell commands of the agent that are {pattern!r} run without asking;"
            " /approve forget takes that back."
        )
        return ApprovalAnswer(True, pattern=pattern)

    def _explain(self, request: ApprovalRequest) -> None:
        lines = [text for outcome, text in _MEANINGS.items() if outcome in request.choices]
        if "always" in request.choices:
            lines.append(f"a  runs it. {request.always}")
        if "pattern" in request.choices:
            lines.append(
                f"p  runs it, and from now on all commands of a pattern, such as {request.pattern}"
            )
        self._display.say_soon("\n".join(lines), color=DIM, indent=3)
        self._say("Ctrl-C stops the agent. /approve says what you are asked about.")

    def _say(self, text: str) -> None:
        self._display.say_soon(text, color=DIM)


def _outcome_of(word: str) -> QuestionOutcome | None:
    """Return what a letter, or its whole word, stands for."""
    is_whole = word in ("yes", "no", "edit", "always", "pattern")
    return _LETTERS.get(word[0] if is_whole else word)


def _prompt(request: ApprovalRequest, width: int) -> str:
    """Return the question: with whole words where they fit on a row, and some room to answer."""
    what = "it" if request.block is None else f"block {request.block}"
    choices = {key: one for key, one in _LETTERS.items() if one in request.choices}
    words = " ".join([_WORDS[one] for one in choices.values()] + ["[?]"])
    whole = f"Run {what}? {words} "
    return whole if len(whole) + _ROOM <= width else f"Run {what}? {'/'.join([*choices, '?'])} "
