"""What a line asks for."""

from __future__ import annotations

import pytest

from taskweaver_ext.chat.requests import Mode, Request, is_complete, parse_request


@pytest.mark.parametrize(
    ("line", "mode", "request_"),
    [
        ("hello", "agent", Request("agent", "hello")),
        ("  ", "agent", Request("nothing", "")),
        ("> x = 1", "agent", Request("python", "x = 1")),
        (">x", "agent", Request("python", "x")),
        (">>> x", "agent", Request("python", "x")),
        (">  x", "agent", Request("python", " x")),
        ("> for a in b:\n    c", "agent", Request("python", "for a in b:\n    c")),
        ("! ls", "agent", Request("shell", "ls")),
        ("!!", "agent", Request("terminal", "")),
        ("!! vim x", "agent", Request("terminal", "vim x")),
        ("!!vim x", "python", Request("terminal", "vim x")),
        ("! ! true", "agent", Request("shell", "! true")),
        ("ls", "shell", Request("shell", "ls")),
        ("/bin/ls -l", "shell", Request("shell", "/bin/ls -l")),
        ("x", "python", Request("python", "x")),
        ("! ls", "python", Request("shell", "ls")),
        ("/help", "python", Request("command", "", "help")),
        ("/load a b", "agent", Request("command", "a b", "load")),
        ("/bye", "agent", Request("command", "", "exit")),
        ("/?", "agent", Request("command", "", "help")),
        ("/hlep", "agent", Request("command", "", "hlep")),
        ("/tmp/x.csv is what?", "agent", Request("agent", "/tmp/x.csv is what?")),
    ],
)
def test_prefix_command_and_mode_decide(line: str, mode: Mode, request_: Request) -> None:
    assert parse_request(line, mode) == request_


@pytest.mark.parametrize(
    ("line", "mode", "expected"),
    [
        ("hello", "agent", True),
        ("hello\\", "agent", False),
        ("> x = 1", "agent", True),
        ("> def f():", "agent", False),
        ("> def f():\n    return 1", "agent", False),
        ("> def f():\n    return 1\n", "agent", True),
        ("> for a in b: c", "agent", True),
        ("> print(", "agent", False),
        ("> '''", "agent", False),
        ("> 1 +* 2", "agent", True),
        ("x = [", "python", False),
        ("ls \\", "shell", False),
        ("/mode python", "agent", True),
    ],
)
def test_enter_sends_what_is_complete(line: str, mode: Mode, expected: bool) -> None:
    assert is_complete(line, mode) is expected
