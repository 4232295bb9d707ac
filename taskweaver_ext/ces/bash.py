"""One persistent bash, and the lines we talk to it in.

Bash reads our lines from its standard input and answers on its standard output,
which no command ever gets to see: a command's own streams are redirected while
it runs. It runs as an interactive shell, because that comes back to its input
after an interrupt, a failed expansion or a missing program, with all its state.

A command is a file that bash sources with its streams redirected:

    us    _taskweaver_running=7; printf 'TOKEN 7 started'; . FILE <STDIN >STDOUT 2>STDERR
    us    printf 'TOKEN 7 0 ended' $?
    bash  TOKEN 7 started
    bash  TOKEN 7 0 ended 1

An interrupt throws away the line that bash is at. The handler of a signal that
means nothing to programs interrupts bash once more as soon as the process it
waits for has ended, however that ended, so that the rest does not run on. The
second line is then sent again, with a higher number, until it is answered.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from taskweaver_ext.ces.guardian import Guardian
from taskweaver_ext.ces.process_tree import (
    MARK,
    ProcessFamily,
    ProcessSeen,
    kill_family,
    mark_of,
    ticks_since_boot,
)

_ARGUMENTS = ("--norc", "--noprofile", "--noediting", "-i")

_PREPARE = r"""\builtin set +o history +o histexpand
\builtin shopt -s expand_aliases execfail
\builtin unset HISTFILE MAILCHECK PS0; PS1= PS2= _taskweaver_running=
_taskweaver_status() { \builtin return "$1"; }
_taskweaver_stop='\builtin trap - INT; \builtin kill -INT "$$"'
\builtin trap '[[ ! $_taskweaver_running ]] || \builtin eval "$_taskweaver_stop"' URG
"""
_READ_BYTES = 1 << 16
_LONGEST_LINE = 4096


@dataclass(slots=True)
class SentCommand:
    """A command that bash was given, and what it has said about it."""

    number: int
    mark: str
    """What its processes carry in their environment."""
    stdout: int
    stderr: int
    """The ends of its streams that we read."""
    sent_at_ticks: int
    fifos: tuple[Path, Path]
    has_started: bool = False
    wanted_report: int = 0
    """An answer to an earlier question may have been on its way before the last signal."""
    exit_code: int | None = None


class BashProcess:
    """A bash that keeps its state from command to command; belongs to one thread."""

    def __init__(self, path: str, cwd: Path, environment: Mapping[str, str]) -> None:
        """Start it; raises OSError, or ValueError for what no process can be given."""
        self._mark = uuid.uuid4().hex
        self._token = uuid.uuid4().hex
        self._count = 0
        self._last_exit_code = 0
        self._unread = b""
        self.is_listening = True
        """False once nothing of it can answer any more: it has ended or become another program."""
        self._folder = tempfile.TemporaryDirectory(
            prefix="taskweaver-shell-", ignore_cleanup_errors=True
        )
        started_ticks = ticks_since_boot()
        lines_out, self._lines = os.pipe()
        self.reports, reports_in = os.pipe()
        try:
            self._process = subprocess.Popen(
                ["bash", *_ARGUMENTS],
                executable=path,
                cwd=cwd,
                env={**environment, MARK: self._mark},
                stdin=lines_out,
                stdout=reports_in,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except BaseException:
            os.close(self._lines)
            os.close(self.reports)
            self._folder.cleanup()
            raise
        finally:
            os.close(lines_out)
            os.close(reports_in)
        self._family = ProcessFamily(self._process.pid, self._mark, started_ticks)
        self._family.tag()
        self._guardian: Guardian | None = None
        with contextlib.suppress(OSError):  # where there is no room for it, we go without
            self._guardian = Guardian(path, self._family)
        os.set_blocking(self.reports, False)
        self._send(_PREPARE)

    @property
    def pid(self) -> int:
        """Its process id, which is also its session and group."""
        return self._process.pid

    def send(self, code: str, stdin: bytes | None) -> SentCommand:
        """Give it a command; raises OSError when there is no room for its files."""
        self._count += 1
        folder = Path(self._folder.name)
        source, input_file = folder / "command", Path(os.devnull)
        source.write_bytes(code.encode("utf-8", "surrogatepass"))
        if stdin is not None:
            input_file = folder / "stdin"
            input_file.write_bytes(stdin)
        fifos = (folder / f"{self._count}.stdout", folder / f"{self._count}.stderr")
        descriptors = []
        for fifo in fifos:
            os.mkfifo(fifo, 0o600)
            descriptors.append(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        mark = f"{self._mark}-{self._count}"
        names = [shlex.quote(str(path)) for path in (source, input_file, *fifos)]
        code_line = (
            f"_taskweaver_running={self._count}; \\builtin export {MARK}={mark};"
            f" \\builtin printf '\\n%s\\n' '{self._token} {self._count} started';{self._status()}"
            f" \\builtin . {names[0]} <{names[1]} >{names[2]} 2>{names[3]}\n"
        )
        command = SentCommand(
            number=self._count,
            mark=mark,
            stdout=descriptors[0],
            stderr=descriptors[1],
            sent_at_ticks=ticks_since_boot(),
            fifos=(fifos[0], fifos[1]),
        )
        self._send(code_line)
        self._ask_for_report(command)
        return command

    def read_reports(self, command: SentCommand | None) -> None:
        """Read what it says, and note what that means for the command."""
        try:
            data = os.read(self.reports, _READ_BYTES)
        except BlockingIOError:
            return
        self.is_listening = bool(data)
        *lines, rest = (self._unread + data).split(b"\n")
        self._unread = rest[-_LONGEST_LINE:]
        if command is None:
            return
        wanted = re.compile(
            rf"{self._token} {command.number} (?:(started)|(\d+) ended (\d+))".encode()
        )
        for line in lines:
            if (match := wanted.fullmatch(line)) is None:
                continue  # a prompt command of the user's may write here, too
            if match[1]:
                command.has_started = True
            elif int(match[2]) >= command.wanted_report:
                command.exit_code = self._last_exit_code = int(match[3])

    def begin_interrupt(self) -> None:
        """Let it go back to its input once the process it waits for has ended.

        This must come before that process is ended: else bash might go on first.
        """
        self._signal(signal.SIGURG)

    def finish_interrupt(self, command: SentCommand, *, is_repeated: bool) -> None:
        """Ask for a report, which comes when bash is back at its input.

        Args:
            is_repeated: It should have been by now: it may hang in something of its own,
                like opening a pipe, that only an interrupt ends.
        """
        command.wanted_report += 1
        if is_repeated:
            self._signal(signal.SIGINT)
        self._signal(signal.SIGCONT)
        self._ask_for_report(command)

    def processes_of(self, command: SentCommand) -> list[ProcessSeen]:
        """What the command started and still lives; not what earlier ones left running."""
        members = {seen.pid: seen for seen in self._family.members()}
        members.pop(self.pid, None)
        marks = {pid: mark_of(pid) for pid in members}
        earlier = {
            pid
            for pid, seen in members.items()
            if marks[pid] != command.mark
            and (marks[pid] not in ("", self._mark) or seen.start_ticks < command.sent_at_ticks)
        }
        return [
            seen
            for pid, seen in members.items()
            if pid not in earlier
            and (marks[pid] == command.mark or not _descends(seen, earlier, members))
        ]

    def forget(self, command: SentCommand) -> None:
        """Remove the names of its streams, which nobody needs once it has ended."""
        for fifo in command.fifos:
            fifo.unlink(missing_ok=True)

    def kill(self) -> None:
        """Kill bash itself; what it left running lives until `close`."""
        self._signal(signal.SIGKILL)

    def wait(self) -> int:
        """Its exit code once it has ended; negative for the signal that ended it.

        Its process id stays taken until `close`: what it left running is known by it.
        """
        if not hasattr(os, "waitid"):
            return self._process.wait()
        try:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:  # somebody else in this program collects all children
            ended = None
        if ended is None:
            return 0
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def has_left_anything(self) -> bool:
        """Whether something that it started lives on."""
        return any(seen.pid != self.pid for seen in self._family.members())

    def close(self) -> None:
        """End it with everything it started, and let go of what is ours."""
        kill_family(self._family)
        self._process.wait()
        if self._guardian is not None:
            self._guardian.dismiss()
        os.close(self._lines)
        os.close(self.reports)
        self._folder.cleanup()

    def _status(self) -> str:
        """What sets `$?` to the last command's; under `set -e` that would end the shell."""
        code = self._last_exit_code
        return f" [[ $- == *e* ]] || _taskweaver_status {code};" if code else ""

    def _ask_for_report(self, command: SentCommand) -> None:
        self._send(
            f"\\builtin printf '\\n%s %s\\n' '{self._token} {command.number}"
            f' {command.wanted_report} ended\' "$?"; _taskweaver_running=\n'
        )

    def _send(self, lines: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # its end is noticed elsewhere
            os.write(self._lines, lines.encode())

    def _signal(self, number: signal.Signals) -> None:
        # Not Popen.send_signal, which collects a process that has ended.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


def _descends(seen: ProcessSeen, earlier: set[int], members: Mapping[int, ProcessSeen]) -> bool:
    """Whether one of its parents is among those."""
    for _ in range(len(members)):
        if seen.parent in earlier:
            return True
        if seen.parent not in members:
            return False
        seen = members[seen.parent]
    return False
