"""One execution inside the kernel, from request to end.

The request's metadata says which execution it is; what the code does becomes
output, messages and at last one ENDED frame with the reply. Whatever the code
does to the process (forks, exits, replaces `sys.stdout`), the kernel is the
same afterwards.
"""

from __future__ import annotations

import asyncio
import contextvars
import dis
import functools
import json
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

from . import kernel_contents, plugin_api, thread_context
from .child_pipes import ChildPipes
from .deferred_signals import DeferredSignals
from .display_parts import DISPLAYS, send_large_parts
from .interrupt_watch import InterruptWatch
from .looks import Looks
from .message_cost import fitting, sendable
from .output_queue import OutputQueue
from .streams import TextStream
from .variables import Variables
from .wire import HELLO, MESSAGE, PIECE, STDERR, STDOUT, FrameSender

_STARTS_A_CHILD = frozenset(
    ("subprocess.Popen", "os.system", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec")
)
_MAY_END_US = frozenset(("os.kill", "os.killpg", "signal.pthread_kill", "ctypes.string_at"))
NOT_FOR_THE_WIRE = frozenset(("status", "execute_input", "iopub_welcome", "shutdown_reply"))

_DELIMITER = b"<IDS|MSG>"
_STARTED = "started\n{}"
_ALIVE = "alive\n{}"
_PASSING = (KeyboardInterrupt, MemoryError, OSError, RecursionError)
"""What can happen in our own code without anything being broken."""

_GET_AWAITABLE = bytes((dis.opmap["GET_AWAITABLE"],))
_CACHE = b"\0"
"""Fills the room that newer versions of Python keep behind an operation."""

_MAX_EXIT_CODE = 1 << 63
_REPLIED = ("status", "ename", "evalue", "traceback", "exit_code", "usage")
"""What the client wants to know of an end."""

Run = Callable[[], Awaitable["dict[str, Any]"]]


class Runtime:
    """Everything we add to a kernel."""

    def __init__(self, open_wire: Callable[[DeferredSignals], FrameSender]) -> None:
        self.signals = DeferredSignals()
        self._pipes = ChildPipes((STDOUT, STDERR))
        self._wire = open_wire(self.signals)
        self._wire.on_question = lambda _question: None  # until there is something to look at
        self.queue = OutputQueue(self._wire, self._pipes)
        self.stdout = TextStream(self.queue, STDOUT)
        self.stderr = TextStream(self.queue, STDERR)
        self._kernel_pid = os.getpid()
        self.is_in_code = False
        """Whether an interrupt raises: it may hit only the code's own statements."""
        self.awaiting: asyncio.Task[Any] | None = None
        """The task of a cell that awaits."""
        self._is_interrupted = False
        self._interrupt_raised: KeyboardInterrupt | None = None
        self.ended_with: BaseException | None = None
        """What the code raised."""
        self._began_at = 0.0
        self.context: plugin_api.PluginContext
        self.plugins: plugin_api.LoadedPlugins

    def install(self) -> None:
        """Take over streams, descriptors, signals and threads of this process."""
        self.signals.on_interrupt = self._interrupt
        self.signals.install()
        self._interrupt_watch = InterruptWatch()
        self._listen_for_interrupts()
        thread_context.install()
        plugin_api.install()
        # In a context of its own: what runs outside of executions (exit handlers) belongs to the
        # latest, not to none.
        contextvars.copy_context().run(self.queue.begin, 0)
        self.queue.start()
        # Also the real ones: what code writes there would overtake what was printed.
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__ = self.stdout, self.stderr  # type: ignore[misc, assignment]
        os.register_at_fork(
            before=self.queue.before_child_starts, after_in_child=self._after_fork_in_child
        )
        self._settle_before(os, "_exit", lambda status: {"exit_code": status})
        self._settle_before(os, "abort", lambda: {"signal": signal.SIGABRT})
        self._flush_before_writes()
        self._plain_unraisable_hook, sys.unraisablehook = sys.unraisablehook, self._on_unraisable
        sys.addaudithook(self._on_audit_event)

    def attach(self, kernel: Any, *, env_id: str, session_id: str) -> None:
        """Connect to the kernel once it exists."""
        shell = kernel.shell
        display = shell.display_pub

        def publish(mime: str, content: dict[str, Any]) -> None:
            display.publish({mime: content})

        self.context = plugin_api.PluginContext(publish, env_id=env_id, session_id=session_id)
        self.plugins = plugin_api.LoadedPlugins(self.context, shell.user_ns)
        self._variables = Variables(shell.user_ns, self.stdout)
        self.shell = shell
        looks = Looks(self, lambda answer: self.queue.say_apart(MESSAGE, f"looked\n{answer}"))
        self._wire.on_question = looks.receive

    def say_hello(self, key: str, **more: str) -> None:
        """Tell the client that this kernel is ready."""
        hello = {"key": key, "pid": os.getpid(), "python": sys.version.split()[0], **more}
        self.queue.say(HELLO, json.dumps(hello))

    def send_message(self, message_type: str, content: bytes) -> None:
        """Send what ipykernel would publish: displays, results, errors."""
        if message_type in NOT_FOR_THE_WIRE:
            return
        if os.getpid() == self._kernel_pid:
            if message_type in DISPLAYS:
                content = send_large_parts(content, lambda piece: self.queue.say(PIECE, piece))
            self.queue.say(MESSAGE, f"{message_type}\n{fitting(content).decode()}")

    async def execute(self, request: dict[str, Any], run: Run) -> dict[str, Any]:
        """Run one request (its metadata is `request`) and say how it ended.

        Where that is not possible any more this process ends: the client would wait for ever.
        """
        if "alive" in request:
            self.queue.say(MESSAGE, _ALIVE)
            return {"status": "ok"}
        ordinal = int(request.get("ordinal", 0))
        if 0 < ordinal <= self.queue.latest.ordinal:
            return {"status": "ok"}  # sent again by a client that lost its line
        has_begun = False
        try:
            self._begin(ordinal, request)
            has_begun = True
            reply = await self._run(request, run)
        except BaseException as error:  # noqa: BLE001 - the client must hear an end in any case
            if not has_begun and not isinstance(error, _PASSING):
                self.queue.break_down()
            self.is_in_code = False
            reply = _error_reply(error)
        try:
            told = {name: reply[name] for name in _REPLIED if name in reply}
            self.queue.end(fitting(json.dumps(sendable(told), default=str).encode()).decode())
        except BaseException:  # noqa: BLE001 - see above
            self.queue.break_down()
        return reply

    def _begin(self, ordinal: int, request: dict[str, Any]) -> None:
        self.queue.begin(ordinal)
        self.context.begin(request)
        self._is_interrupted = False
        self._began_at = time.monotonic()
        self._interrupt_watch.begin(ordinal)
        if threading.current_thread() is threading.main_thread():
            self._interrupt_watch.loop = asyncio.get_running_loop()
            self._listen_for_interrupts()

    async def _run(self, request: dict[str, Any], run: Run) -> dict[str, Any]:
        processor_seconds = time.process_time()
        try:
            self.queue.say_first(MESSAGE, _STARTED)
            reply = self._command(request) if "command" in request else await run()
        except BaseException as error:  # noqa: BLE001 - how code ends is a result
            self.is_in_code = False
            reply = _error_reply(error)
        self._interrupt_watch.end()
        self._interrupt_raised = None
        if self.is_forked_child():
            self._end_forked_child()
        self._put_back_streams()
        self.context.announce_what_was_made()
        if isinstance(ended_with := self._pop_exception(), SystemExit):
            reply = {**reply, "exit_code": self._exit_code(ended_with.code)}
        return {**reply, "usage": _usage(time.process_time() - processor_seconds)}

    def _listen_for_interrupts(self) -> None:
        """Put SIGINT back in order, whatever the last cell did to it."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))
        self._interrupt_watch.listen()

    def is_forked_child(self) -> bool:
        """Whether code has forked, and this is not the kernel but its child."""
        return os.getpid() != self._kernel_pid

    def is_running(self, ordinal: int) -> bool:
        """Whether this execution has begun and not ended."""
        return ordinal == self._interrupt_watch.execution

    @property
    def running(self) -> tuple[int, float]:
        """The execution that has begun and not ended, 0 if there is none, and when it began."""
        return self._interrupt_watch.execution, self._began_at

    def hold_executions(self) -> threading.Lock:
        """Return a lock: while it is held, no execution begins."""
        return self._interrupt_watch.lock

    def enter_code(self) -> bool:
        """From here on an interrupt raises; False when one has come already."""
        self.is_in_code = True
        return not self._is_interrupted

    def _command(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked by name instead of running code; it fails as code fails."""
        command, arguments = request["command"], request.get("arguments", {})
        commands: dict[str, Callable[..., None]] = {
            "load_plugin": self.plugins.load,
            "unload_plugin": self.plugins.unload,
            "test_plugin": self.plugins.test,
            "run_script": self.plugins.run_script,
            "describe_contents": self._describe_contents,
            "save_variables": self._save_variables,
            "receive_variables": self._variables.receive,
            "restore_variables": self._restore_variables,
        }
        if not self.enter_code():
            raise KeyboardInterrupt
        commands[command](**arguments)
        self.is_in_code = False
        return {"status": "ok"}

    def _describe_contents(self) -> None:
        """Write what code would find here, as JSON."""
        contents = kernel_contents.describe(self.shell.user_ns, self.names_of_ours())
        self.stdout.write(json.dumps(contents))

    def _save_variables(self, **arguments: Any) -> None:
        self._variables.save(self.names_of_ours(), **arguments)

    def _restore_variables(self, **arguments: Any) -> None:
        self._variables.restore(self.names_of_ours(), **arguments)

    def names_of_ours(self) -> set[str]:
        """What is in the user's namespace and not the user's."""
        return {*self.shell.user_ns_hidden, *self.plugins.names}

    def _pop_exception(self) -> BaseException | None:
        exception, self.ended_with = self.ended_with, None
        return exception

    def _exit_code(self, code: object) -> int:
        """What a process would exit with; a text goes to standard error, as Python does it."""
        if code is None or isinstance(code, int):
            number = int(code or 0)
            return number if -_MAX_EXIT_CODE <= number < _MAX_EXIT_CODE else -1
        self.stderr.write(f"{code}\n")
        return 1

    def _put_back_streams(self) -> None:
        """Code may replace `sys.stdout`; the next execution gets the kernel's own again."""
        for name, own in (("stdout", self.stdout), ("stderr", self.stderr)):
            own.buffer.end_character()
            current: Any = getattr(sys, name, None)
            if current is not own:
                try:
                    current.flush()
                except Exception:  # noqa: BLE001 - whatever it is, it is the user's
                    self.stderr.write(f"sys.{name} was replaced by something that cannot flush\n")
                setattr(sys, name, own)

    def _interrupt(self, _number: int, frame: FrameType | None) -> None:
        self._interrupt_watch.noticed()
        if not self.is_in_code:
            self._is_interrupted = True  # too early: code does not begin; or too late
        elif self.awaiting is not None and _is_suspended(self.awaiting):
            # Raised here, in another task or in the loop itself, it would end the loop.
            self.awaiting.get_loop().call_soon_threadsafe(self.awaiting.cancel)
        elif _is_about_to_await(frame):
            self._interrupt_watch.ignored()
        else:
            self._interrupt_raised = KeyboardInterrupt()
            raise self._interrupt_raised

    def _on_unraisable(self, unraisable: Any) -> None:
        """Python ignores what finalisers and fork hooks raise: an interrupt must not get lost."""
        if self._interrupt_raised is not None and unraisable.exc_value is self._interrupt_raised:
            self._interrupt_watch.ignored()
        else:
            self._plain_unraisable_hook(unraisable)

    def _after_fork_in_child(self) -> None:
        self._interrupt_watch.after_fork_in_child()
        self.queue.after_fork_in_child()
        for stream in (self.stdout, self.stderr):
            stream.write_to_descriptor()

    def _end_forked_child(self) -> None:
        """Code forked and both processes reached the end of the cell: only one is the kernel."""
        error = self._pop_exception()
        if isinstance(error, SystemExit):
            os._exit(self._exit_code(error.code))
        if error is not None:
            trace = error.__traceback__ and error.__traceback__.tb_next  # without IPython's frame
            traceback.print_exception(type(error), error, trace, file=self.stderr)
        os._exit(0 if error is None else 1)

    def _on_audit_event(self, event: str, args: tuple[Any, ...]) -> None:
        if event in _STARTS_A_CHILD:
            if os.getpid() == self._kernel_pid:
                self.queue.before_child_starts()
        elif (
            event in _MAY_END_US
            and os.getpid() == self._kernel_pid
            and not self._interrupt_watch.is_calling()
        ):
            is_read = event == "ctypes.string_at"
            self.queue.settle({"signal": signal.SIGSEGV if is_read else int(args[1])})

    def _settle_before(self, module: Any, name: str, ending: Callable[..., Any]) -> None:
        plain = getattr(module, name)

        def settled(*args: Any, **named: Any) -> None:
            if os.getpid() == self._kernel_pid:
                self.queue.settle(ending(*args, **named))
            plain(*args, **named)

        setattr(module, name, settled)

    def _flush_before_writes(self) -> None:
        """What is written to descriptors 1 and 2 must not overtake what was printed before."""
        plain = os.write

        @functools.wraps(plain)
        def write(descriptor: int, data: Any, /) -> int:
            if descriptor in (1, 2) and os.getpid() == self._kernel_pid:
                self.queue.flush()
            return plain(descriptor, data)

        os.write = write


class MessageSocket:
    """Stands where ipykernel expects its iopub socket."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def send_multipart(self, frames: list[Any], *_args: object, **_options: object) -> None:
        """Take a message as `jupyter_client.session.Session.send` serialises it."""
        content = frames.index(_DELIMITER) + 5
        self._runtime.send_message(message_type_of(frames), bytes(frames[content]))


def message_type_of(frames: list[Any]) -> str:
    """What kind of message these frames are."""
    header = frames.index(_DELIMITER) + 2
    message_type: str = json.loads(bytes(frames[header]))["msg_type"]
    return message_type


def _is_suspended(task: asyncio.Task[Any]) -> bool:
    coroutine: Any = task.get_coro()
    return not coroutine.cr_running


def _is_about_to_await(frame: FrameType | None) -> bool:
    """Whether code has just called what it awaits.

    Interrupted there it would lose a coroutine, and Python would write that it was never awaited.
    """
    if frame is None:
        return False
    operations = frame.f_code.co_code[frame.f_lasti :: 2]
    return operations[1:].lstrip(_CACHE)[:1] == _GET_AWAITABLE


def _usage(cpu_seconds: float) -> dict[str, Any]:
    peak_kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"cpu_seconds": cpu_seconds, "peak_memory_bytes": peak_kilobytes * 1024}


def _error_reply(error: BaseException) -> dict[str, Any]:
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return {
        "status": "error",
        "ename": type(error).__name__,
        "evalue": str(error),
        "traceback": [line.rstrip("\n") for line in lines],
    }
