"""A plugin of pytest: what tests need of the machine is looked for once in a run.

However many processes run tests, one that needs what the machine cannot give is skipped with
the reason. Where `CI` is set, `tests/test_needs.py` fails besides, once for each such thing.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TypeVar

import pytest

FOLDER_VARIABLE = "TASKWEAVER_TEST_NEEDS"
"""Names the folder in which the processes of one run note what is missing, and why."""

_reasons: set[str] = set()

Made = TypeVar("Made")


class MissingError(Exception):
    """The machine cannot give something; the message says why."""


def need(name: str, make: Callable[[], Made]) -> Made:
    """Return what `make` makes; skip the test when that raised `MissingError`, now or before.

    One process at a time makes a thing, so that the others need not try what has failed.
    """
    with (Path(os.environ[FOLDER_VARIABLE]) / name).open("a+") as note:
        fcntl.flock(note, fcntl.LOCK_EX)
        note.seek(0)
        if not (reason := note.read()):
            try:
                return make()
            except MissingError as error:
                reason = " ".join(str(error).split())
                note.write(reason)
    _reasons.add(reason)
    pytest.skip(reason)


def require_node() -> None:
    """Skip the test where JavaScript cannot be run."""
    need("node", _find_node)


def _find_node() -> None:
    if shutil.which("node") is None:
        raise MissingError("node is not installed")


def require_chromium() -> str:
    """Return the path of a browser; skip the test where there is none."""
    return need("chromium", _find_chromium)


def _find_chromium() -> str:
    path = shutil.which("chromium")
    if path is None:
        raise MissingError("chromium is not installed")
    return path


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder of notes; the processes that pytest starts inherit its name."""
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="taskweaver_test_needs-")
        config.add_cleanup(folder.cleanup)
        os.environ[FOLDER_VARIABLE] = folder.name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Skip all tests that miss one thing at one place: the summary then has one line for them."""
    report = yield
    if call.excinfo is not None and str(call.excinfo.value) in _reasons:
        report.longrepr = (__file__, 1, str(call.excinfo.value))
    return report
