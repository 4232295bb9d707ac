"""`ask --json` and `chat --json`: a session for programs, on our standard streams."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.chat.exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED
from taskweaver_ext.chat.project_sessions import ProjectSessions
from taskweaver_ext.chat.protocol import MAX_LINE_BYTES
from taskweaver_ext.cli.init import find_template
from taskweaver_ext.cli.kernel_place import HERE, UNWATCHED, say_where_code_runs
from taskweaver_ext.cli.program_name import program_name
from taskweaver_ext.cli.project_log import logging_to_project
from taskweaver_ext.cli.screen import Screen
from taskweaver_ext.cli.signal_watch import SignalWatch
from taskweaver_ext.config.settings import ApprovalMode
from taskweaver_ext.session.session import Session
from taskweaver_ext.stdio.json_chat import LAST_WORDS_SECONDS, JsonChat
from taskweaver_ext.stdio.line_reader import LineReader
from taskweaver_ext.stdio.line_writer import LineWriter

_STUCK_SECONDS = 30.0
"""How long the end may take after a signal, before it is made without a word."""


def chat_as_json(
    project: Path | None, kernel: str | None, resume: str | None, cwd: Path | None
) -> int:
    """Do the commands on standard input until they end; return the exit code."""
    with (
        _own_streams() as (source, output),
        _session(project, kernel, resume, cwd) as (session, signals, _),
        _reading(source, output) as reader,
    ):
        chat = JsonChat(session, reader, output)
        signals.pass_to(chat.end_soon, _end_at_once, _STUCK_SECONDS)
        exit_code = chat.run()
        _say_failure(chat.failure)
        return EXIT_INTERRUPTED if signals.count else exit_code


def ask_as_json(
    text: str,
    project: Path | None,
    *,
    files: Sequence[Path],
    kernel: str | None,
    cwd: Path | None,
    approve: ApprovalMode,
    resume: str | None,
) -> int:
    """Have one request done and write what happens meanwhile; return the exit code."""
    with (
        _own_streams() as (source, output),
        _session(project, kernel, resume, cwd, UNWATCHED) as (session, signals, sessions),
        _reading(source, output) as reader,
    ):
        session.settings.set_approval(approve)
        writer = LineWriter(session.emitter, output, on_failure=lambda: stop(0))

        def stop(_signal_number: int) -> None:
            session.interrupt(kill=True)
            writer.hurry()

        signals.pass_to(stop, _end_at_once, _STUCK_SECONDS)
        submitted = session.submit(text, files=[path.absolute() for path in files])
        submitted.when_done(reader.wake)
        while not submitted.is_done:
            reader.wait()
            if reader.output_is_gone:
                stop(0)
        chat_round = submitted.wait()
        session.stop()
        was_read = writer.close(LAST_WORDS_SECONDS if signals.count else None)
        _say_failure(writer.failure)
        if chat_round.state == "failed":
            Screen().say(f"error: {chat_round.error}")
        Screen().say(f"Continue with: {sessions.how_to_resume(session)}")
        if signals.count:
            return EXIT_INTERRUPTED
        return EXIT_DONE if was_read and chat_round.is_done else EXIT_FAILED


@contextlib.contextmanager
def _session(
    project: Path | None,
    kernel: str | None,
    resume: str | None,
    cwd: Path | None,
    defaults: Mapping[str, object] = MappingProxyType({}),
) -> Iterator[tuple[Session, SignalWatch, ProjectSessions]]:
    arguments = {"execution_service.kernel_mode": kernel}
    with contextlib.ExitStack() as stack:
        app = stack.enter_context(
            TaskWeaverApp(project, arguments=arguments, defaults={**HERE, **defaults})
        )
        stack.enter_context(logging_to_project(app.config.logging, lambda: app.redactor))
        say_where_code_runs(app.config)
        signals = stack.enter_context(SignalWatch())
        sessions = ProjectSessions(app, find_template, cwd=cwd, program=program_name())
        session = sessions.open_first(resume)
        yield session, signals, sessions


@contextlib.contextmanager
def _reading(source: int, output: int) -> Iterator[LineReader]:
    """Lines from a descriptor; a signal ends the wait for them, whenever it comes."""
    with LineReader(source, output, MAX_LINE_BYTES) as reader:
        previous = signal.set_wakeup_fd(reader.wake_descriptor, warn_on_full_buffer=False)
        try:
            yield reader
        finally:
            signal.set_wakeup_fd(previous)


@contextlib.contextmanager
def _own_streams() -> Iterator[tuple[int, int]]:
    """Keep standard input and output for the protocol: what else is printed goes to stderr.

    A role or a library of a project's own may print, and programs that we start inherit streams.
    """
    sys.stdout.flush()
    source, output = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        yield source, output
    finally:
        sys.stdout.flush()
        os.dup2(source, 0)
        os.dup2(output, 1)
        for descriptor in (source, output, nothing):
            os.close(descriptor)


def _say_failure(failure: Exception | None) -> None:
    """Say why our output could not be written, unless its reader has had enough."""
    if failure is not None and not isinstance(failure, BrokenPipeError):
        Screen().say(f"error: standard output cannot be written: {failure}")


def _end_at_once() -> None:
    """End without waiting for anything; kernels notice and end too."""
    os._exit(EXIT_INTERRUPTED)
