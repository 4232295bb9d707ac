"""What `run` shows of an execution: plainly, as the code wrote it, or as JSON lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol, assert_never

from taskweaver_ext.ces.execution import events
from taskweaver_ext.ces.execution.event_json import line_of
from taskweaver_ext.ces.execution.results import (
    ExecutionResult,
    ExecutionStatus,
    Notice,
    StreamName,
)
from taskweaver_ext.cli.open_output import OpenOutput
from taskweaver_ext.cli.screen import Screen
from taskweaver_ext.tools.display_text import plain_display

_READ_CHARACTERS = 1 << 20
_STATUSES_TO_SAY = ("restarted", "paused", "resumed", "limit")
_NOT_FOR_SCREENS = ("truncated", "display_skipped")
"""What these notices say is missing from a result has been shown all the same."""


class View(Protocol):
    """Shows one execution; `run` calls `show` for each event and `finish` once at the end."""

    def show(self, event: events.ExecutionEvent) -> None:
        """Show an event when it happens."""

    def finish(self, result: ExecutionResult, notices: list[Notice]) -> None:
        """Say how it ended."""


class PlainView:
    """The code's own streams on ours; what we have to add goes to standard error."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._output = OpenOutput(screen)
        self._said: set[str] = set()

    def show(self, event: events.ExecutionEvent) -> None:
        """Show an event when it happens."""
        match event:
            case events.OutputProduced() | events.LateOutput():
                self._output.write(event.stream, event.text)
            case events.DisplayProduced():
                if text := plain_display(event.bundle):
                    self._output.display(text, event.display_id)
            case events.DisplayUpdated():
                self._output.update(event.display_id, plain_display(event.bundle))
            case events.OutputCleared():
                self._output.clear(wait=event.wait)
            case events.LogRecorded():
                self._say(f"[{event.level}] {event.tag}: {event.message}")
            case events.ArtifactProduced():
                self._say(f"[Saved] {event.artifact.file_name}")
            case events.StatusChanged():
                if event.status in _STATUSES_TO_SAY:
                    self._said.add(event.detail)
                    self._say(f"[{event.status.capitalize()}] {event.detail}")
            case events.InputRequested() | events.InputSettled():
                self._output.forget()  # what is asked and typed stands below it
            case events.StatusReported() | events.ExecutionFinished():
                pass  # how it ended `finish` knows better
            case _:
                assert_never(event)

    def _say(self, line: str) -> None:
        self._output.forget()
        self._screen.say(line)

    def finish(self, result: ExecutionResult, notices: list[Notice]) -> None:
        """Say how it ended, unless it went well."""
        for notice in notices:
            if notice.message not in self._said:
                self._screen.say(f"[Notice] {notice.message}")
        was_killed = result.death is not None
        cost = " It did not end when interrupted, so it was killed: all it held in memory is lost."
        match result.status:
            case ExecutionStatus.TIMEOUT:
                error = (result.error or "").partition(" The code did not end")[0]
                self._screen.say(f"[Timed out] {error}{cost if was_killed else ''}")
            case ExecutionStatus.CANCELLED:
                self._screen.say(f"[Cancelled]{cost if was_killed else ''}")
            case ExecutionStatus.DIED:
                how = result.death.detail if result.death else "its end is unknown"
                self._screen.say(f"[Died] The process that ran the code is gone: {how}.")
            case ExecutionStatus.ERROR if result.exit_code is not None:
                if result.exit_code != 1:  # which is what ours will be
                    self._screen.say(f"[Exited with code {result.exit_code}]")
            case _ if result.error:
                self._screen.say(result.error)
            case _:
                pass


class JsonView:
    """One event per line on standard output."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def show(self, event: events.ExecutionEvent) -> None:
        """Show an event when it happens."""
        if not isinstance(event, events.ExecutionFinished):  # the last line is of `finish`
            self._screen.write("stdout", line_of(event))

    def finish(self, result: ExecutionResult, notices: list[Notice]) -> None:
        """Write the last line."""
        finished = replace(events.ExecutionFinished.of(result), notices=tuple(notices))
        self._screen.write("stdout", line_of(finished))


class Completion:
    """Counts the output that was shown, and shows in the end what was skipped for slowness.

    An execution does not wait long for a slow callback, but the program that reads
    our output through a pipe may take all the time in the world.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._shown: Counter[StreamName] = Counter()

    def show(self, event: events.ExecutionEvent) -> None:
        """Show an event and remember how much output it was."""
        if isinstance(event, events.OutputProduced):
            self._shown[event.stream] += len(event.text)
        self._view.show(event)

    def finish(self, result: ExecutionResult) -> None:
        """Show what is missing from the record, then how it ended."""
        kinds = {notice.kind for notice in result.notices}
        if "display_skipped" in kinds and "record_failed" not in kinds:
            for stream in ("stdout", "stderr"):
                for text in self._rest_of(result, stream):
                    event = events.OutputProduced(
                        execution_id=result.execution_id, stream=stream, text=text
                    )
                    self._view.show(event)
        self._view.finish(
            result, [notice for notice in result.notices if notice.kind not in _NOT_FOR_SCREENS]
        )

    def _rest_of(self, result: ExecutionResult, stream: StreamName) -> Iterator[str]:
        to_skip = self._shown[stream]
        for text in _recorded(result, stream):
            if rest := text[to_skip:]:
                yield rest
            to_skip = max(0, to_skip - len(text))


def _recorded(result: ExecutionResult, stream: StreamName) -> Iterator[str]:
    path = result.full_output_paths.get(stream)
    if path is None:
        yield from result.stdout if stream == "stdout" else result.stderr
        return
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        while text := file.read(_READ_CHARACTERS):
            yield text
