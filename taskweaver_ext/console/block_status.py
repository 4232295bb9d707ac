"""How a block of code stands, at a glance: its number, a sign, and a word for where signs fail.

Pure. Signs have their own shape each, so that they are told apart without colours; where a
terminal lacks them, `console/screen.py` puts ASCII in their place.
"""

from __future__ import annotations

from taskweaver_ext.console.rows import CYAN, DIM, GREEN, RED, YELLOW
from taskweaver_ext.session.blocks import CellStatus

_LOOKS: dict[CellStatus, tuple[str, str, str]] = {
    "not_run": ("○", "not run", DIM),
    "running": ("▶", "running", CYAN),
    "success": ("✔", "done", GREEN),
    "error": ("✖", "failed", RED),
    "timeout": ("✖", "timed out", RED),
    "died": ("✖", "kernel died", RED),
    "paused": ("■", "paused", YELLOW),
    "lost": ("✖", "lost", RED),
    "cancelled": ("■", "cancelled", YELLOW),
    "refused": ("■", "refused", YELLOW),
}
_TOLD: dict[str, CellStatus] = {
    "SUCCESS": "success",
    "FAILURE": "error",
    "TIMEOUT": "timeout",
    "CANCELLED": "cancelled",
    "DIED": "died",
    "PAUSED": "paused",
    "NONE": "not_run",
    "REFUSED": "refused",
}
KNOWN = "◆"
"""Marks what the agent knows."""
_WORTH_SAYING_SECONDS = 1.0


def status_from_attachment(text: str) -> CellStatus:
    """Read what a post says of how its code ended."""
    return _TOLD.get(text.strip().upper(), "error")


def block_label(number: int, language: str = "python") -> str:
    """What stands before the code of a block; a block without a number is just code."""
    parts = [str(number) if number else "code", "" if language == "python" else language]
    return " ".join(part for part in parts if part)


def status_text(
    number: int,
    status: CellStatus,
    *,
    seconds: float | None = None,
    repeats: int | None = None,
    is_known: bool = False,
) -> tuple[str, str]:
    """How a block stands, in a few words, and their colour.

    Args:
        seconds: How long it ran; said where it took long.
        repeats: The number of the block that was run again with it.
        is_known: Whether the agent knows a block of a person's; what it wrote itself it knows.
    """
    sign, word, color = _LOOKS[status]
    text = f"[{number}] {sign} {word}" if number else f"{sign} {word}"
    if seconds is not None and seconds >= _WORTH_SAYING_SECONDS:
        text += f" in {duration(seconds)}"
    if repeats:
        text += f" (again: {repeats})"
    return (f"{text} {KNOWN}" if is_known else text), color


def duration(seconds: float) -> str:
    """How long something took, as people say it."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"
