"""Leave out plans that were shown already: planners write theirs again with every message.

Pure. A plan that repeats an earlier one of its round is left out; one that differs is
shown in full as soon as it does.
"""

from __future__ import annotations


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
