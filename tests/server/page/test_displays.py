"""What code displays, in the page."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.server.page.conftest import OpenPage, wait_for_state, write

TABLE = """
from IPython.display import display
rows = "".join(f"<tr><th>{at}</th><td>{name}</td><td>{size}</td></tr>"
               for at, (name, size) in enumerate([("b", 3), ("a", 10), ("c", 2)]))
head = "<thead><tr><th></th><th>name</th><th>size</th></tr></thead>"
table = f'<table border="1" class="dataframe">{head}<tbody>{rows}</tbody></table>'
display({"text/html": table, "text/plain": "a table"}, raw=True)
"""
RICH = """
from IPython.display import *
display(Markdown("A **bold** word"))
display(Math(r"\\frac{1}{2}"))
display(JSON({"numbers": [1, 2, 3], "name": "Ada"}))
display(SVG('<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"></svg>'))
widget = "application/vnd.jupyter.widget-view+json"
display({widget: {"model_id": "x"}, "text/plain": "IntSlider(value=7)"}, raw=True)
"""


def test_each_kind_is_shown_as_what_it_is(open_page: OpenPage) -> None:
    page = open_page()

    write(page, "Python", RICH)
    wait_for_state(page, 1, "✔")

    block = page.locator("#block-1")
    expect(block.locator(".markdown-display strong")).to_have_text("bold")
    expect(block.locator(".latex-display mfrac")).to_have_count(1)
    expect(block.locator(".json-node").first).to_contain_text('name: "Ada"')
    expect(block.locator("img.picture")).to_have_js_property("naturalWidth", 40)
    expect(block.locator(".plain-display")).to_have_text("IntSlider(value=7)")
    expect(block).to_contain_text("not interactive here")
    block.get_by_text("numbers:").click()
    expect(block.locator(".json-node .json-node .json-leaf")).to_have_count(3)


def test_tables_of_data_are_sorted_by_a_press(open_page: OpenPage) -> None:
    page = open_page()
    write(page, "Python", TABLE)
    head = page.locator("#block-1").get_by_role("button", name="size")

    head.click()
    expect(page.locator("#block-1 tbody td:last-child")).to_have_text(["2", "3", "10"])
    head.click()

    expect(page.locator("#block-1 tbody td:last-child")).to_have_text(["10", "3", "2"])
    page.locator("#block-1").get_by_role("button", name="name").click()
    expect(page.locator("#block-1 tbody td:nth-child(2)")).to_have_text(["a", "b", "c"])


def test_html_runs_in_a_frame_as_high_as_it_is(open_page: OpenPage) -> None:
    page = open_page()
    high = "<div style='height: 300px'>high</div><script>document.body.append('ran')</script>"
    code = f"from IPython.display import *\ndisplay(HTML({high!r}))\ndisplay(HTML('<b>low</b>'))"

    write(page, "Python", code)

    frames = page.locator("#block-1 iframe")
    expect(frames).to_have_count(2)
    expect(page.frame_locator("#block-1 iframe >> nth=0").locator("body")).to_contain_text("ran")
    page.wait_for_function(
        """() => {
          const [high, low] = document.querySelectorAll("#block-1 iframe");
          return high.clientHeight > 300 && high.clientHeight < 400 && low.clientHeight < 80;
        }"""
    )


def test_updates_and_clear_output_change_what_is_there(open_page: OpenPage) -> None:
    page = open_page()
    code = """
from IPython.display import *
print("gone")
clear_output()
shown = display({"text/plain": "first"}, raw=True, display_id="one")
update_display({"text/plain": "second"}, raw=True, display_id="one")
"""

    write(page, "Python", code)

    expect(page.locator("#block-1 .plain-display")).to_have_text(["second"])
    assert _shown_rows(page) == []


def _shown_rows(page: Page) -> list[str]:
    return page.locator("#block-1 .output-row").all_inner_texts()
