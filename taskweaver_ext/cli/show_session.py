"""Prints the conversation of a session that is on the disk."""

from __future__ import annotations

import sys

import click

from taskweaver_ext.config import variables
from taskweaver_ext.console.past_conversation import PastConversation
from taskweaver_ext.console.rows import Painter
from taskweaver_ext.console.screen import PlainScreen, TerminalScreen
from taskweaver_ext.console.transcript import Transcript
from taskweaver_ext.events.event_json import event_line
from taskweaver_ext.session.saved import SavedSession

_STDOUT = 1
_ROWS_PER_WRITE = 200


def print_session(saved: SavedSession, last_rounds: int) -> None:
    """Show the last rounds as they were seen; long output is collapsed."""
    is_terminal = sys.stdout.isatty() and not variables.has_simple_terminal()
    kind = TerminalScreen if is_terminal else PlainScreen
    screen = kind(_STDOUT, sys.stdout.encoding)
    painter = Painter(is_terminal and variables.wants_color())
    transcript = Transcript(*screen.size(), painter, can_expand=False, is_verbose=True)
    past = PastConversation(transcript)
    starts = saved.round_starts()
    skipped = max(0, len(starts) - last_rounds)
    if not starts:
        click.echo(f"nothing was asked in {saved.session_id}", err=True)
    if skipped:
        transcript.say(f"({skipped} earlier requests; --last {len(starts)} shows all)")
    for event in saved.events(after=starts[skipped] - 1 if skipped else 0):
        past.handle(event)
        if len(transcript.rows) >= _ROWS_PER_WRITE:
            screen.update(transcript.pop_rows(), [])
    transcript.cut_off()
    screen.update(transcript.pop_rows(), [])


def print_events(saved: SavedSession, last_rounds: int | None) -> None:
    """Print the events of the last rounds, or all of them, as lines of JSON."""
    starts = saved.round_starts() if last_rounds is not None else []
    skipped = max(0, len(starts) - (last_rounds or 0))
    for event in saved.events(after=starts[skipped] - 1 if skipped else 0):
        click.echo(event_line(event), nl=False)
