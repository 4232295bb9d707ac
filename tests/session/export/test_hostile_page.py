"""Nothing of a session runs, loads or leads anywhere in its exported page: a real browser looks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Dialog

from taskweaver_ext.session.export.html_text import clean_html, formula_html, markdown_html
from tests.support.browser import browser
from tests.support.exported import exported, session_saying
from tests.support.hostile_markup import PAYLOADS

LOOK = """() => ({
    hits: window.hits,
    elements: [...document.querySelectorAll(
        'script, iframe, frame, object, embed, form, input, button, textarea, select, base, link,'
        + ' svg, video, audio, template, style ~ style, meta[http-equiv=refresh]')]
        .map(e => e.outerHTML),
    handlers: [...document.querySelectorAll('*')].flatMap(e => [...e.attributes])
        .filter(a => /^on|^style$|^srcdoc$|^formaction$|^ping$|^background$/i.test(a.name))
        .map(a => a.name + '=' + a.value),
    links: [...document.querySelectorAll('[href], [src]')]
        .map(e => e.getAttribute('href') || e.getAttribute('src'))
        .filter(a => !/^(https?:\\/\\/|mailto:|data:image\\/)/i.test(a.trim())),
})"""
NOTHING: dict[str, object] = {
    "hits": 0,
    "elements": [],
    "handlers": [],
    "links": [],
    "loaded": [],
    "dialogs": [],
}


class Looker:
    """Opens pages in one tab, and says what is wrong with each."""

    def __init__(self, context: BrowserContext) -> None:
        self._page = context.new_page()
        self._requests: list[str] = []
        self._dialogs: list[str] = []
        self._page.on("request", lambda request: self._requests.append(request.url))
        self._page.on("dialog", self._dismiss)
        self._page.add_init_script("window.hits = 0; window.hit = () => { window.hits += 1 };")

    def look_at(self, path: Path) -> dict[str, object]:
        """Open a page, wait for what it might do, and return what there is of it."""
        self._requests.clear()
        self._dialogs.clear()
        self._page.goto(path.as_uri(), wait_until="load")
        # A frame is drawn: what waits for that, or for what it loads, has had its turn.
        self._page.evaluate(
            """() => {
                document.querySelectorAll("details").forEach(one => { one.open = true });
                return new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)));
            }"""
        )
        found: dict[str, object] = self._page.evaluate(LOOK)
        loaded = [url for url in self._requests if not url.startswith(("file:", "data:"))]
        return {**found, "loaded": loaded, "dialogs": list(self._dialogs)}

    def _dismiss(self, dialog: Dialog) -> None:
        self._dialogs.append(dialog.message)
        dialog.dismiss()


def without_policy(page: str) -> str:
    """The same page in a browser that knows no content policy."""
    stripped = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    assert stripped != page
    return stripped


def test_there_are_many_payloads() -> None:
    assert len(set(PAYLOADS)) == len(PAYLOADS) >= 60


def test_no_payload_does_anything_anywhere_even_without_a_policy(tmp_path: Path) -> None:
    problems = {}
    path = tmp_path / "page.html"
    with browser() as chromium, chromium.new_context() as context:
        looker = Looker(context)
        for payload in PAYLOADS:
            page = exported(session_saying(payload, tmp_path), "html")
            path.write_text(without_policy(page), encoding="utf-8")
            if (found := looker.look_at(path)) != NOTHING:
                problems[payload] = found

    assert problems == {}


def test_the_browser_would_notice_and_the_policy_alone_would_stop_it(tmp_path: Path) -> None:
    page = exported(session_saying("harmless", tmp_path), "html")
    hostile = page.replace(
        "<main>", "<main><script>hit()</script><img src=x onerror=hit()><p style='color:red'>x</p>"
    )
    policed, open_to_all = tmp_path / "policed.html", tmp_path / "open.html"
    policed.write_text(hostile, encoding="utf-8")
    open_to_all.write_text(without_policy(hostile), encoding="utf-8")

    with browser() as chromium, chromium.new_context() as context:
        looker = Looker(context)
        stopped, unstopped = looker.look_at(policed), looker.look_at(open_to_all)

    assert stopped["hits"] == 0
    assert unstopped["hits"] == 2
    assert stopped["elements"] == ["<script>hit()</script>"]
    assert stopped["handlers"] == ["onerror=hit()", "style=color:red"]


@pytest.mark.parametrize(
    "markup",
    [
        "<div>" * 300_000,
        "<b>" * 100_000,
        "".join(f"<b a={n}>" for n in range(150)) + "<p>" * 500_000,
        "<table>" * 50_000,
        "<a href=" + "x" * 1_000_000,
        "<!--" * 400_000,
        "&" * 1_000_000,
    ],
    ids=lambda markup: markup[:8],
)
def test_html_that_would_grow_without_end_stays_bounded(markup: str) -> None:
    assert len(clean_html(markup)) < 20_000_000


@pytest.mark.parametrize(
    "text",
    ["$" * 20_000, r"\(" * 20_000, "[" * 20_000, "> " * 10_000, "*a " * 20_000, "`" * 20_000 + "x"],
    ids=lambda text: text[:4],
)
def test_markdown_that_is_never_closed_is_read_to_its_end(text: str) -> None:
    assert markdown_html(text)


def test_what_is_harmless_stays() -> None:
    table = (
        "<table><thead><tr><th>name</th></tr></thead><tbody><tr><td>Ada</td></tr></tbody></table>"
    )

    assert clean_html(table) == table
    assert 'href="https://example.org"' in clean_html("<a href='https://example.org'>x</a>")
    assert 'href="https://example.org"' in markdown_html("[x](https://example.org)")
    assert "<strong>bold</strong>" in markdown_html("**bold**")
    assert "<msup>" in markdown_html("the area is $r^2$")
    assert "<mfrac" in formula_html(r"$\displaystyle \frac{1}{2}$")
    assert "$5 and $6" in markdown_html("between $5 and $6")
    assert clean_html("<script>1</script><div> </div>") == ""
