"""The page's connection: cut at any moment it loses nothing, and comes back by itself."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

from playwright.sync_api import Page, WebSocketRoute, expect

from tests.server.conftest import OpenServer
from tests.server.page.conftest import OpenPage, wait_for_state, write

LINES = 200_000
CUTS = 5
PRINTS = f"""
for number in range({LINES}):
    print("line", number, "of the flood")
"""


def test_a_connection_that_is_cut_loses_and_repeats_nothing(open_page: OpenPage) -> None:
    page = open_page()
    sockets: list[WebSocketRoute] = []

    def connect(socket: WebSocketRoute) -> None:
        socket.connect_to_server()
        sockets.append(socket)

    page.route_web_socket("**/events**", connect)
    page.reload()
    page.wait_for_selector("text='live'")
    chance = random.Random(5)

    write(page, "Python", PRINTS)
    for _ in range(CUTS):
        page.wait_for_timeout(chance.uniform(20, 400))
        sockets[-1].close()
        page.wait_for_selector(".top >> text='live'")
    wait_for_state(page, 1, "✔")

    expected = "\n".join(f"line {number} of the flood" for number in range(LINES))
    assert _digest(_copied_output(page)) == _digest(expected)
    assert len(sockets) > CUTS
    assert page.locator(".cell").count() == 1


def test_a_killed_server_comes_back_with_everything_that_was_shown(
    open_page: OpenPage, open_server: OpenServer, tmp_path: Path
) -> None:
    token = str(tmp_path / "token")
    first = open_server("--token-file", token)
    page = open_page(first.address)
    write(page, "Python", "print('before')")
    wait_for_state(page, 1, "✔")
    write(page, "Python", "print('on')\nwhile True: pass\n")
    expect(page.locator("#block-2 .output-row")).to_have_text(["on"])

    first.kill()
    expect(page.locator(".top [role=status]")).to_contain_text("offline")
    port = first.url.rstrip("/").rpartition(":")[2]
    open_server("--token-file", token, "--port", port)

    page.wait_for_selector(".top >> text='live'")
    write(page, "Python", "print('after')")
    expect(page.locator("#block-3 .output-row")).to_have_text(["after"])
    wait_for_state(page, 2, "lost")
    assert page.locator("#block-1 .output-row").all_inner_texts() == ["before"]
    assert page.locator(".notice").count() >= 1  # that the kernel is a fresh one


def _copied_output(page: Page) -> str:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy output").click()
    expect(page.locator(".toast")).to_have_text("Copied.")
    return str(page.evaluate("() => navigator.clipboard.readText()"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
