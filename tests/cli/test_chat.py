"""The chat as a person has it: what can be typed, and what comes of it."""

from __future__ import annotations

from pathlib import Path

from tests.support.chat_terminal import PROMPT, ChatTerminal, OpenChat


def test_input_is_answered_at_the_prompt(chat: ChatTerminal) -> None:
    chat.press("> name = input('Name: '); print('Hello', name)\r")
    chat.wait_for(" │   Name:")

    chat.press("Ada\r")

    chat.wait_for(" │   Hello Ada")


def test_a_password_is_asked_for_and_not_shown(chat: ChatTerminal) -> None:
    chat.press("> import getpass; print(len(getpass.getpass()))\r")
    chat.wait_for(" │   Password:")

    chat.press("sesame\r")

    chat.wait_for(" │   6")
    assert chat.count("sesame") == 0


def test_tab_completes_commands_files_and_names_of_the_kernel(
    chat: ChatTerminal, project: Path
) -> None:
    (project / "unmistakable.csv").touch()
    chat.press("> very_special_name = 1\r")
    chat.wait_for("✔ done")

    chat.press("> print(very_spec\t")
    chat.wait_for("print(very_special_name")
    chat.press(" + 41)\r")
    chat.wait_for(" │   42")
    chat.press("/load unmis\t")
    chat.wait_for("/load unmistakable.csv")
    chat.press("\r")
    chat.wait_for("Code can open: unmistakable.csv")
    chat.press("/mod\t")
    chat.wait_for("/mode")
    chat.press(" shell\r")
    chat.wait_for("go to: shell")


def test_a_shell_keeps_its_folder_and_several_lines_can_be_typed(chat: ChatTerminal) -> None:
    chat.press("! cd /usr; echo in\r")
    chat.wait_for(" │   in")
    chat.press("! pwd\r")
    chat.wait_for(" │   /usr")

    chat.press("> for n in range(2):\rprint('n', n)\r\r")

    chat.wait_for(" │   n 1")
    lines = chat.screen.lines
    first = lines.index("You ▸ > for n in range(2):")
    assert lines[first + 1] == "      …     print('n', n)"


def test_the_next_chat_remembers_what_was_typed(open_chat: OpenChat) -> None:
    first = open_chat()
    first.press("> print('remember', 'me')\r")
    first.wait_for("remember me")
    assert first.leave() == 0

    second = open_chat()
    second.press("\x1b[A\r")

    second.wait_for("remember me")


def test_without_a_model_a_request_shows_the_ways_there_are(open_chat: OpenChat) -> None:
    chat = open_chat(rows=40)
    chat.press("plot something\r")

    chat.wait_for("No model is set")
    chat.wait_for("model fetch")
    text = "\n".join(chat.screen.all_lines)
    for way in ("/demo", ">", "!", "openai", "anthropic", "ollama", "local"):
        assert way in text
    assert '                   "llm.api_key": "...", "llm.model": "..."' in chat.screen.lines


def test_the_demonstration_plays_to_its_end(open_chat: OpenChat) -> None:
    chat = open_chat(columns=100, rows=40)
    chat.press("/demo\r")

    chat.wait_for("making days [#")
    chat.wait_for("Done. I made up")
    chat.wait_for(PROMPT, times=3)

    lines = chat.screen.all_lines
    assert any("script" in line for line in lines)
    assert any(line.startswith(" ╰──● ✖ failed") for line in lines)
    assert any("NameError" in line and line.startswith(" │ !") for line in lines)
    chat.press("/artifacts\r")
    chat.wait_until(
        lambda: any(line.endswith("_chart.png") and "," in line for line in chat.screen.lines),
        "the chart with its size",
    )


def test_history_and_log_are_for_their_owner_alone_also_those_of_earlier_times(
    project: Path, open_chat: OpenChat
) -> None:
    kept = [project / ".taskweaver_history", project / "logs" / "task_weaver.log"]
    for path in kept:
        path.parent.mkdir(exist_ok=True)
        path.touch()
        path.chmod(0o666)

    chat = open_chat()
    chat.press("> print('once')\r")
    chat.wait_for(" │   once")
    chat.leave()

    assert [path.stat().st_mode & 0o777 for path in kept] == [0o600, 0o600]
    assert "print('once')" in kept[0].read_text()
