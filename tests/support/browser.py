"""A real browser for tests of pages, closed with everything it started."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from tests.support.needs import require_chromium


@contextmanager
def browser() -> Iterator[Browser]:
    """Start the system's Chromium; skip the test where there is none."""
    path = require_chromium()
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield chromium
        finally:
            chromium.close()
