"""The person's own editor: it gets the terminal, and gives it back."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path

from taskweaver_ext.config import variables
from taskweaver_ext.config.settings import ExecutionServiceConfig
from taskweaver_ext.console.command_words import UsageError
from taskweaver_ext.console.display import Display
from taskweaver_ext.console.terminal_jobs import TerminalJobs
from taskweaver_ext.machine.child_environment import rules_of, variables_passed_on
from taskweaver_ext.machine.private_files import write_private
from taskweaver_ext.session.terminal_run import TerminalCommand

_ENDINGS = {"python": ".py", "bash": ".sh"}


def edit_outside(text: str, language: str, jobs: TerminalJobs, display: Display) -> str:
    """Let the person edit a text in their editor, and return what they made of it.

    For the thread that owns the terminal, while nothing runs.

    Raises:
        UsageError: The editor cannot be started, was stopped, or says that it failed.
    """
    editor = variables.editor()
    with tempfile.TemporaryDirectory(prefix="taskweaver-edit-") as folder:
        path = Path(folder, f"block{_ENDINGS.get(language, '.txt')}")
        write_private(path, text)
        place = TerminalCommand(
            command=f"{editor} {shlex.quote(str(path))}",
            cwd=Path.cwd(),
            environment=variables_passed_on(rules_of(ExecutionServiceConfig(), is_for_person=True)),
        )
        end = display.stand_aside(lambda: jobs.run(place))
        if end.stopped:
            raise UsageError("The editor was stopped: nothing has changed.")
        if end.error or end.exit_code:
            why = end.error or f"exit code {end.exit_code}"
            raise UsageError(
                f"The editor {editor!r} failed ({why}): nothing has changed."
                " VISUAL or EDITOR names yours."
            )
        return path.read_text(encoding="utf-8", errors="replace")
