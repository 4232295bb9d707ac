"""Start programs in a container for a client outside of it, beside the container's kernel.

Requests, answers and news are frames of JSON on one connection. Where a
socket file is shared, the ends of pipes come along with requests; where the
client can only reach a port, it opens a connection for each stream, and what
goes through it is copied.

    client   {"id": 1, "do": "start", "with": {"path": ..., "command": [...], ...}}
    spawner  {"id": 1, "result": {"process": 1, "pid": 17, "mark": "..."}}
    spawner  {"ended": 1, "code": 0}
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import hmac
import json
import os
import secrets
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import termios
import threading
from dataclasses import asdict
from typing import Any

from .process_tree import ProcessSeen, ticks_since_boot
from .started_process import StartedProcess, complaint_about_folder, find_program
from .wire import CHALLENGE_BYTES, PROOF_BYTES, proof

FRAME = struct.Struct("!I")
CONTROL = "control".ljust(32)
"""What the first connection calls itself; those for streams have names of the same length."""

_READ_BYTES = 1 << 18
_MAX_DESCRIPTORS = 8
_PROOF_SECONDS = 1.0
_LIVENESS_SECONDS = 0.02
"""How often to look whether programs live, where the system does not tell."""
_STREAM_SECONDS = 10.0
_COLLECT_SECONDS = 2.0
_KILL = 9


def fork_spawner(settings: dict[str, Any]) -> None:
    """Start it in a process that is nobody's child, so that code does not meet it by waiting."""
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
    line = PortLine(settings["key"], address) if isinstance(address, int) else FolderLine(address)
    spawner = Spawner(line)
    try:
        spawner.serve()
    finally:
        spawner.kill_everything()


class FolderLine:
    """A socket in a folder that both sides see; the client's descriptors come through it."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._unread = bytearray()
        self._descriptors: list[int] = []

    def fileno(self) -> int:
        """Readable when there is a request, or nobody is there any more."""
        return self._socket.fileno()

    def receive(self) -> list[dict[str, Any]] | None:
        """The requests that have come, with the descriptors that came along; None at the end."""
        requests = _receive_frames(self._read, self._unread)
        for request in requests or ():
            count = len(request.get("streams", ()))
            request["descriptors"] = self._descriptors[:count]
            del self._descriptors[:count]
        return requests

    def _read(self) -> bytes:
        items = array.array("i")
        size = socket.CMSG_SPACE(_MAX_DESCRIPTORS * items.itemsize)
        data, ancillary, _, _ = self._socket.recvmsg(_READ_BYTES, size)
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                items.frombytes(content[: len(content) - len(content) % items.itemsize])
        for descriptor in items:
            os.set_inheritable(descriptor, False)
        self._descriptors += items
        return data

    def send(self, message: dict[str, Any]) -> None:
        """Send an answer or news."""
        _send_frame(self._socket, message)

    def open_streams(self, request: dict[str, Any]) -> list[int]:
        """The descriptors of a process's streams, which came along."""
        descriptors: list[int] = request["descriptors"]
        return descriptors


class PortLine:
    """A port on which the client opens one connection for requests and one for each stream.

    Threads:
        One more accepts connections; `_arrived` guards those that nobody has
        asked for yet. Each stream is copied on a thread of its own.
    """

    def __init__(self, key: str, port: int) -> None:
        self._key = key
        self._server = socket.create_server(("0.0.0.0", port))
        self._arrived = threading.Condition()
        self._connections: dict[str, socket.socket] = {}
        threading.Thread(target=self._accept, daemon=True).start()
        self._socket = self._take(CONTROL, None)
        self._unread = bytearray()
        self._folder = tempfile.mkdtemp(prefix="taskweaver-")
        self._copies: dict[str, Copying] = {}

    def fileno(self) -> int:
        """Readable when there is a request, or nobody is there any more."""
        return self._socket.fileno()

    def receive(self) -> list[dict[str, Any]] | None:
        """The requests that have come; None at the end."""
        return _receive_frames(lambda: self._socket.recv(_READ_BYTES), self._unread)

    def send(self, message: dict[str, Any]) -> None:
        """Send an answer or news."""
        _send_frame(self._socket, message)

    def open_streams(self, request: dict[str, Any]) -> list[int]:
        """A descriptor for each stream of a process."""
        has_input = bool(request["with"].get("has_open_stdin"))
        return [
            self._open(name, is_input=has_input and index == 0)
            for index, name in enumerate(request["streams"])
        ]

    def make_pipe(self, name: str) -> str:
        """Make a named pipe whose content goes to the connection of that name."""
        path = os.path.join(self._folder, name)
        os.mkfifo(path, 0o600)
        receiver = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        target = self._take(name, _STREAM_SECONDS).detach()
        self._copies[name] = Copying(receiver, target, path)
        return path

    def written_bytes(self, name: str) -> int:
        """How many bytes a stream's writers have written by now."""
        copying = self._copies[name]
        if copying.has_ended:
            del self._copies[name]
        return copying.written_bytes()

    def _open(self, name: str, *, is_input: bool) -> int:
        """The end of a pipe for a process; the other one is copied to or from a connection."""
        connection = self._take(name, _STREAM_SECONDS).detach()
        receiver, sender = os.pipe()
        if is_input:
            Copying(connection, sender)
            return receiver
        self._copies[name] = Copying(receiver, connection)
        return sender

    def _take(self, name: str, seconds: float | None) -> socket.socket:
        with self._arrived:
            if not self._arrived.wait_for(lambda: name in self._connections, seconds):
                raise TimeoutError(f"nobody has opened {name}")
            return self._connections.pop(name)

    def _accept(self) -> None:
        while True:
            connection, _ = self._server.accept()
            self._welcome(connection)

    def _welcome(self, connection: socket.socket) -> None:
        """Keep a connection whose other side knows the key, by the name that it says."""
        challenge = secrets.token_hex(CHALLENGE_BYTES // 2).encode()
        connection.settimeout(_PROOF_SECONDS)
        try:
            connection.sendall(challenge)
            answer = connection.recv(PROOF_BYTES, socket.MSG_WAITALL)
            if hmac.compare_digest(answer, proof(self._key, challenge)):
                name = connection.recv(len(CONTROL), socket.MSG_WAITALL).decode()
                connection.settimeout(None)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._arrived:
                    self._connections[name] = connection
                    self._arrived.notify_all()
                return
        except (OSError, UnicodeDecodeError):
            pass
        connection.close()


class Spawner:
    """Answer requests and tell of ends, one after another and on one thread.

    A program may use up all the threads that there may be in the container; then it
    must still be possible to end it.
    """

    def __init__(self, line: Any) -> None:
        self._line = line
        self._processes: dict[int, StartedProcess] = {}
        self._untold: dict[int, StartedProcess] = {}
        self._keeps_leader: set[int] = set()
        self._count = 0

    def serve(self) -> None:
        """Answer until the client is gone."""
        while True:
            if self._wait():
                requests = self._line.receive()
                if requests is None:
                    return
                for request in requests:
                    self._answer(request)
            self._tell_ends()

    def kill_everything(self) -> None:
        """Kill all that was started."""
        for process in list(self._processes.values()):
            process.kill_all()

    def _wait(self) -> bool:
        """Wait for something to happen; return whether the client wants something."""
        poller = select.poll()
        poller.register(self._line.fileno(), select.POLLIN)
        seconds: float | None = None
        for process in self._untold.values():
            if process.descriptor is None:
                seconds = _LIVENESS_SECONDS
            else:
                poller.register(process.descriptor, select.POLLIN)
        ready = poller.poll(None if seconds is None else seconds * 1000)
        return any(descriptor == self._line.fileno() for descriptor, _ in ready)

    def _tell_ends(self) -> None:
        for number, process in list(self._untold.items()):
            if process.has_ended():
                del self._untold[number]
                self._line.send({"ended": number, "code": process.wait()})

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
            self._line.send(answer)

    def _do(self, request: dict[str, Any]) -> Any:
        arguments = request.get("with", {})
        if request["do"] == "start":
            return self._start(self._line.open_streams(request), **arguments)
        return getattr(self, f"_do_{request['do']}")(**arguments)

    def _start(
        self,
        descriptors: list[int],
        *,
        environment: dict[str, str],
        stdin: str | None,
        has_open_stdin: bool,
        has_stderr: bool,
        **settings: Any,
    ) -> dict[str, Any]:
        """Start a process: the descriptors are those of its streams, in their order."""
        opened = list(descriptors)
        try:
            if not has_open_stdin:
                opened.insert(0, os.open(stdin or os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            process = StartedProcess(
                environment={**os.environ, **environment},
                stdin=opened[0],
                stdout=opened[1],
                stderr=opened[2] if has_stderr else subprocess.DEVNULL,
                **settings,
            )
        finally:
            for descriptor in opened:
                os.close(descriptor)
        self._count += 1
        number = self._count
        self._processes[number] = self._untold[number] = process
        if has_open_stdin:
            self._keeps_leader.add(number)
        return {"process": number, "pid": process.pid, "mark": process.mark}

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
            raise TimeoutError("it does not end")  # nobody else is to wait for it
        self._untold.pop(process, None)
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
        return int(self._line.written_bytes(name))

    def _do_make_pipe(self, name: str) -> str:
        path: str = self._line.make_pipe(name)
        return path


def _receive_frames(read: Any, unread: bytearray) -> list[dict[str, Any]] | None:
    """Read once and take the frames that are whole; None at the end."""
    try:
        data = read()
    except OSError:
        return None
    if not data:
        return None
    unread += data
    frames = []
    while len(unread) >= FRAME.size:
        (size,) = FRAME.unpack_from(unread)
        if len(unread) < FRAME.size + size:
            break
        frames.append(json.loads(bytes(unread[FRAME.size : FRAME.size + size])))
        del unread[: FRAME.size + size]
    return frames


def _send_frame(connection: socket.socket, message: dict[str, Any]) -> None:
    content = json.dumps(message).encode()
    connection.sendall(FRAME.pack(len(content)) + content)


class Copying:
    """Copy a stream on a thread until it ends or nobody takes it; then both ends are closed.

    Threads:
        `_lock` guards what was taken against being counted in the middle of a read.
    """

    def __init__(self, source: int, target: int, path: str | None = None) -> None:
        self._source = source
        self._target = target
        self._path = path
        self._lock = threading.Lock()
        self._taken_bytes = 0
        self.has_ended = False
        threading.Thread(target=self._run, daemon=True).start()

    def written_bytes(self) -> int:
        """How many bytes have been written to the source by now."""
        with self._lock:
            if self.has_ended:
                return self._taken_bytes
            waiting = fcntl.ioctl(self._source, termios.FIONREAD, bytes(4))
            return self._taken_bytes + int(struct.unpack("i", waiting)[0])

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._source, select.POLLIN)
        try:
            while True:
                poller.poll()  # of a named pipe, the end comes only after a beginning
                with self._lock:
                    data = memoryview(os.read(self._source, _READ_BYTES))
                    self._taken_bytes += len(data)
                if not data:
                    return
                while data:
                    data = data[os.write(self._target, data) :]
        except OSError:
            return
        finally:
            with self._lock:
                self.has_ended = True
                os.close(self._source)
            os.close(self._target)
            if self._path is not None:
                with contextlib.suppress(OSError):
                    os.unlink(self._path)
