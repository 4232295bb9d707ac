"""What is new of plans: planners write theirs out again with every message.

Pure. A plan that repeats an earlier one of its round is left out; one that differs is
shown in full as soon as it does.
"""

from __future__ import annotations

from taskweaver_ext.conversation import AttachmentId


class PlanNews:
    """The plans of one round."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._drafts: dict[AttachmentId, str] = {}

    def take(self, key: AttachmentId, piece: str, *, is_end: bool) -> str:
        """Take the next piece of a plan and return what is to be shown of it now."""
        before = self._drafts.get(key, "")
        draft = self._drafts[key] = before + piece
        was_held = self._may_be_known(before)
        is_held = self._may_be_known(draft)
        if is_end:
            is_held = draft.strip() in self._known
            self._known.add(draft.strip())
            del self._drafts[key]
        if is_held:
            return ""
        return draft if was_held else piece

    def _may_be_known(self, draft: str) -> bool:
        return any(plan.startswith(draft.strip()) for plan in self._known)
