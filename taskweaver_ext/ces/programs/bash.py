"""One persistent bash, and the lines we talk to it in.

Bash reads our lines from its standard input and answers on its standard output,
which no command ever gets to see: a command's own streams are redirected while
it runs. It runs as an interactive shell, because that comes back to its input
after an interrupt, a failed expansion or a missing program, with all its state.

A command is a file that bash sources with its streams redirected:

    us    _taskweaver_running=7; printf 'TOKEN 7 started'
          { _taskweaver_entered=7; . FILE; } <STDIN >STDOUT 2>STDERR
    us    printf 'TOKEN 7 0 ended' $? $_taskweaver_entered
    bash  TOKEN 7 started
    bash  TOKEN 7 0 ended 1 7

When the last number is still that of the command before, bash did not get as far as the
code: what earlier commands did to it (`set -r`, `ulimit -n 4`) keeps it from running any.

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
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from taskweaver_ext.ces.execution.results import HostNotice, KernelDeath, signal_name
from taskweaver_ext.ces.inside.spawner.process_tree import MARK, ProcessSeen
from taskweaver_ext.ces.programs.process_output import ReadEnd
from taskweaver_ext.ces.programs.site import ProcessSettings, ProgramSite

_ARGUMENTS = ("--norc", "--noprofile", "--noediting", "-i")

_PREPARE = r"""\builtin set +o history +o histexpand
\builtin shopt -s expand_aliases execfail
\builtin unset HISTFILE MAILCHECK PS0; PS1= PS2= _taskweaver_running= _taskweaver_entered=0
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
    stdout: ReadEnd
    stderr: ReadEnd
    """The ends of its streams that we read."""
    sent_at_ticks: int
    names: tuple[str, str]
    """What its streams are called in bash's folder."""
    has_started: bool = False
    wanted_report: int = 0
    """An answer to an earlier question may have been on its way before the last signal."""
    exit_code: int | None = None
    was_refused: bool = False
    """Whether bash did not get as far as the code itself; known once it has ended."""


class BashProcess:
    """A bash that keeps its state from command to command; belongs to one thread."""

    def __init__(
        self, site: ProgramSite, path: str, cwd: Path, environment: Mapping[str, str]
    ) -> None:
        """Start it; raises OSError, or ValueError for what no process can be given."""
        self._token = uuid.uuid4().hex
        self._count = 0
        self._last_exit_code = 0
        self._unread = b""
        self.why_given_up = ""
        """Why it was killed by us although it lived, if it was."""
        self.is_listening = True
        """False once nothing of it can answer any more: it has ended or become another program."""
        self._folder = site.make_folder()
        settings = ProcessSettings(
            path=path,
            command=("bash", *_ARGUMENTS),
            cwd=cwd,
            environment=environment,
            has_open_stdin=True,
            has_stderr=False,
        )
        try:
            self._process = site.start(settings)
        except BaseException:
            self._folder.close()
            raise
        assert self._process.stdin is not None
        self._lines = self._process.stdin
        self.reports = self._process.stdout.descriptor
        os.set_blocking(self.reports, False)
        self._send(_PREPARE)

    @property
    def descriptor(self) -> int | None:
        """Readable when it has ended, or there is news; None where nothing tells."""
        return self._process.descriptor

    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self._process.has_ended()

    def read_notices(self) -> Iterable[HostNotice]:
        """What has happened to the place it runs in since this was asked last."""
        return self._process.read_notices()

    def limits_met(self) -> list[str]:
        """The limits of that place that were met since this was asked last, in words."""
        return self._process.limits_met()

    def death(self) -> KernelDeath | None:
        """How that place ended, if it has."""
        return self._process.death()

    def send(self, code: str, stdin: bytes | None) -> SentCommand:
        """Give it a command; raises OSError when there is no room for its files."""
        self._count += 1
        self.limits_met()  # what others met before is not its doing
        folder = self._folder
        source = folder.write("command", code.encode("utf-8", "surrogatepass"))
        input_file = os.devnull if stdin is None else folder.write("stdin", stdin)
        names = (f"{self._count}.stdout", f"{self._count}.stderr")
        pipes = self._make_pipes(names)
        mark = f"{self._process.mark}-{self._count}"
        paths = [shlex.quote(path) for path in (source, input_file, *(path for path, _ in pipes))]
        code_line = (
            f"_taskweaver_running={self._count}; \\builtin export {MARK}={mark};"
            f" \\builtin printf '\\n%s\\n' '{self._token} {self._count} started';"
            f" {{ _taskweaver_entered={self._count};{self._status()}"
            f" \\builtin . {paths[0]}; }} <{paths[1]} >{paths[2]} 2>{paths[3]}\n"
        )
        command = SentCommand(
            number=self._count,
            mark=mark,
            stdout=pipes[0][1],
            stderr=pipes[1][1],
            sent_at_ticks=self._process.ticks(),
            names=names,
        )
        self._send(code_line)
        self._ask_for_report(command)
        return command

    def _make_pipes(self, names: Iterable[str]) -> list[tuple[str, ReadEnd]]:
        pipes: list[tuple[str, ReadEnd]] = []
        try:
            for name in names:
                pipes.append(self._folder.make_pipe(name))
        except BaseException:
            for _, end in pipes:
                os.close(end.descriptor)
            raise
        return pipes

    def read_reports(self, command: SentCommand | None) -> None:
        """Read what it says, and note what that means for the command."""
        try:
            data = os.read(self.reports, _READ_BYTES)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""  # it comes from elsewhere, and the line has broken
        self.is_listening = bool(data)
        *lines, rest = (self._unread + data).split(b"\n")
        self._unread = rest[-_LONGEST_LINE:]
        if command is None:
            return
        wanted = re.compile(
            rf"{self._token} {command.number} (?:(started)|(\d+) ended (\d+) (\d*))".encode()
        )
        for line in lines:
            if (match := wanted.fullmatch(line)) is None:
                continue  # a prompt command of the user's may write here, too
            if match[1]:
                command.has_started = True
            elif int(match[2]) >= command.wanted_report:
                command.exit_code = self._last_exit_code = int(match[3])
                command.was_refused = match[4] == b"%d" % (command.number - 1)

    def begin_interrupt(self) -> None:
        """Let it go back to its input once the process it waits for has ended.

        This must come before that process is ended: else bash might go on first.
        """
        self._process.signal(signal.SIGURG)

    def finish_interrupt(self, command: SentCommand, *, hangs_by_itself: bool) -> None:
        """Ask for a report, which comes when bash is back at its input.

        Args:
            hangs_by_itself: It waits for no process, but hangs in something of its own, like
                opening a pipe, that only an interrupt ends.
        """
        command.wanted_report += 1
        if hangs_by_itself:
            self._process.signal(signal.SIGINT)
        self._process.signal(signal.SIGCONT)
        self._ask_for_report(command)

    def processes_of(self, command: SentCommand) -> list[ProcessSeen]:
        """What the command started and still lives; not what earlier ones left running."""
        members = {seen.pid: seen for seen in self._process.members()}
        members.pop(self._process.pid, None)
        earlier = {
            seen.pid
            for seen in members.values()
            if seen.mark != command.mark
            and (
                seen.mark not in ("", self._process.mark)
                or seen.start_ticks < command.sent_at_ticks
            )
        }
        return [
            seen
            for seen in members.values()
            if seen.pid not in earlier
            and (seen.mark == command.mark or not _descends(seen, earlier, members))
        ]

    def signal_processes(
        self,
        processes: Iterable[ProcessSeen],
        number: signal.Signals,
        wait_seconds: float = 0.0,
    ) -> None:
        """Send a signal to some of them, and wait a moment for their end."""
        self._process.signal_members(processes, number, wait_seconds)

    def forget(self, command: SentCommand) -> None:
        """Remove the names of its streams, which are not needed once it has ended."""
        for name in command.names:
            self._folder.remove(name)

    def kill(self) -> None:
        """Kill bash itself; what it left running lives until `close`."""
        self._process.signal(signal.SIGKILL)

    def give_up(self, why: str) -> None:
        """Kill a bash that lives, but does not work any more, and wait for its end."""
        self.why_given_up = why
        self.kill()
        self.wait()

    def wait(self) -> int:
        """Its exit code once it has ended; negative for the signal that ended it."""
        return self._process.wait()

    def how_it_ended(self) -> str:
        """How it ended, or the place that it ran in."""
        if self.why_given_up:
            return self.why_given_up
        if (death := self.death()) is not None:
            return f"its container ended: {death.detail}"
        code = self.wait()
        if code >= 0:
            return f"it exited with code {code}"
        return f"it was killed by {signal_name(-code)}"

    def has_left_anything(self) -> bool:
        """Whether something that it started lives on."""
        return any(seen.pid != self._process.pid for seen in self._process.members())

    def close(self) -> None:
        """End it with everything it started, and let go of what is ours."""
        self._process.kill_all()
        self._process.collect()
        os.close(self._lines)
        os.close(self.reports)
        self._folder.close()

    def _status(self) -> str:
        """What sets `$?` to the last command's; under `set -e` that would end the shell."""
        code = self._last_exit_code
        return f" [[ $- == *e* ]] || _taskweaver_status {code};" if code else ""

    def _ask_for_report(self, command: SentCommand) -> None:
        self._send(
            f"\\builtin printf '\\n%s %s %s\\n' '{self._token} {command.number}"
            f' {command.wanted_report} ended\' "$?" "$_taskweaver_entered"; _taskweaver_running=\n'
        )

    def _send(self, lines: str) -> None:
        with contextlib.suppress(ConnectionError):  # its end is noticed elsewhere
            os.write(self._lines, lines.encode())


def _descends(seen: ProcessSeen, earlier: set[int], members: Mapping[int, ProcessSeen]) -> bool:
    """Whether one of its parents is among those."""
    for _ in range(len(members)):
        if seen.parent in earlier:
            return True
        if seen.parent not in members:
            return False
        seen = members[seen.parent]
    return False
