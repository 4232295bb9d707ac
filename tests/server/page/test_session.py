"""A session in the page, as a person uses it."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from tests.server.page.conftest import OpenAgent, OpenPage, wait_for_state, write
from tests.support.conversations import answer, code, plan

GATE = """
import pathlib, time
print("waiting")
while not pathlib.Path({gate!r}).exists():
    time.sleep(0.01)
print("done")
"""


def test_output_is_seen_while_the_code_still_runs(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page()
    gate = tmp_path / "gate"

    write(page, "Python", GATE.format(gate=str(gate)))

    expect(page.locator("#block-1 .output-row")).to_have_text(["waiting"])
    wait_for_state(page, 1, "running")
    gate.touch()
    expect(page.locator("#block-1 .output-row")).to_have_text(["waiting", "done"])
    wait_for_state(page, 1, "✔")


def test_errors_and_streams_are_apart(open_page: OpenPage) -> None:
    page = open_page()

    write(page, "Shell", "echo out; echo err >&2; exit 3")
    wait_for_state(page, 1, "failed")
    write(page, "Python", "1/0")
    wait_for_state(page, 2, "failed")

    assert page.locator("#block-1 .output-row.stderr").all_inner_texts() == ["err"]
    assert "exit code 3" in page.locator("#block-1 .error-text").inner_text()
    assert "ZeroDivisionError" in page.locator("#block-2 .error-text").inner_text()


def test_code_is_stopped_and_variables_survive(open_page: OpenPage) -> None:
    page = open_page()
    write(page, "Python", "kept = 42\nprint('on')\nwhile True: pass\n")
    expect(page.locator("#block-1 .output-row")).to_have_text(["on"])

    page.locator("#block-1").get_by_role("button", name="Stop").click()

    wait_for_state(page, 1, "stopped")
    write(page, "Python", "print(kept)")
    expect(page.locator("#block-2 .output-row")).to_have_text(["42"])


def test_a_block_runs_again_and_can_be_edited(open_page: OpenPage) -> None:
    page = open_page()
    write(page, "Python", "count = globals().get('count', 0) + 1; print(count)")
    wait_for_state(page, 1, "✔")

    page.locator("#block-1").get_by_role("button", name="Run again").click()
    wait_for_state(page, 2, "✔")
    page.locator("#block-2").get_by_role("button", name="Edit").click()
    field = page.locator(".composer textarea")
    field.fill(field.input_value() + "; print('edited')")
    page.keyboard.press("Enter")
    wait_for_state(page, 3, "✔")

    assert "block 1 again" in page.locator("#block-2 header").inner_text()
    assert page.locator("#block-3 .output-row").all_inner_texts() == ["3", "edited"]


def test_input_and_passwords_are_asked_in_place(open_page: OpenPage) -> None:
    page = open_page()
    write(page, "Python", "import getpass\nprint(input('Name? ') + getpass.getpass('Word: '))\n")

    block = page.locator("#block-1")
    block.get_by_label("Name?").fill("Ada")
    page.keyboard.press("Enter")
    field = block.get_by_label("Word:")
    assert field.get_attribute("type") == "password"
    field.fill("hush")
    page.keyboard.press("Enter")

    expect(page.locator("#block-1 .output-row")).to_have_text(["Adahush"])
    assert "hush" not in page.locator("#block-1 .output-answer").all_inner_texts()[-1]


def test_several_pages_see_the_same_and_reload_shows_it_again(open_page: OpenPage) -> None:
    page = open_page()
    write(page, "Python", "for number in range(5): print(number)\n")
    wait_for_state(page, 1, "✔")
    cookies = page.context.cookies()

    other = page.context.new_page()
    other.goto(page.url)
    expect(other.locator("#block-1 .output-row")).to_have_text(list("01234"))
    write(other, "Python", "print('from the other')")
    expect(page.locator("#block-2 .output-row")).to_have_text(["from the other"])
    page.reload()

    expect(page.locator("#block-2 .output-row")).to_have_text(["from the other"])
    assert "token" not in page.url
    assert all(one["httpOnly"] and one["sameSite"] == "Strict" for one in cookies)


def test_late_output_has_a_lane_of_its_own(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page()
    gate = tmp_path / "gate"
    thread = f"import threading\ndef late():{GATE.format(gate=str(gate))}".replace("\n", "\n    ")
    thread = thread.replace("\n    def late", "\ndef late")
    write(page, "Python", f"{thread}\nthreading.Thread(target=late).start()\n")
    wait_for_state(page, 1, "✔")

    gate.touch()

    expect(page.locator("#block-1 .late .output-row").last).to_have_text("done")


def test_the_agent_plans_writes_runs_and_answers(
    open_page: OpenPage, open_agent: OpenAgent
) -> None:
    replies = [
        plan("count them", steps="1. count\n2. report"),
        code("print(sum(range(10)))"),
        answer("It is **45**.\n\n```python\nprint(45)\n```"),
    ]
    server, _ = open_agent(replies)
    page = open_page(server.address)

    write(page, "Ask", "What is the sum?")

    wait_for_state(page, 1, "✔")
    expect(page.locator("#block-1 .output-row")).to_have_text(["45"])
    expect(page.locator(".message.said").last).to_contain_text("It is")
    assert page.locator(".message.asked").all_inner_texts() == ["What is the sum?"]
    assert "step 1 of 2" in page.locator(".plan summary").first.inner_text()


def test_code_of_the_agent_asks_and_can_be_edited(
    open_page: OpenPage, open_agent: OpenAgent
) -> None:
    replies = [plan("say hello"), code("echo dangerous", "bash"), answer("Said.")]
    server, model = open_agent(replies)
    page = open_page(server.address)
    write(page, "Ask", "say hello")
    question = page.locator("#block-1 .question")
    expect(question).to_contain_text("Run block 1 (bash)?")

    question.get_by_role("button", name="Edit").click()
    page.get_by_label("The code, to be edited").fill("echo harmless")
    question.get_by_role("button", name="Run", exact=True).click()

    expect(page.locator("#block-1 .output-row")).to_have_text(["harmless"])
    expect(page.locator("#block-1 header")).to_contain_text("edited by you")
    expect(page.locator(".message.said").last).to_contain_text("Said.")
    assert "harmless" in str(model.requests[-1].body)


def test_a_pattern_allows_such_commands_and_can_be_taken_back(
    open_page: OpenPage, open_agent: OpenAgent
) -> None:
    replies = [plan("say it"), code("echo one", "bash"), plan("again"), code("echo two", "bash")]
    server, _ = open_agent([*replies, answer("Said.")])
    page = open_page(server.address)
    write(page, "Ask", "say it twice")

    page.get_by_label("Commands that run without asking").fill("echo *")
    page.get_by_role("button", name="Run, and allow these").click()

    expect(page.locator("#block-2 .output-row")).to_have_text(["two"])  # without a question
    row = page.locator(".allowed li")
    expect(row).to_contain_text("echo *")
    row.get_by_role("button", name="Ask again").click()
    expect(row).to_have_count(0)


def test_what_the_agent_knows_is_marked_and_can_be_taken_out(
    open_page: OpenPage, open_agent: OpenAgent
) -> None:
    server, model = open_agent([answer("I see it."), answer("Nothing.")])
    page = open_page(server.address)
    page.get_by_label("What the agent hears").select_option("next")
    write(page, "Python", "secret_sauce = 7")
    known = page.locator("#block-1").get_by_role("button", name="Known to the agent")
    expect(known).to_be_visible()
    write(page, "Ask", "What did I run?")
    expect(page.locator(".message.said").last).to_contain_text("I see it.")

    known.click()

    expect(known).to_be_hidden()
    write(page, "Ask", "And now?")
    expect(page.locator(".message.said").last).to_contain_text("Nothing.")
    assert "secret_sauce" in str(model.requests[0].body)
    assert "secret_sauce" not in str(model.requests[1].body)


def test_tab_completes_what_is_typed_from_the_kernel(open_page: OpenPage) -> None:
    page = open_page()
    write(page, "Python", "fruit_count = 3; fruit_name = 'fig'")
    wait_for_state(page, 1, "✔")

    page.locator(".composer textarea").fill("print(fruit_")
    page.keyboard.press("Tab")
    offered = page.get_by_role("listbox", name="Completions").get_by_role("option")
    expect(offered).to_have_text(["fruit_count", "fruit_name"])
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.type(")")
    page.keyboard.press("Enter")

    expect(page.locator("#block-2 .output-row")).to_have_text(["fig"])


def test_code_of_the_agent_is_completed_while_it_is_edited(
    open_page: OpenPage, open_agent: OpenAgent
) -> None:
    server, _ = open_agent([plan("say it"), code("print(1)"), answer("Said.")])
    page = open_page(server.address)
    write(page, "Python", "fruit_name = 'fig'")
    wait_for_state(page, 1, "✔")
    page.get_by_label("What the agent may run").select_option("ask all")
    write(page, "Ask", "say it")
    question = page.locator("#block-2 .question")
    question.get_by_role("button", name="Edit").click()

    editor = page.get_by_label("The code, to be edited")
    editor.fill("print(fruit_na")
    page.keyboard.press("Tab")
    expect(editor).to_have_value("print(fruit_name")
    page.keyboard.type(")")
    expect(question.locator(".diff .added")).to_have_text("+ print(fruit_name)\n")
    question.get_by_role("button", name="Run", exact=True).click()

    expect(page.locator("#block-2 .output-row")).to_have_text(["fig"])


def test_markdown_is_chosen_for_a_block_and_for_a_kind(
    open_page: OpenPage, open_agent: OpenAgent
) -> None:
    server, _ = open_agent([answer("It is **45**.")])
    page = open_page(server.address)
    write(page, "Ask", "How many?")
    said = page.locator(".message.said")
    expect(said.locator("strong")).to_have_text("45")

    said.get_by_role("button", name="Source").click()
    expect(said).to_contain_text("**45**")
    said.get_by_role("button", name="Markdown").click()
    expect(said.locator("strong")).to_have_text("45")
    write(page, "Python", "print('a **bold** word')")
    wait_for_state(page, 1, "✔")
    page.locator("#block-1").get_by_role("button", name="Markdown").click()
    expect(page.locator("#block-1 .markdown-display strong")).to_have_text("bold")
    expect(page.locator("#block-1 .output-row")).to_be_hidden()
    page.get_by_label("Output of the shell").check()
    write(page, "Shell", "echo '# Title'")

    expect(page.locator("#block-2 h1")).to_have_text("Title")
    page.get_by_label("What the agent says").uncheck()
    page.reload()
    expect(page.locator(".message.said")).to_contain_text("It is **45**.")
    expect(page.locator("#block-2 h1")).to_have_text("Title")
