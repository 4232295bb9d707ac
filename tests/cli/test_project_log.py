"""What happens in a project is written down with levels, in a private file."""

from __future__ import annotations

import logging
from pathlib import Path

from taskweaver_ext.cli.project_log import logging_to_project
from taskweaver_ext.config.settings import LoggingConfig
from taskweaver_ext.text.redaction import MASK, Redactor


def no_secrets() -> Redactor:
    return Redactor(())


def test_the_log_has_what_its_level_asks_for(tmp_path: Path) -> None:
    logger = logging.getLogger("taskweaver_ext.something")
    config = LoggingConfig(log_folder=tmp_path / "logs", level="info")

    with logging_to_project(config, no_secrets):
        logger.debug("too small")
        logger.info("worth knowing")
        logger.error("bad")
    logger.error("afterwards")

    path = tmp_path / "logs" / "task_weaver.log"
    lines = path.read_text().splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == [
        "INFO taskweaver_ext.something: worth knowing",
        "ERROR taskweaver_ext.something: bad",
    ]
    assert path.stat().st_mode & 0o077 == 0


def test_the_terminal_shows_no_more_than_before(
    tmp_path: Path,
) -> None:
    shown: list[str] = []

    class Terminal(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            shown.append(record.getMessage())

    package = logging.getLogger("taskweaver_ext")
    before = package.level
    terminal = Terminal()
    package.addHandler(terminal)
    package.setLevel(logging.ERROR)
    try:
        with logging_to_project(LoggingConfig(log_folder=tmp_path), no_secrets):
            logging.getLogger("taskweaver_ext.something").info("for the file only")
            logging.getLogger("taskweaver_ext.something").error("for both")
    finally:
        package.removeHandler(terminal)
        package.setLevel(before)

    assert shown == ["for both"]


def test_a_log_that_cannot_be_written_does_not_stop_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with logging_to_project(LoggingConfig(log_folder=tmp_path / "file" / "logs"), no_secrets):
        done = True

    assert done


def test_secrets_are_masked_also_in_what_was_raised_and_in_what_was_logged_before_they_were_known(
    tmp_path: Path,
) -> None:
    logger = logging.getLogger("taskweaver_ext.something")

    def find_secrets() -> Redactor:
        logger.warning("early: very-secret-key")
        return Redactor(["very-secret-key"])

    with logging_to_project(LoggingConfig(log_folder=tmp_path), find_secrets):
        logger.warning("later: %s", "very-secret-key")
        try:
            raise ValueError("very-secret-key is wrong")
        except ValueError:
            logger.exception("failed")

    text = (tmp_path / "task_weaver.log").read_text()
    assert "very-secret" not in text
    assert text.index(f"early: {MASK}") < text.index(f"later: {MASK}")
    assert f"ValueError: {MASK} is wrong" in text
