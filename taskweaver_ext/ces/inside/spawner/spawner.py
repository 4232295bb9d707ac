"""Start programs in a container for a client outside of it, beside the container's kernel.

Requests, answers and reports are frames of JSON on one connection. Where a
socket file is shared, the ends of pipes come along with requests; where the
client can only reach a port, it opens a connection for each stream, and what
goes through it is copied.

    client   {"id": 1, "do": "start", "with": {"path": ..., "command": [...], ...}}
    spawner  {"id": 1, "result": {"pid": 17, "mark": "..."}}
    spawner  {"ended": 1, "code": 0}

A process is known by the number of the request that started it, so that the
client can also have one ended of which it has not heard yet.
"""

from __future__ import annotations

import errno
import os
import select
import shutil
import subprocess
import tempfile
from dataclasses import asdict
from typing import Any

from .process_tree import ProcessSeen, ticks_since_boot
from .spawner_channels import FolderChannel, PortChannel
from .started_process import StartedProcess, complaint_about_folder, find_program

_LIVENESS_SECONDS = 0.02
"""How often to look whether programs live, where the system does not tell."""
_COLLECT_SECONDS = 2.0
_KILL = 9


def fork_spawner(settings: dict[str, Any]) -> None:
    """Start it in a process that is no child of ours, so that code does not meet it by waiting."""
    if child := os.fork():
        os.waitpid(child, 0)
        return
    os.setsid()  # interrupts of the kernel go to its group
    if os.fork():
        os._exit(0)
    try:
        serve(settings)
    finally:
        os._exit(0)


def serve(settings: dict[str, Any]) -> None:
    """Do what the client asks for until it is gone; then nothing that was started lives on."""
    os.environ.update(settings.get("environment", {}))
    address = settings["programs"]
    is_port = isinstance(address, int)
    spawner = Spawner(PortChannel(settings["key"], address) if is_port else FolderChannel(address))
    try:
        spawner.serve()
    finally:
        spawner.kill_everything()


class Spawner:
    """Answer requests and report ends, one after another and on one thread.

    A program may use up all the threads that there may be in the container; then it
    must still be possible to end it.
    """

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._processes: dict[int, StartedProcess] = {}
        self._unreported: dict[int, StartedProcess] = {}
        self._keeps_leader: set[int] = set()

    def serve(self) -> None:
        """Answer until the client is gone."""
        while True:
            if self._wait():
                requests = self._channel.receive()
                if requests is None:
                    return
                for request in requests:
                    self._answer(request)
            self._report_ends()

    def kill_everything(self) -> None:
        """Kill all that was started."""
        for process in list(self._processes.values()):
            process.kill_all()

    def _wait(self) -> bool:
        """Wait for something to happen; return whether the client wants something."""
        poller = select.poll()
        poller.register(self._channel.fileno(), select.POLLIN)
        seconds: float | None = None
        for process in self._unreported.values():
            if process.descriptor is None:
                seconds = _LIVENESS_SECONDS
            else:
                poller.register(process.descriptor, select.POLLIN)
        ready = poller.poll(None if seconds is None else seconds * 1000)
        return any(descriptor == self._channel.fileno() for descriptor, _ in ready)

    def _report_ends(self) -> None:
        for number, process in list(self._unreported.items()):
            if process.has_ended():
                del self._unreported[number]
                self._channel.send({"ended": number, "code": process.wait()})

    def _answer(self, request: dict[str, Any]) -> None:
        answer: dict[str, Any] = {"id": request.get("id")}
        try:
            answer["result"] = self._do(request)
        except OSError as error:
            answer["errno"], answer["error"] = error.errno, str(error)
        except RuntimeError as error:  # no thread can be started to copy a stream
            answer["errno"], answer["error"] = errno.EAGAIN, str(error)
        except Exception as error:  # noqa: BLE001 - the client is to hear of it, whatever it is
            answer["error"] = str(error) or type(error).__name__
        if "id" in request:
            self._channel.send(answer)

    def _do(self, request: dict[str, Any]) -> Any:
        arguments = request.get("with", {})
        if request["do"] != "start":
            return getattr(self, f"_do_{request['do']}")(**arguments)
        descriptors = self._channel.open_streams(request)
        try:
            return self._start(request["id"], descriptors, **arguments)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _start(
        self,
        number: int,
        descriptors: list[int],
        *,
        environment: dict[str, str],
        stdin: str | None,
        has_open_stdin: bool,
        has_stderr: bool,
        **settings: Any,
    ) -> dict[str, Any]:
        """Start a process: the descriptors are those of its streams, in their order."""
        waiting = iter(descriptors)
        source = (
            next(waiting)
            if has_open_stdin
            else os.open(stdin or os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        )
        try:
            process = StartedProcess(
                environment={**os.environ, **environment},
                stdin=source,
                stdout=next(waiting),
                stderr=next(waiting) if has_stderr else subprocess.DEVNULL,
                **settings,
            )
        finally:
            if not has_open_stdin:
                os.close(source)
        self._processes[number] = self._unreported[number] = process
        if has_open_stdin:
            self._keeps_leader.add(number)
        return {"pid": process.pid, "mark": process.mark}

    def _do_abandon(self, process: int) -> None:
        """End a process, if that was started, because the client does not wait for it any more."""
        if process in self._processes:
            self._do_kill_all(process)
            self._do_collect(process)

    def _do_signal(self, process: int, number: int) -> None:
        self._processes[process].signal(number)

    def _do_signal_group(self, process: int, number: int) -> None:
        self._processes[process].signal_group(number)

    def _do_members(self, process: int) -> list[dict[str, Any]]:
        return [asdict(seen) for seen in self._processes[process].members()]

    def _do_signal_members(
        self, process: int, members: list[dict[str, Any]], number: int, wait_seconds: float
    ) -> None:
        seen = [ProcessSeen(**member) for member in members]
        self._processes[process].signal_members(seen, number, wait_seconds)

    def _do_kill_all(self, process: int) -> None:
        self._processes[process].kill_all()

    def _do_collect(self, process: int) -> dict[str, Any]:
        started = self._processes.pop(process)
        if not started.has_ended(_COLLECT_SECONDS):
            raise TimeoutError("it does not end")  # and no later request is to wait for it
        self._unreported.pop(process, None)
        self._keeps_leader.discard(process)
        return asdict(started.collect())

    def _do_stop_everything(self) -> None:
        """Kill all programs, but not the shells that they run in."""
        for number, process in list(self._processes.items()):
            members = process.members()
            if number in self._keeps_leader:
                members = [seen for seen in members if seen.pid != process.pid]
            process.signal_members(members, _KILL)

    def _do_ticks(self) -> int:
        return ticks_since_boot()

    def _do_find_program(self, command: str, environment: dict[str, str]) -> str | None:
        return find_program(command, {**os.environ, **environment})

    def _do_complain_about_folder(self, path: str) -> str:
        return complaint_about_folder(path)

    def _do_has_file(self, path: str) -> bool:
        return os.path.exists(path)

    def _do_make_folder(self) -> str:
        return tempfile.mkdtemp(prefix="taskweaver-")

    def _do_remove_folder(self, path: str) -> None:
        shutil.rmtree(path, ignore_errors=True)

    def _do_written_bytes(self, name: str) -> int:
        return int(self._channel.written_bytes(name))

    def _do_make_pipe(self, name: str) -> str:
        path: str = self._channel.make_pipe(name)
        return path
