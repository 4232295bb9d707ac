"""A chat with JSON lines, in a process of its own, as a program drives it."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from tests.support.chat_terminal import environ
from tests.support.command_line import PROGRAM
from tests.support.terminal_program import LIMIT_SECONDS

Line: TypeAlias = dict[str, Any]


class JsonChatProcess:
    """Send commands and read lines; what still runs at the end of the block is killed.

    Threads:
        One reads the program's output into a queue, unless the test reads by itself.
    """

    def __init__(self, project: Path, *arguments: str, reads: bool = True) -> None:
        self.process = subprocess.Popen(
            [*PROGRAM, "chat", "--json", "-p", str(project), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environ(project),
            cwd=project,
        )
        self.seen: list[Line] = []
        """All lines that were read so far."""
        self._lines: queue.SimpleQueue[Line | None] = queue.SimpleQueue()
        if reads:
            threading.Thread(target=self._read, name="test-json-chat", daemon=True).start()

    def send(self, **command: object) -> None:
        self.send_bytes(json.dumps(command).encode() + b"\n")

    def send_bytes(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def until(self, is_it: Callable[[Line], bool]) -> Line:
        """Read on until a line is the one that is looked for."""
        while (line := self._next()) is not None:
            if is_it(line):
                return line
        raise AssertionError(f"it ended after {self.seen[-3:]}")

    def event(self, name: str) -> Line:
        return self.until(lambda line: line.get("event") == name)

    def reply(self, id: object) -> Line:
        """The next reply to the command with an id."""
        return self.until(lambda line: "reply" in line and line.get("id") == id)

    def last_reply(self, id: object) -> Line:
        """The reply after which there is no other to that command."""
        line = self.reply(id)
        return self.reply(id) if line["reply"] == "accepted" else line

    def end(self) -> int:
        """Close its input, read the rest, and return the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.exit_code()

    def exit_code(self) -> int:
        while self._next() is not None:
            pass
        return self.process.wait(LIMIT_SECONDS)

    def output(self) -> str:
        """What code has written, as far as it was read."""
        return "".join(
            line["msg"] for line in self.seen if line.get("event") == "post_execution_output"
        )

    def _next(self) -> Line | None:
        line = self._lines.get(timeout=LIMIT_SECONDS)
        if line is not None:
            self.seen.append(line)
        return line

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(json.loads(line))
        self._lines.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):  # it had not taken all that was written
                stream.close()
