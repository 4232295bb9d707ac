"""What may run without asking."""

from __future__ import annotations

import pytest

from taskweaver_ext.approval import Approval, ApprovalAnswer, ApprovalRequest, CodeToRun
from taskweaver_ext.approval.rules import covers, propose_pattern
from taskweaver_ext.config.settings import ApprovalMode


class Person:
    """Answers every question in the same way, and remembers them."""

    def __init__(self, answer: ApprovalAnswer) -> None:
        self.answer = answer
        self.requests: list[ApprovalRequest] = []

    def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.requests.append(request)
        return self.answer


def test_shell_code_is_asked_for_and_verified_code_is_not() -> None:
    person = Person(ApprovalAnswer(True))
    approval = Approval(ask=person.ask)

    python = approval.decide("python", "print(1)", is_verified=True)
    shell = approval.decide("bash", "ls", is_verified=False, reasons=["It is shell."])
    node = approval.decide("javascript", "1", is_verified=False)

    assert all(answer.is_approved for answer in (python, shell, node))
    assert [(one.language, one.code) for one in person.requests] == [
        ("bash", "ls"),
        ("javascript", "1"),
    ]
    assert person.requests[0].reasons == ("It is shell.",)


def test_a_person_can_say_no_or_change_the_code() -> None:
    no = Approval(ask=Person(ApprovalAnswer(False, reason="not today")).ask)
    edited = Approval(ask=Person(ApprovalAnswer(True, "ls -l")).ask)

    refused = no.decide("bash", "rm x", is_verified=False)
    assert refused == ApprovalAnswer(
        False, reason="The user refused to run this code. The user said: not today"
    )
    assert edited.decide("bash", "ls", is_verified=False).code == "ls -l"


def test_without_a_person_to_ask_it_is_denied() -> None:
    answer = Approval().decide("bash", "ls", is_verified=False)

    assert not answer.is_approved
    assert not answer.is_final
    assert "nobody can be asked" in answer.reason


def test_a_frontend_that_fails_denies() -> None:
    def fail(request: ApprovalRequest) -> ApprovalAnswer:
        raise OSError("no terminal")

    assert not Approval(ask=fail).decide("bash", "ls", is_verified=False).is_approved


def test_modes() -> None:
    assert Approval("auto").decide("bash", "rm -rf x", is_verified=False).is_approved
    assert (
        not Approval("deny").decide("bash", "ls", is_verified=False, is_contained=True).is_approved
    )
    assert not Approval("deny").decide("python", "1", is_verified=True).is_approved
    assert not Approval("ask", scope="all").decide("python", "1", is_verified=True).is_approved


def test_what_runs_in_a_container_need_not_ask() -> None:
    assert Approval().decide("bash", "ls", is_verified=False, is_contained=True).is_approved
    asked = Approval(scope="all").decide("bash", "ls", is_verified=False, is_contained=True)
    assert not asked.is_approved


@pytest.mark.parametrize("command", ["git status", "git diff --stat", "ls", "  ls  "])
def test_patterns_are_always_allowed(command: str) -> None:
    approval = Approval(always_allowed=["git *", "ls"])

    assert approval.decide("bash", command, is_verified=False).is_approved


@pytest.mark.parametrize(
    "command",
    [
        "git status; rm -rf /",
        "git status && rm x",
        "git log | sh",
        "git $(rm x)",
        "git `rm x`",
        "git status\nrm x",
        "git log > /etc/passwd",
        "rm x",
        "lsof",
        "",
    ],
)
def test_patterns_do_not_let_a_second_command_pass(command: str) -> None:
    approval = Approval(always_allowed=["git *", "ls"])

    assert not approval.decide("bash", command, is_verified=False).is_approved


def test_patterns_are_for_the_shell_only() -> None:
    approval = Approval(always_allowed=["*"])

    assert not approval.decide("javascript", "1", is_verified=False).is_approved


@pytest.mark.parametrize("mode", ["ask", "auto", "deny"])
@pytest.mark.parametrize("has_person", [True, False])
@pytest.mark.parametrize("is_contained", [True, False])
def test_what_a_model_is_told_beforehand_is_what_happens(
    mode: ApprovalMode, has_person: bool, is_contained: bool
) -> None:
    asked: list[ApprovalRequest] = []

    def ask(request: ApprovalRequest) -> ApprovalAnswer:
        asked.append(request)
        return ApprovalAnswer(True)

    approval = Approval(mode, ask=ask if has_person else None)
    told = approval.outlook(is_contained=is_contained)

    answer = approval.decide("bash", "ls", is_verified=False, is_contained=is_contained)

    assert answer.is_approved == (told != "refused")
    assert bool(asked) == (told == "asks")


@pytest.mark.parametrize(
    ("command", "pattern"),
    [
        ("git status", "git status*"),
        ("git status -s", "git status*"),
        ("ls", "ls"),
        ("ls -la", "ls -la"),
        ("find . -name x", "find . -name x"),
        ("ssh host ls", "ssh host ls"),
        ("sudo rm x", "sudo rm x"),
        ("ls | wc", "ls | wc"),
        ("cat a > b", "cat a > b"),
        ("rm *", ""),
        ("git add *.py", ""),
        ("echo a\necho b", ""),
    ],
)
def test_what_is_proposed_allows_no_more_than_it_seems_to(command: str, pattern: str) -> None:
    wanted = CodeToRun(language="bash", code=command, is_verified=False)

    assert propose_pattern(wanted) == pattern
    assert not pattern or covers(pattern, command)


def test_a_star_alone_stands_for_other_text() -> None:
    assert covers("ls [ab]?", "ls [ab]?")
    assert not covers("ls [ab]?", "ls ax")
    assert covers("grep [ab]? *", "grep [ab]? file")
    assert not covers("grep [ab]? *", "grep ax file")
