"""Control groups for tests that need a hard limit, where the system lets us make them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def limited_group(controller: str, file: str, limit: int) -> Iterator[Path]:
    """A group whose processes are limited; yields the file that a process joins it by.

    Args:
        controller: "pids" or "memory".
        file: The limit's file, as the second version names it.
    """
    is_second_version = (_ROOT / "cgroup.controllers").exists()
    parent = _ROOT if is_second_version else _ROOT / controller
    group = parent / f"taskweaver-test-{os.getpid()}"
    names = {"memory.max": "memory.limit_in_bytes"}
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"control groups cannot be made here: {error}")
    try:
        try:
            (group / (file if is_second_version else names.get(file, file))).write_text(str(limit))
        except OSError as error:
            pytest.skip(f"the control group {controller} cannot be limited here: {error}")
        yield group / "cgroup.procs"
    finally:
        deadline = time.monotonic() + 10
        while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        group.rmdir()
