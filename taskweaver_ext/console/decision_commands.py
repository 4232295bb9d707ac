"""The commands with which a person decides what the agent may run and what it knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast, get_args

from taskweaver_ext.approval import ApprovalRules
from taskweaver_ext.approval.rules import describe_kind
from taskweaver_ext.config.settings import ApprovalMode, ApprovalScope, AutoSend
from taskweaver_ext.console.block_status import KNOWN
from taskweaver_ext.console.command_words import UsageError, words_of
from taskweaver_ext.console.request_runner import RequestRunner
from taskweaver_ext.conversation import PostId
from taskweaver_ext.session.memory import KnownItem

_AUTO_SEND: dict[AutoSend, str] = {
    "on": "What you run goes to the agent at once, and it reacts; Ctrl-C stops that.",
    "next": "What you run goes to the agent with your next message.",
    "off": "What you run is not told to the agent.",
}
_LEVELS: dict[str, tuple[ApprovalMode, ApprovalScope]] = {
    "ask": ("ask", "shell"),
    "ask shell": ("ask", "shell"),
    "ask all": ("ask", "all"),
    "deny": ("deny", "shell"),
    "auto": ("auto", "shell"),
}
_USAGE_OF_APPROVE = (
    "/approve ask shell|ask all|deny|auto says what the agent may run;"
    " /approve allow PATTERN lets commands run without asking, such as 'git status*';"
    " /approve forget [PATTERN] takes that back."
)
_USAGE_OF_CONTEXT = (
    "/context lists what the agent knows; /context drop NUMBER takes a block of code out,"
    " /context drop rNUMBER a request, /context clear all of it."
)
_TITLE_CHARS = 60


class DecisionCommands:
    """Does `/approve`, `/auto` and `/context`, on the thread that owns the terminal."""

    def __init__(self, runner: RequestRunner) -> None:
        self._runner = runner
        self._say = runner.display.say
        self.actions: dict[str, Callable[[str], None]] = {
            "approve": self._approve,
            "auto": self._auto,
            "context": self._context,
        }

    def describe(self) -> list[tuple[str, str]]:
        """Return what is set, for `/info`."""
        session = self._runner.session
        rules = session.approval.rules
        allowed = _allowed(rules)
        return [
            ("approve", rules.level + (f"; without asking: {allowed}" if allowed else "")),
            ("auto", session.settings.auto_send),
        ]

    def _approve(self, arguments: str) -> None:
        settings = self._runner.session.settings
        words = words_of(arguments)
        match words:
            case []:
                pass
            case ["allow", *patterns] if patterns:
                for pattern in patterns:
                    settings.allow(pattern)
            case ["forget"]:
                settings.forget_allowed()
            case ["forget", *patterns]:
                for pattern in patterns:
                    settings.forget_allowed(pattern)
            case _ if " ".join(words) in _LEVELS:
                settings.set_approval(*_LEVELS[" ".join(words)])
            case _:
                raise UsageError(_USAGE_OF_APPROVE)
        rules = self._runner.session.approval.rules
        allowed = _allowed(rules)
        shown = f" Without asking: {allowed}." if allowed and rules.mode == "ask" else ""
        self._say(rules.sentence + shown)

    def _auto(self, arguments: str) -> None:
        settings = self._runner.session.settings
        if arguments and arguments not in get_args(AutoSend):
            raise UsageError(
                "/auto on|next|off: whether what you run goes to the agent at once, with your next"
                " message, or not at all."
            )
        if arguments:
            settings.set_auto_send(cast(AutoSend, arguments))
        self._say(_AUTO_SEND[settings.auto_send])

    def _context(self, arguments: str) -> None:
        session = self._runner.session
        match arguments.split():
            case []:
                self._say(self._list_context())
            case ["clear"]:
                session.forget()
                self._say(
                    "The agent has forgotten what was said. Variables and files are still there."
                )
            case ["drop", *names] if names:
                for name in names:
                    self._drop(name.lower())
            case _:
                raise UsageError(_USAGE_OF_CONTEXT)

    def _drop(self, name: str) -> None:
        session = self._runner.session
        number = name.removeprefix("r")
        if not number.isdecimal():
            raise UsageError(_USAGE_OF_CONTEXT)
        if name.isdecimal():
            session.drop(session.code_blocks.get(int(number)).post_id)
            self._say(
                f"Block {number} and what came of it are taken out of what the agent knows; what"
                " it has said about it stays."
            )
            return
        requests = [item for item in session.known_items if item.kind == "request"]
        if not 0 < int(number) <= len(requests):
            raise UsageError(f"The agent knows no request {name}. /context lists them.")
        request = requests[int(number) - 1]
        assert request.round_id is not None
        session.drop_round(request.round_id)
        self._say("The request and all that came of it are taken out of what the agent knows.")

    def _list_context(self) -> str:
        session = self._runner.session
        items = session.known_items
        if not items:
            return "The agent knows nothing of this session yet."
        numbers = session.code_blocks.numbers()
        known = [item for item in items if not item.is_waiting]
        waiting = [item for item in items if item.is_waiting]
        lines = ["The agent knows:"] if known else []
        requests = 0
        for item in known:
            requests += item.kind == "request"
            label = f"r{requests}" if item.kind == "request" else _number(item, numbers)
            lines.append(f" {KNOWN} {label:>4}  {_title(item)}")
        if waiting:
            lines.append("With your next message it is told:")
        lines += [f" {KNOWN} {_number(item, numbers):>4}  {_title(item)}" for item in waiting]
        lines.append("/context drop NUMBER takes one out, /context clear all.")
        return "\n".join(lines)


def _number(item: KnownItem, numbers: Mapping[PostId, int]) -> str:
    return "" if item.post_id is None else str(numbers.get(item.post_id, ""))


def _title(item: KnownItem) -> str:
    """The first line of something, short."""
    first, _, rest = item.text.strip().partition("\n")
    is_cut = bool(rest) or len(first) > _TITLE_CHARS
    title = first[:_TITLE_CHARS] + (" …" if is_cut else "")
    return f"you: {title}" if item.kind == "request" else title


def _allowed(rules: ApprovalRules) -> str:
    """What runs without asking, in words."""
    return ", ".join([*map(describe_kind, rules.kinds), *rules.patterns])
