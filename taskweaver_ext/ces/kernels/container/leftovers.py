"""Find and remove the containers that a process left behind when it was killed.

A container carries a label that names the process it belongs to. What cannot be
judged (another machine, another container's processes) is left alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import stat
import threading

from taskweaver_ext.ces.kernels.container.engine import LABEL, Engine, EngineError
from taskweaver_ext.machine.owned_folders import PREFIX, Owner

OWNER_LABEL = f"{LABEL}.owner"
SESSION_LABEL = f"{LABEL}.session"
FOLDER_LABEL = f"{LABEL}.folder"

_FOLDER = re.compile(rf"/tmp/{PREFIX}[\w-]+")

_log = logging.getLogger(__name__)


def start_removing_leftovers(engine: Engine) -> threading.Thread | None:
    """Remove them while a container starts, once for each engine; the caller joins the thread."""
    if not engine.is_used_first() and not engine.unremoved:
        return None
    thread = threading.Thread(
        target=_remove_and_log, args=(engine,), name="taskweaver-leftovers", daemon=True
    )
    thread.start()
    return thread


def remove_leftovers(engine: Engine) -> list[str]:
    """Remove the containers and folders of processes that are gone; return their names."""
    removed = []
    unremoved = set(engine.unremoved)
    for container in engine.list_ours():
        labels = container.get("Labels") or {}
        name = str((container.get("Names") or [container["Id"]])[0]).lstrip("/")
        known_as = {str(container["Id"]), name}
        owner = Owner.parse(labels.get(OWNER_LABEL, ""))
        is_dead = owner is not None and owner.is_dead()
        if not is_dead and not known_as & unremoved:
            continue
        try:
            engine.remove(container["Id"])
        except EngineError as error:
            _log.warning("the leftover container %s cannot be removed: %s", name, error)
            unremoved -= known_as
            continue
        _remove_folder(labels.get(FOLDER_LABEL, ""))
        removed.append(name)
    engine.unremoved -= unremoved  # they are gone now, or have never been
    return removed


def _remove_and_log(engine: Engine) -> None:
    try:
        for name in remove_leftovers(engine):
            _log.info("removed the container %s, whose owner is gone", name)
    except EngineError as error:
        _log.warning("containers of crashed processes could not be looked for: %s", error)


def _remove_folder(path: str) -> None:
    """Remove a folder that a label names, if it can only be one of ours."""
    if not _FOLDER.fullmatch(path):
        return
    with contextlib.suppress(OSError):
        found = os.lstat(path)
        # Root gives such folders to the user that the code runs as.
        if stat.S_ISDIR(found.st_mode) and os.getuid() in (0, found.st_uid):
            shutil.rmtree(path, ignore_errors=True)
