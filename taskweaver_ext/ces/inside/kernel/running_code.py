"""Which line of the user's code runs at this moment, and what called it."""

from __future__ import annotations

import linecache
import os
import sys
import threading
from types import FrameType
from typing import Any

MAX_FRAMES = 50

_MAX_TEXT = 400
_OUR_FILES = (lambda: None).__code__.co_filename.rpartition("running_code")[0]
"""How the names of our files begin; there may be none on a disk."""


def stack_of(shell: Any, awaiting: Any) -> list[list[Any]]:
    """Return the calls of the user's code that are under way, the outermost first.

    Each is a file, the number of a cell or None, a line, its text and a function.

    Args:
        shell: IPython's, whose namespace tells the user's code from what is around it.
        awaiting: The task of a cell that awaits, if there is one.
    """
    frames = _frames_of_thread(threading.main_thread().ident or 0)
    stack = _from_cell_on(frames, shell.user_ns)
    if not stack and awaiting is not None:
        stack = _from_cell_on(_frames_of_task(awaiting), shell.user_ns)
    while stack and stack[-1].f_code.co_filename.startswith(_OUR_FILES):
        stack.pop()
    cells = getattr(shell.compile, "_filename_map", {})
    return [_described(frame, cells) for frame in stack[-MAX_FRAMES:]]


def memory_bytes() -> int | None:
    """The memory that this process holds; None where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _frames_of_thread(thread: int) -> list[FrameType]:
    frames: list[FrameType] = []
    frame = sys._current_frames().get(thread)
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    frames.reverse()
    return frames


def _frames_of_task(task: Any) -> list[FrameType]:
    frames: list[FrameType] = []
    waiting = task.get_coro()
    while waiting is not None and len(frames) < 10 * MAX_FRAMES:
        for frame_name, next_name in (("cr_frame", "cr_await"), ("gi_frame", "gi_yieldfrom")):
            frame = getattr(waiting, frame_name, None)
            if frame is not None:
                frames.append(frame)
                waiting = getattr(waiting, next_name, None)
                break
        else:
            break
    return frames


def _from_cell_on(frames: list[FrameType], namespace: Any) -> list[FrameType]:
    for index, frame in enumerate(frames):
        if frame.f_globals is namespace:
            return frames[index:]
    return []


def _described(frame: FrameType, cells: Any) -> list[Any]:
    file = frame.f_code.co_filename
    line = frame.f_lineno or 0
    cell = cells.get(file) if type(cells) is dict else None
    return [
        file,
        cell if type(cell) is int else None,
        line,
        _text_of(file, line),
        frame.f_code.co_name,
    ]


def _text_of(file: str, line: int) -> str:
    try:
        return linecache.getline(file, line).strip()[:_MAX_TEXT]
    except Exception:  # noqa: BLE001 - a loader of the user's may have made the module
        return ""
