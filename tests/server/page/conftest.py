"""The page in a real Chromium, on a real server, with a model that follows a script."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.server.conftest import make_project
from tests.support.browser import browser
from tests.support.model_server import ModelServer, ScriptedAnswer
from tests.support.server import ServerProcess

expect.set_options(timeout=30_000)  # a busy machine is no failure

OpenPage: TypeAlias = Callable[..., Page]
OpenAgent: TypeAlias = Callable[[Sequence[str]], tuple[ServerProcess, ModelServer]]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for all tests of a module."""
    with browser() as chromium:
        yield chromium


@pytest.fixture
def open_page(chromium: Browser, server: ServerProcess) -> Iterator[OpenPage]:
    """Opens the page of a server, by default the shared one, in a browser profile of its own.

    What a page throws fails the test; a frame that is kept from the page is no fault of it.
    """
    failures: list[str] = []
    with ExitStack() as stack:

        def open_page(
            address: str = server.address, *, width: int = 1280, height: int = 800
        ) -> Page:
            context = chromium.new_context(viewport={"width": width, "height": height})
            stack.callback(context.close)
            page = context.new_page()
            page.on("pageerror", lambda error: failures.append(str(error)))
            page.goto(address)
            page.wait_for_selector("text='live'")
            return page

        yield open_page
    assert [one for one in failures if 'Blocked a frame with origin "null"' not in one] == []


@pytest.fixture
def open_agent(tmp_path: Path) -> Iterator[OpenAgent]:
    """Starts a server whose model gives these replies, in their order."""
    with ExitStack() as stack:

        def open_agent(replies: Sequence[str]) -> tuple[ServerProcess, ModelServer]:
            model = stack.enter_context(ModelServer([ScriptedAnswer(one) for one in replies]))
            project = make_project(tmp_path / "agent")
            settings = {
                "execution_service.kernel_mode": "local",
                "llm.api_base": model.openai_url,
                "llm.api_key": "k",
                "llm.model": "scripted",
                "llm.max_retries": 0,
            }
            (project / "taskweaver_config.json").write_text(json.dumps(settings))
            return stack.enter_context(ServerProcess(project)), model

        yield open_agent


def write(page: Page, mode: str, text: str) -> None:
    """Write something into the composer, and send it."""
    page.get_by_role("radio", name=mode, exact=True).click()
    page.locator(".composer textarea").fill(text)
    page.locator(".composer").get_by_role("button", name="Send").click()


def wait_for_state(page: Page, number: int, words: str) -> None:
    """Wait until the head of a block says how it stands."""
    page.wait_for_function(
        "([id, words]) => document.querySelector(`#${id} .state`)?.textContent.includes(words)",
        arg=[f"block-{number}", words],
    )
