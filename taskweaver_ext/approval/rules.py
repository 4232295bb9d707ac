"""What may run of a model's code, what asks first, and what does not run at all.

Pure: rules and code in, a decision out. Shell commands and programs in other languages cannot be
verified, so a person is asked before they run. Inside a container or a sandbox they cannot do
harm outside of it, and run, unless everything is to be asked for.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from taskweaver_ext.config.settings import ApprovalMode, ApprovalScope

ShellPolicy: TypeAlias = Literal["runs", "asks", "refused"]
"""What becomes of shell code that a model writes."""

CodeKind: TypeAlias = str
"""A language; of Python, `python` is what verification can judge, `python+programs` the rest."""

PROGRAMS_FROM_PYTHON: CodeKind = "python+programs"

_UNSAFE_IN_PATTERNS = frozenset(";&|`$<>\n()\\")
"""What lets a command that begins like an allowed one do something else as well."""
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./-]*")
_RUNNERS = frozenset(
    "sudo doas su env xargs nohup setsid time nice ionice timeout watch stdbuf chroot strace"
    " exec eval command builtin source . bash sh dash zsh ksh fish busybox find parallel ssh"
    " docker podman kubectl npx".split()
)
"""Programs that run what comes after them, wherever it stands: the word after them says little."""
_STRICTNESS = (("auto", "shell"), ("ask", "shell"), ("ask", "all"), ("deny", "shell"))
"""Levels, the laxest first; of those that do not ask the scope says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeToRun:
    """Code of a model, and what is known of it."""

    language: str
    code: str
    is_verified: bool
    """Whether it is of the kind that verification can judge."""
    is_contained: bool = False
    """Whether it runs inside a container or a sandbox."""

    @property
    def kind(self) -> CodeKind:
        """What a person allows who allows such code for good."""
        is_unjudged_python = self.language == "python" and not self.is_verified
        return PROGRAMS_FROM_PYTHON if is_unjudged_python else self.language


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRules:
    """The level of a session, and what is allowed beside it."""

    mode: ApprovalMode = "ask"
    """Ask, run everything, or run nothing."""
    scope: ApprovalScope = "shell"
    """What is asked for: what cannot be verified and is not contained, or all code."""
    patterns: tuple[str, ...] = ()
    """Shell commands that run without asking."""
    kinds: tuple[CodeKind, ...] = ()
    """Code that runs without asking, whatever it does."""

    def policy_on(self, code: CodeToRun) -> ShellPolicy:
        """Say whether code runs, asks first, or is refused."""
        if self.mode == "deny":
            return "refused"
        is_harmless = self.scope == "shell" and (code.is_verified or code.is_contained)
        is_allowed = code.kind in self.kinds or (
            code.language == "bash" and any(covers(one, code.code) for one in self.patterns)
        )
        return "runs" if self.mode == "auto" or is_harmless or is_allowed else "asks"

    @property
    def level(self) -> str:
        """The level as a person types it."""
        return f"ask {self.scope}" if self.mode == "ask" else self.mode

    @property
    def sentence(self) -> str:
        """What the level means, for people."""
        match self.mode, self.scope:
            case "auto", _:
                return "All code of the agent runs without asking."
            case "deny", _:
                return "No code of the agent runs, Python included."
            case _, "all":
                return "You are asked before any code of the agent runs."
            case _:
                return (
                    "You are asked before the agent runs shell commands, or programs in languages"
                    " other than Python; inside a container or a sandbox they run without asking."
                )

    def is_laxer_than(self, other: ApprovalRules) -> bool:
        """Whether the level lets more run without asking than another one."""
        return self._strictness < other._strictness

    @property
    def _strictness(self) -> int:
        scope = self.scope if self.mode == "ask" else "shell"
        return _STRICTNESS.index((self.mode, scope))


def covers(pattern: str, command: str) -> bool:
    """Whether a pattern allows a command.

    `*` stands for any text, but a command with a pipe, a redirection or a second command in it is
    allowed only by itself.
    """
    command = command.strip()
    if not command or _UNSAFE_IN_PATTERNS & set(command):
        return bool(command) and command == pattern
    literally = pattern.replace("[", "[[]").replace("?", "[?]")  # `*` alone stands for others
    return command == pattern or fnmatch.fnmatchcase(command, literally)


def propose_pattern(code: CodeToRun) -> str:
    """Return a pattern that allows a shell command and others like it; empty if none makes sense.

    Two plain words and what may follow them (`git status*`), or the command as it is. One that
    has wildcards of its own, such as `rm *`, would allow far more than itself.
    """
    command = code.code.strip()
    if code.language != "bash" or not command or "\n" in command:
        return ""
    if "*" in command and not _UNSAFE_IN_PATTERNS & set(command):
        return ""
    first, *others = command.split()
    is_plain = bool(others) and all(map(_PLAIN_WORD.fullmatch, (first, others[0])))
    if not is_plain or first in _RUNNERS or _UNSAFE_IN_PATTERNS & set(command):
        return command
    return f"{first} {others[0]}*"


def describe_kind(kind: CodeKind) -> str:
    """Return what a kind of code is called in a sentence."""
    match kind:
        case "python":
            return "Python code that starts no programs"
        case "python+programs":
            return "Python code that starts programs"
        case "bash":
            return "shell code"
        case _:
            return f"{kind} code"


def sentence_of_always(kind: CodeKind) -> str:
    """Say exactly what a person allows who allows a kind of code for good."""
    return (
        f"From now on all {describe_kind(kind)} of the agent runs without asking, whatever it"
        " does, until this session ends or you type /approve forget."
    )
