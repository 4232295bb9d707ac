"""Which commands need a terminal, and would wait for one in vain where they have none.

Pure: a line in, advice out. `is_sure` is for those of which nothing can come without a terminal;
others run, and whoever typed them learns how they run better.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

_ALWAYS = frozenset(
    """
    vim vi nvim view vimdiff nano pico emacs micro hx helix kak joe ed mc ranger nnn lf tig lazygit
    top htop btop atop iotop iftop nmon glances tmux screen byobu fzf dialog whiptail nmtui visudo
    vipw passwd w3m lynx links mutt irssi weechat gdb pdb telnet ftp sftp
    """.split()
)
"""These are for people at a terminal, and nothing else."""
_WITHOUT_ARGUMENTS = frozenset(
    """
    python python3 ipython bpython ptpython node deno bun irb pry ghci julia R lua sqlite3 psql
    mysql mongosh redis-cli bc ssh scala jshell iex erl clj ocaml utop php
    """.split()
)
"""These ask for lines unless they are told what to do."""
_MAYBE = frozenset("ssh sudo su less more man most info mosh docker kubectl watch".split())
"""These can do without, and ask or show more at a terminal."""
_GIT_OPTIONS_OF_COMMIT = (
    *("-m", "--message", "-F", "--file", "-C", "--reuse-message", "--no-edit", "--dry-run"),
    *("--fixup", "--squash", "-h", "--help"),
)
_BEFORE_A_COMMAND = frozenset("sudo env time nice nohup command exec builtin".split())
_ENDS_OF_COMMANDS = frozenset((";", "&&", "||", "&", "\n", "(", ")", "{", "}"))


@dataclass(frozen=True, slots=True)
class TerminalAdvice:
    """What a person is told about a command that has no terminal."""

    program: str
    is_sure: bool
    """Whether it is of no use without one, so that it need not be started."""
    text: str


def advise_on_terminal(code: str) -> TerminalAdvice | None:
    """Return advice about a line of shell code; None when it needs none."""
    advice: TerminalAdvice | None = None
    for words in _simple_commands(code):
        found = _judge(words)
        if found is not None and (advice is None or found[1]):
            program, is_sure = found
            line = code.strip().partition("\n")[0]
            verb = "needs" if is_sure else "may need"
            advice = TerminalAdvice(program, is_sure, f"{program} {verb} a terminal: `!! {line}`")
            if is_sure:
                return advice
    return advice


def _simple_commands(code: str) -> list[list[str]]:
    """The commands of a line that stand alone: in no pipe, and reading from no file."""
    lexer = shlex.shlex(code, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = [*lexer, ";"]
    except ValueError:
        return []  # quotes that do not end: the shell will say so
    commands: list[list[str]] = []
    current: list[str] = []
    for word in words:
        if word not in _ENDS_OF_COMMANDS and set(word) - {"\n", ";"}:
            current.append(word)
            continue
        if current and not {"|", "|&", "<", "<<", "<<<"} & {*current}:
            commands.append(current)
        current = []
    return commands


def _judge(words: list[str]) -> tuple[str, bool] | None:
    """Which program needs a terminal, and whether that is sure."""
    is_through_sudo = False
    while words and (words[0] in _BEFORE_A_COMMAND or _is_assignment(words[0])):
        is_through_sudo = is_through_sudo or (words[0] == "sudo" and "-n" not in words)
        words = words[1:]
        while words and words[0].startswith("-"):
            words = words[1:]
    if not words:
        return None
    program, arguments = words[0].rpartition("/")[2], words[1:]
    if program in _ALWAYS and not {"--version", "--help", "-V"} & {*arguments}:
        is_batch = program in ("top", "emacs", "gdb") and {"-b", "-bn1", "--batch", "-batch"} & {
            *arguments
        }
        return None if is_batch else (program, True)
    if program in _WITHOUT_ARGUMENTS and (not arguments or arguments == ["-i"]):
        return program, True
    if program == "git":
        return _judge_git(arguments)
    if program == "crontab" and "-e" in arguments:
        return program, True
    if program == "ssh" and len([word for word in arguments if not word.startswith("-")]) < 2:
        return program, True
    if program in ("docker", "kubectl", "podman"):
        wants = any(word in ("-it", "-ti", "-t", "--tty") for word in arguments)
        return (program, True) if wants else None
    if program in _MAYBE:
        return program, False
    return ("sudo", False) if is_through_sudo else None


def _judge_git(arguments: list[str]) -> tuple[str, bool] | None:
    if not arguments:
        return None
    verb, options = arguments[0], arguments[1:]
    if verb == "commit":
        has_message = any(
            option.startswith(_GIT_OPTIONS_OF_COMMIT)
            or (option[:1] == "-" and option[1:2] != "-" and set(option[1:]) & set("mFC"))
            for option in options
        )
        return None if has_message else ("git commit", True)
    asks = verb in ("rebase", "add", "checkout", "restore", "reset", "stash", "clean") and bool(
        {"-i", "--interactive", "-p", "--patch"} & {*options}
    )
    return (f"git {verb} {options[0]}", True) if asks else None


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier()
