"""Commands that need a terminal are known; all others are let be."""

from __future__ import annotations

import pytest

from taskweaver_ext.chat.terminal_programs import advise_on_terminal


@pytest.mark.parametrize(
    ("code", "program"),
    [
        ("vim notes.txt", "vim"),
        ("/usr/bin/vim notes.txt", "vim"),
        ("EDITOR=x LANG=C nano a", "nano"),
        ("sudo -E vim /etc/hosts", "vim"),
        ("cd src && htop", "htop"),
        ("make; top", "top"),
        ("make\ntop", "top"),
        ("python", "python"),
        ("python3 -i", "python3"),
        ("ssh example.org", "ssh"),
        ("ssh -v user@example.org", "ssh"),
        ("git commit", "git commit"),
        ("git commit --amend", "git commit"),
        ("git commit -a", "git commit"),
        ("git add -p", "git add -p"),
        ("git rebase -i HEAD~3", "git rebase -i"),
        ("crontab -e", "crontab"),
        ("docker run -it debian bash", "docker"),
    ],
)
def test_what_needs_a_terminal_is_told_to_take_one(code: str, program: str) -> None:
    advice = advise_on_terminal(code)

    assert advice is not None
    assert (advice.program, advice.is_sure) == (program, True)
    first_line = code.partition("\n")[0]
    assert advice.text == f"{program} needs a terminal: `!! {first_line}`"


@pytest.mark.parametrize("code", ["sudo apt install x", "less file", "man ls", "ssh host uptime"])
def test_what_can_do_without_one_runs_with_a_hint(code: str) -> None:
    advice = advise_on_terminal(code)

    assert advice is not None
    assert not advice.is_sure


@pytest.mark.parametrize(
    "code",
    [
        "",
        "ls -la",
        "echo vim",
        "which vim",
        "git log | less",
        "cat x | vim -",
        "python script.py",
        "python < script.py",
        "python -c 'print(1)'",
        "git commit -m 'words'",
        "git commit -am words",
        "git commit --message=words",
        "git commit --amend --no-edit",
        "git status",
        "git",
        "sudo -n true",
        "top -b -n1",
        "vim --version",
        "docker ps",
        "echo 'unended",
        "x=vim",
        "for f in a b; do echo $f; done",
    ],
)
def test_all_else_is_let_be(code: str) -> None:
    assert advise_on_terminal(code) is None
