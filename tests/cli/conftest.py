"""Chats on terminals, for whoever asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.chat_terminal import ChatTerminal, OpenChat


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project without any settings."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "taskweaver_config.json").write_text("{}")
    return folder


@pytest.fixture
def open_chat(project: Path) -> Iterator[OpenChat]:
    """Opens chats in the project and waits for their prompts; each is ended after the test."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(ChatTerminal(project, **options))


@pytest.fixture
def chat(open_chat: OpenChat) -> ChatTerminal:
    """A chat at its prompt."""
    return open_chat()
