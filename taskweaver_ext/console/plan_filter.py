"""Leave out plans that say nothing new: planners write theirs again with every message.

Pure. A plan that repeats an earlier one of its round is left out; one that differs is
shown in full as soon as it does.
"""

from __future__ import annotations

import re

_STEP = re.compile(r"[ \t]{0,3}\d{1,3}[.)]")
_REPORT = re.compile(r"\b(report|user)\b", re.IGNORECASE)


class PlanFilter:
    """The plans of one round, one after another."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._draft = ""
        self._is_new = False

    def feed(self, piece: str) -> str:
        """Take the next piece of a plan and return what is to be shown of it now."""
        self._draft += piece
        if self._is_new:
            return piece
        self._is_new = not any(plan.startswith(self._draft.strip()) for plan in self._known)
        return self._draft if self._is_new else ""

    def finish(self) -> str:
        """The plan is complete: return it if it is new after all, being the start of another."""
        draft, was_new = self._draft, self._is_new
        is_known = draft.strip() in self._known
        self._known.add(draft.strip())
        self._draft, self._is_new = "", False
        return "" if was_new or is_known else draft

    def is_worth_showing(self, plan: str) -> bool:
        """Whether a whole plan is new and has several steps; it is known from now on."""
        is_known = plan.strip() in self._known
        self._known.add(plan.strip())
        return not is_known and has_several_steps(plan)


def has_several_steps(plan: str) -> bool:
    """Whether there is more to do than one thing and to tell the user of it."""
    steps = [line for line in plan.split("\n") if _STEP.match(line)]
    if len(steps) > 1 and _REPORT.search(steps[-1]):
        steps.pop()
    return len(steps) > 1
