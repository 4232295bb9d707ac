"""Replays a session in a folder of its own, and prints what differs while it runs."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import click

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.chat.exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED
from taskweaver_ext.cli.options import workspace_of
from taskweaver_ext.cli.project_log import logging_to_project
from taskweaver_ext.cli.screen import Screen
from taskweaver_ext.cli.signal_watch import SignalWatch
from taskweaver_ext.cli.standard_input import StandardInput, is_terminal
from taskweaver_ext.console.piped_chat import PlainTranscript
from taskweaver_ext.machine.owned_folders import make_owned_folder
from taskweaver_ext.session.blocks import Cell
from taskweaver_ext.session.replay import Replay, ReplayedCell
from taskweaver_ext.session.saved import SavedSession, find_session
from taskweaver_ext.session.session import Session
from taskweaver_ext.session.variables import describe_saved

_SUGGEST_KILLING_SECONDS = 3.0
_MAX_TITLE_CHARS = 70
_OUTCOMES = ("same", "different", "not compared", "skipped")


def replay_session(
    session_id: str,
    project: Path | None,
    *,
    kernel: str | None,
    cwd: Path | None = None,
    until: int | None,
    keep_going: bool,
    as_json: bool,
    with_snapshot: bool,
    is_agreed: bool,
) -> int:
    """Replay a session and show what differs; return the exit code."""
    saved = find_session(workspace_of(project), session_id)
    with contextlib.ExitStack() as stack:
        folder = make_owned_folder("replay")
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        app = TaskWeaverApp(
            project,
            {"workspace.workspace_path": str(folder), "session.cwd": "session"},
            arguments={"execution_service.kernel_mode": kernel},
        )
        stack.enter_context(app)
        stack.enter_context(logging_to_project(app.config.logging, lambda: app.redactor))
        lines = StandardInput()
        stack.callback(lines.close)
        report = _JsonReport() if as_json else _TextReport(Screen())
        replay = Replay(
            saved,
            _opening(app, saved, cwd),
            until=until,
            keeps_kernel=with_snapshot,
            on_begin=report.begin,
            event_handler=report.handler,
            ask_password=lambda prompt: _ask_password(lines, prompt),
        )
        report.count = replay.count_cells()
        if not is_agreed and not _agrees(saved, report.count, app):
            return EXIT_FAILED
        signals = stack.enter_context(SignalWatch())
        stops = Counter[str]()

        def stop(number: int) -> None:
            stops["signals"] += 1
            lines.cancel()
            replay.stop(kill=stops["signals"] > 1 or number != signal.SIGINT)

        signals.pass_to(stop, report.suggest_killing, _SUGGEST_KILLING_SECONDS)
        return _run(replay, report, keep_going=keep_going, with_snapshot=with_snapshot)


def _run(replay: Replay, report: _Report, *, keep_going: bool, with_snapshot: bool) -> int:
    outcomes = Counter[str]()
    put_aside = Counter[str]()
    for cell in replay.cells():
        report.show(cell)
        outcomes[cell.outcome] += 1
        put_aside.update(cell.put_aside)
        if report.is_closed or (cell.differences and not keep_going):
            break
    report.end(outcomes, put_aside, is_stopped=replay.is_stopped)
    if with_snapshot and not replay.is_stopped:
        click.echo(describe_saved(replay.snapshot()), err=True)
    if replay.is_stopped:
        return EXIT_INTERRUPTED
    return EXIT_FAILED if outcomes["different"] or report.is_closed else EXIT_DONE


def _opening(app: TaskWeaverApp, saved: SavedSession, cwd: Path | None) -> Callable[[], Session]:
    """Opens the session of the replay, the first time and again: it is found by its id."""
    return lambda: app.get_session(saved.session_id, cwd=cwd)


def _agrees(saved: SavedSession, count: int, app: TaskWeaverApp) -> bool:
    """Ask before code runs again, where there is a person; raises UsageError where not."""
    if not is_terminal():
        raise click.UsageError(
            "Replaying runs the session's code again, with its effects. Pass --yes to agree."
        )
    mode = app.config.execution_service.kernel_mode.value
    return click.confirm(
        f"Run the {count} cells of {saved.session_id} again (kernel: {mode})? What they do outside"
        " of their working folder they do again.",
        err=True,
    )


def _ask_password(lines: StandardInput, prompt: str) -> str | None:
    if not is_terminal():
        return None
    click.echo(f"{prompt}(a password, which was not kept) ", nl=False, err=True)
    answer = lines.read_line(is_hidden=True)
    click.echo("", err=True)
    return answer


class _Report:
    """What is shown of a replay."""

    def __init__(self) -> None:
        self.count = 0
        """How many cells there are."""
        self.handler: PlainTranscript | None = None
        """Shows what code does while it runs."""

    @property
    def is_closed(self) -> bool:
        """Whether the reader of our output has gone."""
        return False

    def begin(self, cell: Cell) -> None:
        """A cell is about to run."""

    def show(self, cell: ReplayedCell) -> None:
        """Show what became of a cell."""
        raise NotImplementedError

    def end(self, outcomes: Counter[str], put_aside: Counter[str], *, is_stopped: bool) -> None:
        """Show what came of it all."""
        raise NotImplementedError

    def suggest_killing(self) -> None:
        """Say what can be done about code that does not stop."""
        click.echo("It has not ended yet. Ctrl-C again kills it.", err=True)


class _JsonReport(_Report):
    """A line for each cell, and one for all."""

    def show(self, cell: ReplayedCell) -> None:
        click.echo(json.dumps(cell.to_json()))
        sys.stdout.flush()

    def end(self, outcomes: Counter[str], put_aside: Counter[str], *, is_stopped: bool) -> None:
        summary = {name.replace(" ", "_"): outcomes[name] for name in _OUTCOMES}
        summary["not_reached"] = self.count - outcomes.total()
        click.echo(
            json.dumps({"summary": summary, "put_aside": put_aside, "is_stopped": is_stopped})
        )


class _TextReport(_Report):
    """Code, what it writes while it runs, and what differs, in the order in which it happens."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen
        self._is_mid_line = False
        self.handler = PlainTranscript(self._write, on_answer=lambda _answer: None)

    @property
    def is_closed(self) -> bool:
        return self._screen.failure is not None

    def begin(self, cell: Cell) -> None:
        self._say(f"[{cell.number}/{self.count}] {_title(cell.language, cell.code)}")

    def show(self, cell: ReplayedCell) -> None:
        if cell.outcome == "skipped":
            self._say(f"[{cell.number}/{self.count}] {_title(cell.language, cell.code)}")
        put_aside = f", but for {_counted(Counter(cell.put_aside))}" if cell.put_aside else ""
        self._say(f"    {cell.outcome}{put_aside}")
        for difference in cell.differences:
            self._say(f"    {difference.what}:")
            for line in difference.lines():
                self._say(f"      {line}")
        for note in cell.notes:
            self._say(f"    ({note})")

    def end(self, outcomes: Counter[str], put_aside: Counter[str], *, is_stopped: bool) -> None:
        parts = ", ".join(f"{outcomes[name]} {name}" for name in _OUTCOMES if outcomes[name])
        left = self.count - outcomes.total()
        rest = f", {left} not reached" if left else ""
        stopped = "[Cancelled] " if is_stopped else ""
        cells = "1 cell" if self.count == 1 else f"{self.count} cells"
        self._say(f"{stopped}{cells}: {parts or 'none ran'}{rest}.")
        if put_aside:
            self._say(f"Not compared, because they differ each time: {_counted(put_aside)}.")
        self._screen.say_failure()
        self._screen.close()

    def _write(self, _stream: str, text: str) -> None:
        self._is_mid_line = not text.endswith("\n") if text else self._is_mid_line
        self._screen.write("stdout", text)

    def _say(self, line: str) -> None:
        start = "\n" if self._is_mid_line else ""
        self._write("stdout", f"{start}{line}\n")


def _title(language: str, code: str) -> str:
    first_line, *others = code.strip().splitlines() or [""]
    is_cut = bool(others) or len(first_line) > _MAX_TITLE_CHARS
    return f"{language}: {first_line[:_MAX_TITLE_CHARS]}{' ...' if is_cut else ''}"


def _counted(kinds: Counter[str]) -> str:
    named = [
        f"{count} {kind if count == 1 else _plural(kind)}" for kind, count in sorted(kinds.items())
    ]
    return ", ".join(named)


def _plural(kind: str) -> str:
    return {"address": "addresses", "cell": "cell numbers"}.get(kind, f"{kind}s")
