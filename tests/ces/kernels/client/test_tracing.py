"""Messages and the stages of a start are logged when that is asked for, and only then."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.kernels.client.tracing import LOGGER_NAME


def _run_code(folder: Path) -> None:
    with Environment(folder) as environment:
        environment.start_session("s1")
        environment.execute_code(
            "s1",
            "print(input('who? ')); print('x' * 5000)",
            on_input=lambda _prompt, _password: "secret word",
        )


def test_every_message_is_logged_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TASKWEAVER_PYTHON_IPC_TRACE", "1")

    with caplog.at_level(logging.INFO, LOGGER_NAME):
        _run_code(tmp_path)

    lines = [record.getMessage() for record in caplog.records]
    kinds = [re.sub(r"kernel s1 ([<>]) (\w+).*", r"\1 \2", line, flags=re.DOTALL) for line in lines]
    assert kinds[0] == "> ExecuteRequest"
    assert {"< InputWanted", "> answer", "< OutputReceived", "< ExecutionEnded"} <= set(kinds)
    assert "> shutdown" in kinds
    assert not any("secret word" in line for line in lines if "> answer" in line)
    assert max(map(len, lines)) < 1200


def test_the_stages_of_a_start_are_logged_with_their_times_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TASKWEAVER_DEBUG_STARTUP", "1")

    with caplog.at_level(logging.INFO, LOGGER_NAME):
        _run_code(tmp_path)

    found = re.findall(r"start of kernel s1: (.+) after (\d+\.\d) ms \(\+\d+\.\d ms\)", caplog.text)
    stages, times = zip(*found, strict=True)
    assert [re.sub(r"\d+", "N", stage) for stage in stages] == [
        "process N started",
        "connected",
        "ready",
        "startup scripts and plugins are loaded",
        "done",
    ]
    assert sorted(map(float, times)) == [float(time) for time in times]


def test_nothing_is_logged_unless_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TASKWEAVER_PYTHON_IPC_TRACE", "0")
    monkeypatch.delenv("TASKWEAVER_DEBUG_STARTUP", raising=False)

    with caplog.at_level(logging.INFO, LOGGER_NAME):
        _run_code(tmp_path)

    assert caplog.records == []


def test_the_command_line_shows_the_trace_on_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKWEAVER_PYTHON_IPC_TRACE", "1")
    monkeypatch.setenv("TASKWEAVER_DEBUG_STARTUP", "1")

    result = subprocess.run(
        [sys.executable, "-m", "taskweaver_ext.cli", "run", "-c", "print(6 * 7)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert result.stdout == "42\n"
    assert "> ExecuteRequest" in result.stderr
    assert "startup scripts and plugins are loaded after" in result.stderr
