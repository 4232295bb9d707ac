"""Chats on terminals, for whoever asks for one; and nothing that one command leaves the next."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.chat_terminal import ChatTerminal, OpenChat


@pytest.fixture(autouse=True)
def logging_is_put_back() -> Iterator[None]:
    """The program sets up logging for its process, which is ours here."""
    package = logging.getLogger("taskweaver_ext")
    loggers = [package, *(package.getChild(name) for name in ("config", "ces.kernels.tracing"))]
    before = [(logger.level, list(logger.handlers), logger.propagate) for logger in loggers]
    yield
    for logger, (level, handlers, propagate) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers, logger.propagate = handlers, propagate


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project that says where code runs, and nothing else."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "taskweaver_config.json").write_text('{"execution_service.kernel_mode": "local"}')
    return folder


@pytest.fixture
def open_chat(project: Path) -> Iterator[OpenChat]:
    """Opens chats in the project and waits for their prompts; each is ended after the test."""
    with ExitStack() as stack:
        yield lambda *arguments, **options: stack.enter_context(
            ChatTerminal(project, *arguments, **options)
        )


@pytest.fixture
def chat(open_chat: OpenChat) -> ChatTerminal:
    """A chat at its prompt."""
    return open_chat()
