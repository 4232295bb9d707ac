"""The log of a project: what happened, with levels, in a file that only its owner reads."""

from __future__ import annotations

import logging
import logging.handlers
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path

from taskweaver_ext.config.settings import LoggingConfig
from taskweaver_ext.machine.private_files import make_private_folder, open_private
from taskweaver_ext.text.redaction import Redactor

MAX_LOG_BYTES = 5 << 20
"""A log that has grown so large is put aside, and the one before it goes."""

MAX_EARLY_RECORDS = 1000
"""Kept until it is known what is secret."""

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_PACKAGE = "taskweaver_ext"


@contextmanager
def logging_to_project(
    config: LoggingConfig, make_redactor: Callable[[], Redactor]
) -> Iterator[None]:
    """Write the package's log to the project's file, without secrets.

    A file that cannot be written is no reason not to work.

    Args:
        make_redactor: Masks what is logged, also what is logged while it is made.
    """
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
    early = logging.handlers.MemoryHandler(MAX_EARLY_RECORDS, flushLevel=sys.maxsize)
    early.setLevel(handler.level)
    logger.addHandler(early)
    try:
        handler.setFormatter(_MaskingFormatter(make_redactor()))
        logger.addHandler(handler)
        logger.removeHandler(early)
        early.setTarget(handler)
        early.close()
        yield
    finally:
        logger.removeHandler(early)
        logger.removeHandler(handler)
        logger.setLevel(shown)
        handler.close()


class _MaskingFormatter(logging.Formatter):
    """Write records, with what was raised, without secrets."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__(_FORMAT)
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as text."""
        return self._redactor.redact(super().format(record))


class _LogFile(logging.handlers.RotatingFileHandler):
    """A log that keeps silent about a full disk: the person at the terminal has work to do."""

    def _open(self) -> TextIOWrapper:
        """Open the file, also each time that the last one was put aside."""
        descriptor = open_private(Path(self.baseFilename).resolve(), os.O_WRONLY | os.O_APPEND)
        return open(descriptor, "a", encoding=self.encoding)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Hear that a record could not be written."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)

    def close(self) -> None:
        """Close the file, also when its last lines cannot be written."""
        with suppress(OSError):
            super().close()


def _open(config: LoggingConfig) -> logging.Handler:
    make_private_folder(config.log_folder)
    path = config.log_folder / config.log_file
    handler = _LogFile(path, maxBytes=MAX_LOG_BYTES, backupCount=1, encoding="utf-8")
    handler.setLevel(config.level.upper())
    return handler
