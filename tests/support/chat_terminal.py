"""The chat on a terminal of its own, and through pipes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from tests.support.emulated_terminal import EmulatedTerminal
from tests.support.terminal_program import LIMIT_SECONDS

CHAT = [sys.executable, "-m", "taskweaver_ext.cli", "chat"]
PROMPT = "You ▸"


def environ(home: Path, **more: str) -> dict[str, str]:
    """What a chat sees of the environment."""
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {**kept, "HOME": str(home), "TERM": "xterm-256color", "LANG": "C.UTF-8", **more}


class ChatTerminal(EmulatedTerminal):
    """A chat at its prompt; at the end of the block it is asked to end, if it has not."""

    def __init__(
        self,
        project: Path,
        *arguments: str,
        columns: int = 80,
        rows: int = 24,
        first_sight: str = PROMPT,
        **variables: str,
    ) -> None:
        self._project = project
        super().__init__(
            [*CHAT, *arguments],
            cwd=project,
            columns=columns,
            rows=rows,
            environ=environ(project.parent, **variables),
        )
        self.wait_for(first_sight)

    def run(self, code: str) -> None:
        """Type a line that runs Python code which is too long to be typed."""
        path = self._project / "job.py"
        path.write_text(code)
        self.press(f"> exec(open({str(path)!r}).read())\r")

    def leave(self) -> int:
        """Press Ctrl-D and return the exit code."""
        self.press("\x04")
        return self.wait()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process.poll() is None and self.is_open and error is None:
            self.process.send_signal(signal.SIGTERM)
            self.wait()
        super().__exit__(kind, error, traceback)


OpenChat: TypeAlias = Callable[..., ChatTerminal]


def run_piped(
    project: Path, requests: str, *, stdout: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """Give a chat without a terminal some lines, and wait for its end."""
    return subprocess.run(
        CHAT,
        input=requests,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        cwd=project,
        env=environ(project.parent),
        timeout=LIMIT_SECONDS,
        check=False,
    )
