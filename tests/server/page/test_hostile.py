"""Nothing that code, files or names hold runs in the page, or has it ask another server."""

from __future__ import annotations

from urllib.parse import urlsplit

from playwright.sync_api import Page, Request, expect

from tests.server.page.conftest import OpenPage, wait_for_state, write
from tests.support.hostile_markup import PAYLOADS
from tests.support.server import ServerProcess

SHOWN = [one.replace("\ud800", "") for one in PAYLOADS]
"""Half a character cannot be part of a request."""
EVERYWHERE = f"""
import json, sys
from IPython.display import display
payloads = {SHOWN!r}
for one in payloads:
    print(one)
    print(one, file=sys.stderr)
    for kind in ("text/markdown", "text/latex", "text/plain"):
        display({{kind: one}}, raw=True)
    table = '<table class="dataframe"><thead><tr><th>%s</th></tr></thead></table>' % one
    display({{"text/html": table, "text/plain": one}}, raw=True)
    display({{"application/json": {{one: [one]}}, "text/plain": one}}, raw=True)
    display({{"image/svg+xml": one, "text/plain": one}}, raw=True)
    globals()[one] = one
    try:
        open(one.replace("/", "_").replace(chr(0), "")[:80], "w").write(one)
    except OSError:
        pass  # a name that no file can have
"""
FRAMES = f"""
from IPython.display import display
payloads = {SHOWN!r}
for at in range(0, len(payloads), 10):
    display({{"text/html": "\\n".join(payloads[at:at + 10])}}, raw=True)
"""
ASK_AND_FAIL = (
    f"payloads = {SHOWN!r}\ninput(payloads[11])\nraise ValueError(chr(10).join(payloads))"
)

LOOK = """() => ({
    hits: window.hits,
    scripts: [...document.querySelectorAll('script')]
        .map(e => e.outerHTML).filter(a => !a.includes('src="/page.js"')),
    elements: [...document.querySelectorAll(
        'object, embed, base, video, audio, template, style, meta[http-equiv=refresh]')]
        .map(e => e.outerHTML),
    handlers: [...document.querySelectorAll('*')].flatMap(e => [...e.attributes])
        .filter(a => /^on|^srcdoc$|^formaction$|^ping$|^background$/i.test(a.name))
        .map(a => a.name + '=' + a.value),
    links: [...document.querySelectorAll('[href], [src]')]
        .map(e => e.getAttribute('href') || e.getAttribute('src'))
        .filter(a => !/^(https?:\\/\\/|mailto:|data:image\\/|[#/](?!\\/))/i.test(a.trim())),
})"""
NOTHING = {"hits": 0, "scripts": [], "elements": [], "handlers": [], "links": []}


class Requests:
    """Hears what a page, and every frame in it, gets from other servers, or is about to."""

    def __init__(self, page: Page, server: ServerProcess) -> None:
        self._own = urlsplit(server.url).netloc
        self.elsewhere: list[str] = []
        page.on("request", lambda one: self._note(one))
        page.on("requestfailed", lambda one: self._forgive(one))

    def _note(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob", "about") and parts.netloc != self._own:
            self.elsewhere.append(request.url)

    def _forgive(self, request: Request) -> None:
        # The browser itself says that its policy let nothing out.
        if request.url in self.elsewhere and "csp" in (request.failure or "").lower():
            self.elsewhere.remove(request.url)


def test_no_payload_does_anything_wherever_it_is_shown(
    open_page: OpenPage, server: ServerProcess
) -> None:
    page = open_page()
    requests = Requests(page, server)
    page.add_init_script("window.hits = 0; window.hit = () => { window.hits += 1 };")
    page.reload()
    write(page, "Python", EVERYWHERE)
    wait_for_state(page, 1, "✔")
    write(page, "Python", FRAMES)
    wait_for_state(page, 2, "✔")
    _see_all_frames(page)
    write(page, "Python", ASK_AND_FAIL)
    page.locator("#block-3 .question input").fill(SHOWN[0])
    page.keyboard.press("Enter")
    wait_for_state(page, 3, "failed")
    session = page.url.partition("session=")[2]
    for title in (SHOWN[0], SHOWN[11]):
        response = server.http.patch(f"sessions/{session}", json={"title": title})
        assert response.is_success, response.text
        expect(page.locator(".top h1")).to_have_text(title)
    page.locator(".files a", has_text="onload").first.click()
    expect(page.get_by_role("dialog")).to_have_count(1)

    # All of it was shown, as text or cleaned, before we look.
    expect(page.locator(".files li").nth(60)).to_be_attached()
    expect(page.locator(".variables tr").nth(60)).to_be_attached()
    assert page.evaluate(LOOK) == NOTHING
    assert requests.elsewhere == []
    assert "onerror=hit()" in page.locator("#block-3 .error-text").inner_text()


def test_the_policy_alone_would_stop_a_script(open_page: OpenPage, server: ServerProcess) -> None:
    page = open_page()
    policy = server.http.get(server.url).headers["content-security-policy"]

    page.evaluate(
        """() => {
          window.hit = () => { window.hits = (window.hits ?? 0) + 1 };
          const place = document.createElement("div");
          place.innerHTML = "<img src=x onerror=hit()>";
          const script = document.createElement("script");
          script.textContent = "hit()";
          document.body.append(place, script);
          return new Promise((done) => setTimeout(done, 200));
        }"""
    )

    assert page.evaluate("window.hits") is None
    scripts = next(part for part in policy.split(";") if part.strip().startswith("script-src"))
    assert scripts.split() == ["script-src", "'self'"]


def _see_all_frames(page: Page) -> None:
    """Frames load once they are near: go from one to the next."""
    frames = page.locator("#block-2 iframe")
    expect(frames).to_have_count(-(-len(SHOWN) // 10))
    for frame in frames.all():
        frame.scroll_into_view_if_needed()
        expect(frame.content_frame.locator("body")).to_be_attached()
