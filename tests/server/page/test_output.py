"""The output of the page: the same folding as everywhere, and a list that stands any length."""

from __future__ import annotations

import mimetypes
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route

import taskweaver_ext
from taskweaver_ext.text.terminal import LineFolder
from tests.support.browser import browser

PAGE_FILES = Path(taskweaver_ext.__file__).parent / "server" / "page"
ADDRESS = "http://page.test/"
DOCUMENT = """<!doctype html><title>output</title><link rel="stylesheet" href="output.css">
<style>:root { --mono: 13px monospace; }</style><main></main>"""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    """A page of our origin with nothing in it; modules come from the package's folder."""
    with browser() as chromium:
        page = chromium.new_page()
        page.route(f"{ADDRESS}**", _serve)
        page.goto(ADDRESS)
        yield page


def _serve(route: Route) -> None:
    name = route.request.url.removeprefix(ADDRESS)
    if not name:
        route.fulfill(body=DOCUMENT, content_type="text/html")
        return
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    route.fulfill(body=(PAGE_FILES / name).read_text(), content_type=kind)


FOLD = """async (pieces) => {
    const { LineFolder } = await import("./terminal_text.js");
    return pieces.map((texts) => {
        const folder = new LineFolder();
        const lines = texts.flatMap((text) => folder.feed(text));
        return [...lines, ...folder.close()];
    });
}"""

EXAMPLES = [
    "plain\nlines\n",
    "no newline at the end",
    "50%\r100%",
    "50%\r100%\ndone\n",
    "windows\r\nlines\r\n",
    "abc\b\bX\n",
    "\x1b[31mred\x1b[0m and plain\n",
    "\x1b[1;38;5;208mbold orange\nstill\x1b[0m\n",
    "\x1b[38;2;1;2;3mexact\x1b[39m\n",
    "title \x1b]0;owned\x07stays text\n",
    "\x1b[2Jcleared? \x1b[10;10Hmoved? no\n",
    "one\ntwo\n\x1b[2A\x1b[2KONE\n\x1b[2KTWO\n",
    "a: 1%\rb\na: 2%\n\x1b[1A\ra: 3%\n",
    "half \x1b[3",
    "wide 表示\r上\n",
    "e\u0301 combining\rx\n",
    "hidden \u202e and \u200b shown\n",
    "tab\there\rT\n",
]


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_lines_are_folded_as_in_every_other_frontend(page: Page, size: int) -> None:
    pieces = [[text[at : at + size] for at in range(0, len(text), size)] for text in EXAMPLES]

    folded = page.evaluate(FOLD, pieces)

    assert folded == [_fold(text) for text in EXAMPLES]


def test_random_output_is_folded_as_in_every_other_frontend(page: Page) -> None:
    chance = random.Random(7)
    words = ["a", "bc", " ", "\n", "\r", "\b", "\x1b[31m", "\x1b[0m", "\x1b[K", "\x1b[2K", "\r\n"]
    words += ["\x1b[1A", "\x1b[1B", "\x1b[J", "é", "\x07", "\x1b[?25l", "\x1b[1G"]
    texts = ["".join(chance.choices(words, k=40)) for _ in range(400)]

    folded = page.evaluate(FOLD, [[text] for text in texts])

    different = [
        (text, ours, theirs)
        for text, ours, theirs in zip(texts, folded, map(_fold, texts), strict=True)
        if ours != theirs
    ]
    assert different == []


def test_a_million_lines_are_kept_drawn_and_found_in_bounded_memory(page: Page) -> None:
    page.evaluate(
        """async () => {
            const { OutputStore } = await import("./output_store.js");
            const { OutputView } = await import("./output_view.js");
            const store = window.store = new OutputStore();
            const view = window.view = new OutputView(store, "Output of block 1");
            document.querySelector("main").replaceChildren(view.element);
            for (let piece = 0; piece < 1000; piece += 1) {
                let text = "";
                for (let at = 0; at < 1000; at += 1) text += `line ${piece * 1000 + at}\\n`;
                store.feed(piece % 10 === 9 ? "stderr" : "stdout", text);
                if (piece % 50 === 0) await new Promise((done) => setTimeout(done, 0));
            }
        }"""
    )
    page.wait_for_function("() => document.body.innerText.includes('line 999999')")
    assert page.locator(".output-row").count() < 200

    # Somewhere in the middle, which is packed by now.
    page.evaluate(
        "() => { const list = document.querySelector('.output-list'); "
        "list.scrollTop = list.scrollHeight / 2; }"
    )
    page.wait_for_function("() => /line (49|50)\\d{4}\\n/.test(document.body.innerText)")
    assert page.evaluate("() => window.view.isFollowing") is False

    found = page.evaluate(
        """async () => {
            const found = [];
            for await (const row of window.store.find("line 77777", new AbortController().signal)) {
                found.push(row);
            }
            return found;
        }"""
    )
    assert found == [77777, *range(777770, 777780)]

    page.evaluate("() => window.view.show(777777)")
    page.wait_for_function(
        "() => document.querySelector('.output-row.marked')?.textContent === 'line 777777'"
    )
    page.evaluate("() => window.store.feed('stdout', 'more\\n')")
    page.wait_for_timeout(100)
    assert not page.locator("text=more").count()  # the reader looks elsewhere
    page.evaluate("() => window.view.follow()")
    page.wait_for_function("() => document.body.innerText.includes('more')")


def test_bars_change_in_place_and_streams_are_apart(page: Page) -> None:
    page.evaluate(
        """async () => {
            const { OutputStore } = await import("./output_store.js");
            const { OutputView } = await import("./output_view.js");
            const store = window.store = new OutputStore();
            const view = new OutputView(store, "Output of block 2");
            document.querySelector("main").replaceChildren(view.element);
            store.feed("stderr", "10%");
            store.feed("stdout", "working\\n");
            store.feed("stderr", "\\r50%");
        }"""
    )
    rows = page.locator(".output-row")
    page.wait_for_function("() => document.querySelectorAll('.output-row').length === 2")
    assert rows.all_inner_texts() == ["working", "50%"]
    assert page.locator(".output-row.stderr").inner_text() == "50%"

    page.evaluate("() => { window.store.feed('stderr', '\\r100%\\n'); window.store.end(); }")
    page.wait_for_function("() => document.body.innerText.includes('100%')")

    assert rows.all_inner_texts() == ["working", "100%"]


def _fold(text: str) -> list[str]:
    folder = LineFolder()
    return [*folder.feed(text), *folder.close()]
