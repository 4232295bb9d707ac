"""A session behind the protocol: does the commands that come, and replies to them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from taskweaver_ext.chat import protocol
from taskweaver_ext.chat.exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED
from taskweaver_ext.chat.protocol import Caller, Command, ReplyKind
from taskweaver_ext.chat.session_commands import Begun, Outcome, begin, has_failed
from taskweaver_ext.errors import TaskWeaverError
from taskweaver_ext.session.session import Session
from taskweaver_ext.stdio.line_reader import LineReader
from taskweaver_ext.stdio.line_writer import LineWriter

LAST_WORDS_SECONDS = 5.0
"""How long the reader of our output may take when a signal has asked us to end."""


class JsonChat:
    """Do what lines of JSON ask a session for, until they end.

    Threads:
        `run` is called on the main thread, which reads commands and does those that take no
        time. Each of the others has a thread of its own, `taskweaver-command`; rounds exclude
        each other. `end_soon` is for the thread that hears signals. `_changed` guards
        `_at_work`.
    """

    def __init__(self, session: Session, reader: LineReader, output: int) -> None:
        self._session = session
        self._reader = reader
        self._writer = LineWriter(
            session.emitter,
            output,
            on_failure=reader.wake,
            first_line=protocol.first_line(session.session_id, cwd=str(session.cwd)),
        )
        self._changed = threading.Condition()
        self._at_work = 0
        """How many commands are under way that take time."""
        self._has_failed = False
        self._is_signalled = False
        self._stop: Caller | None = None
        """The command that ends the session."""
        session.questions.accepts_answers = True

    def end_soon(self, _signal_number: int) -> None:
        """End as `stop` does, without waiting for a reader that does not read."""
        self._is_signalled = True
        self._session.interrupt(kill=True)
        self._writer.hurry()
        self._reader.wake()

    def run(self) -> int:
        """Do commands until there are no more; return the exit code."""
        while not (self._is_over or self._reader.is_at_end):
            try:
                line = self._reader.read_line()
            except ValueError as error:
                reason = f"The line was left out: {error}. Give large contents as files."
                self._reply("refused", Caller(), reason=reason)
                continue
            if line is not None and line.strip():
                self._do_line(line)
        self._let_rounds_end()
        self._session.stop()
        with self._changed:  # what was killed has a reply to come
            self._changed.wait_for(lambda: self._at_work == 0, LAST_WORDS_SECONDS)
        if self._stop is not None:
            self._reply("done", self._stop, outcome={})
        was_read = self._writer.close(LAST_WORDS_SECONDS if self._is_signalled else None)
        if self._is_signalled:
            return EXIT_INTERRUPTED
        return EXIT_DONE if was_read and not self._has_failed else EXIT_FAILED

    @property
    def _is_over(self) -> bool:
        """Whether the session is to end, whatever runs."""
        is_gone = self._reader.output_is_gone or self._writer.failure is not None
        return is_gone or self._is_signalled or self._stop is not None

    @property
    def failure(self) -> Exception | None:
        """Why our output could not be written, if it could not."""
        return self._writer.failure

    def _let_rounds_end(self) -> None:
        """Wait for what is under way; nobody can answer its questions any more."""
        self._session.questions.accepts_answers = False
        while not self._is_over and self._count_at_work() > 0:
            self._reader.wait()  # where it is over, `Session.stop` kills what runs

    def _do_line(self, line: bytes) -> None:
        try:
            caller, command = protocol.parse_command(line)
        except protocol.RefusedCommandError as error:
            self._reply("refused", error.caller, reason=str(error))
            return
        try:
            self._do(caller, command)
        except TaskWeaverError as error:
            self._reply("refused", caller, reason=str(error))

    def _do(self, caller: Caller, command: Command) -> None:
        if isinstance(command, protocol.Stop):  # after which this frontend ends, too
            self._reply("accepted", caller)
            self._stop = caller
            return
        begun = begin(self._session, command)
        if not isinstance(begun, Begun):
            self._reply("done", caller, outcome=begun)
            return
        details = {} if begun.round_id is None else {"round_id": begun.round_id}
        self._reply("accepted", caller, **details)
        self._begin(caller, begun.finish)

    def _begin(self, caller: Caller, do: Callable[[], Outcome]) -> None:
        """Do something on a thread of its own, and reply what came of it."""
        self._count_at_work(+1)

        def work() -> None:
            try:
                outcome = do()
                self._has_failed = self._has_failed or has_failed(outcome)
                self._reply("done", caller, outcome=outcome)
            except Exception as error:  # noqa: BLE001 - the sender is to hear of it
                self._reply("refused", caller, reason=str(error) or type(error).__name__)
            finally:
                self._count_at_work(-1)
                self._reader.wake()

        threading.Thread(target=work, name="taskweaver-command", daemon=True).start()

    def _count_at_work(self, change: int = 0) -> int:
        with self._changed:
            self._at_work += change
            self._changed.notify_all()
            return self._at_work

    def _reply(self, kind: ReplyKind, caller: Caller, **details: object) -> None:
        self._writer.reply(protocol.reply_line(kind, caller, **details))
