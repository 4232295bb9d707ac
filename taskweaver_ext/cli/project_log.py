"""The log of a project: what happened, with levels, in a file that only its owner reads."""

from __future__ import annotations

import logging
import logging.handlers
import os
from collections.abc import Iterator
from contextlib import contextmanager

from taskweaver_ext.config import LoggingConfig

MAX_LOG_BYTES = 5 << 20
"""A log that has grown so large is put aside, and the one before it goes."""

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_PACKAGE = "taskweaver_ext"


@contextmanager
def logging_to_project(config: LoggingConfig) -> Iterator[None]:
    """Write the package's log to the project's file; a file that cannot be written is no reason
    not to work."""
    try:
        handler = _open(config)
    except OSError as error:
        logging.getLogger(__name__).warning("There is no log: %s", error)
        yield
        return
    logger = logging.getLogger(_PACKAGE)
    shown = logger.level
    # What is shown on the terminal stays as it is: its handlers keep the level they had.
    for other in logger.handlers:
        other.setLevel(max(other.level, shown))
    logger.setLevel(min(shown or logging.WARNING, handler.level))
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(shown)
        handler.close()


def _open(config: LoggingConfig) -> logging.Handler:
    config.log_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = config.log_folder / config.log_file
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    handler = logging.handlers.RotatingFileHandler(
        path, maxBytes=MAX_LOG_BYTES, backupCount=1, encoding="utf-8"
    )
    handler.setFormatter(logging.Formatter(_FORMAT))
    handler.setLevel(config.level.upper())
    return handler
