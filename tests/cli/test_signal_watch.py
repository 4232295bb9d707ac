"""Signals become calls, and nothing that hangs keeps a program from ending."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from taskweaver_ext.chat.exit_codes import EXIT_INTERRUPTED
from taskweaver_ext.cli import signal_watch
from taskweaver_ext.cli.signal_watch import SignalWatch

LIMIT_SECONDS = 60.0


def test_a_signal_before_anybody_listens_is_a_keyboard_interrupt_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signal_watch, "_STUCK_SECONDS", LIMIT_SECONDS)

    with SignalWatch() as signals:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)  # the cleaning up is not cut short

    assert signals.count == 2


def test_listeners_are_called_on_a_thread_of_their_own() -> None:
    heard: list[tuple[int, str]] = []
    has_heard, had_no_effect = threading.Event(), threading.Event()

    def listen(number: int) -> None:
        heard.append((number, threading.current_thread().name))
        has_heard.set()

    with SignalWatch() as signals:
        signals.pass_to(listen, had_no_effect.set, 0.01)
        signal.raise_signal(signal.SIGTERM)
        assert has_heard.wait(LIMIT_SECONDS)
        assert had_no_effect.wait(LIMIT_SECONDS)

    assert heard == [(signal.SIGTERM, "taskweaver-signals")]


def test_a_listener_that_fails_hears_the_next_signal(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[int] = []
    has_heard_both = threading.Event()

    def listen(number: int) -> None:
        heard.append(number)
        if len(heard) == 2:
            has_heard_both.set()
        raise OSError("the engine is gone")

    with SignalWatch() as signals:
        signals.pass_to(listen, lambda: None, LIMIT_SECONDS)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        assert has_heard_both.wait(LIMIT_SECONDS)

    assert "the engine is gone" in caplog.text


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with SignalWatch() as signals:
            signal.raise_signal(signal.SIGHUP)
        assert signals.count == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_cleaning_up_that_hangs_is_cut_short() -> None:
    code = """
import signal, threading
from taskweaver_ext.cli import signal_watch
signal_watch._STUCK_SECONDS = 0.05
with signal_watch.SignalWatch():
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        threading.Event().wait()
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_SECONDS
    )

    assert result.returncode == EXIT_INTERRUPTED
    assert result.stderr.startswith("[Cancelled] ")
    assert len(result.stderr.splitlines()) == 1
