"""What is around a session in the page: other sessions, files, variables, the kernel."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page, expect

from tests.server.page.conftest import OpenPage, wait_for_state, write


def test_a_session_is_renamed_found_exported_and_deleted(open_page: OpenPage) -> None:
    page = open_page()
    write(page, "Python", "print('kept')")
    wait_for_state(page, 1, "✔")
    address = page.url

    _open_menu(page)
    page.get_by_role("button", name="Rename").click()
    page.get_by_role("textbox", name="Rename this session").fill("Quarterly numbers")
    page.keyboard.press("Enter")
    expect(page.locator(".top h1")).to_have_text("Quarterly numbers")
    page.get_by_role("searchbox", name="Search sessions").fill("quarterly")
    expect(page.locator(".session-title")).to_have_text(["Quarterly numbers"])
    _open_menu(page)
    with page.expect_download() as download:
        page.get_by_role("link", name="Export: Markdown").click()
    assert "kept" in Path(download.value.path()).read_text()
    page.locator(".sessions .current").get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()

    page.wait_for_url(lambda url: url != address)
    expect(page.locator(".session-title")).to_have_count(0)


def test_escape_closes_a_menu_and_a_dialog_without_doing_anything(open_page: OpenPage) -> None:
    page = open_page()
    _open_menu(page)
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Rename")).to_be_hidden()

    _open_menu(page)
    page.locator(".sessions .current").get_by_role("button", name="Delete").click()
    page.keyboard.press("Escape")

    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.locator(".sessions .current")).to_have_count(1)


def test_files_that_code_makes_are_listed_and_seen(open_page: OpenPage) -> None:
    page = open_page()

    write(
        page, "Python", "with open('made.csv', 'w') as file: file.write('fruit,count\\nfig,3\\n')"
    )
    page.get_by_role("link", name="made.csv", exact=True).click()

    dialog = page.get_by_role("dialog")
    expect(dialog.locator("pre")).to_contain_text("fig,3")
    with page.expect_download() as download:
        dialog.get_by_role("link", name="Download").click()
    assert Path(download.value.path()).read_text() == "fruit,count\nfig,3\n"
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_have_count(0)


def test_files_are_uploaded(open_page: OpenPage) -> None:
    page = open_page()

    files = [{"name": "sums.txt", "mimeType": "text/plain", "buffer": b"1 + 1"}]
    page.locator(".composer input[type=file]").set_input_files(files)  # type: ignore[arg-type]

    expect(page.get_by_role("link", name="sums.txt", exact=True)).to_be_visible()
    write(page, "Python", "print(open('sums.txt').read())")
    expect(page.locator("#block-1 .output-row")).to_have_text(["1 + 1"])


def test_variables_and_memory_are_seen_while_the_kernel_is_busy(open_page: OpenPage) -> None:
    page = open_page()

    write(page, "Python", "import math\nfruit = ['fig'] * 3\nprint('on')\nwhile True: pass\n")

    panel = page.get_by_role("region", name="Variables")
    expect(panel.get_by_role("row", name="fruit")).to_contain_text("list · 3", timeout=30_000)
    expect(panel.locator(".running-line")).to_contain_text("while True")
    expect(panel.get_by_text("1 functions, classes and modules")).to_be_visible()
    expect(page.locator(".top")).to_contain_text("MB")
    page.get_by_role("button", name="Stop").first.click()


def _open_menu(page: Page) -> None:
    page.locator(".sessions .current summary").click()
