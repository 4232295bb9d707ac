"""The page for keyboards, screen readers, large text and small screens."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]  # has none
from playwright.sync_api import Page, expect

from tests.server.page.conftest import OpenAgent, OpenPage, wait_for_state, write
from tests.support.conversations import answer, code, plan

RICH = """
import sys
from IPython.display import *
print("\\x1b[31mred\\x1b[0m \\x1b[32mgreen\\x1b[0m", "plain")
print("warned", file=sys.stderr)
display(Markdown("# A *title*\\n\\n- one"), JSON({"a": [1]}), HTML("<b>framed</b>"))
display({"text/html": '<table class="dataframe"><thead><tr><th>n</th></tr></thead>'
         '<tbody><tr><td>1</td></tr></tbody></table>'}, raw=True)
open("made.txt", "w").write("made")
value = [1, 2, 3]
for number in range(300): print(number)
1 / 0
"""
CUT_OFF = """() => [...document.querySelectorAll("body *")].filter((one) => {
  const style = getComputedStyle(one);
  const isLine = one.childElementCount === 0 && one.textContent.trim() && one.checkVisibility();
  const hides = style.overflowX === "hidden" || style.overflowX === "clip";
  const box = one.getBoundingClientRect();
  const scrolls = one.closest(".output-list, pre, .display, .skip, .table-display");
  const isOutside = box.left < -1 || box.right > innerWidth + 1;
  return isLine && !scrolls && (isOutside || (hides && one.scrollWidth > one.clientWidth + 1));
}).map((one) => one.outerHTML.slice(0, 200))"""


def test_no_rule_of_accessibility_is_broken(open_page: OpenPage, open_agent: OpenAgent) -> None:
    replies = [plan("say it"), code("echo asks", "bash"), answer("**Said.**\n\n```\nx\n```")]
    server, _ = open_agent(replies)
    page = open_page(server.address)
    assert _violations(page) == ""

    write(page, "Python", RICH)
    wait_for_state(page, 1, "failed")
    write(page, "Ask", "say it")
    expect(page.locator(".question")).to_be_visible()
    expect(page.locator(".sort")).to_be_visible()
    assert _violations(page) == ""
    page.emulate_media(color_scheme="dark")
    assert _violations(page) == ""
    page.set_viewport_size({"width": 390, "height": 844})
    assert _violations(page) == ""
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".message.said").last).to_contain_text("Said.")
    page.get_by_role("button", name="Details").click()
    page.get_by_role("link", name="made.txt").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert _violations(page) == ""


def test_everything_is_done_with_the_keyboard(open_page: OpenPage, open_agent: OpenAgent) -> None:
    server, _ = open_agent([plan("say it"), code("echo said", "bash"), answer("Said.")])
    page = open_page(server.address)
    page.keyboard.type(">print('typed')")
    page.keyboard.press("Enter")
    expect(page.locator("#block-1 .output-row")).to_have_text(["typed"])

    page.keyboard.press("Escape")
    expect(page.locator("#block-1")).to_be_focused()
    page.keyboard.press("f")
    expect(page.locator("#block-1 .output-row")).to_be_hidden()
    page.keyboard.press("f")
    page.keyboard.press("i")
    expect(page.locator(".composer textarea")).to_be_focused()
    page.get_by_role("radio", name="Ask", exact=True).press("Enter")
    page.keyboard.type("say it")
    page.keyboard.press("Enter")
    expect(page.locator("#block-2 .question")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#block-2 .question")).to_be_focused()
    page.keyboard.press("Enter")

    expect(page.locator("#block-2 .output-row")).to_have_text(["said"])
    expect(page.locator(".message.said").last).to_contain_text("Said.")


def test_running_code_is_stopped_with_the_keyboard(open_page: OpenPage) -> None:
    page = open_page()
    page.keyboard.type(">while True: pass")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    wait_for_state(page, 1, "running")

    page.keyboard.press("Control+.")

    wait_for_state(page, 1, "stopped")


def test_no_text_is_cut_off_at_twice_its_size_or_on_a_phone(open_page: OpenPage) -> None:
    page = open_page()
    write(page, "Python", RICH)
    wait_for_state(page, 1, "failed")

    for width, height in ((640, 400), (390, 844), (320, 640)):  # 640: 1280 at 200 %
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate(CUT_OFF) == []
        for name in ("Details", "Sessions"):
            opener = page.get_by_role("button", name=name, exact=True)
            opener.click()
            assert page.evaluate(CUT_OFF) == []
            opener.click()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def _violations(page: Page) -> str:
    """What axe-core finds, in words."""
    results = Axe().run(page)
    return str(results.generate_report()) if results.violations_count else ""
