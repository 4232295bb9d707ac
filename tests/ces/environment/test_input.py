"""`input()` and `getpass()` are answered by the caller, or fail at once."""

from __future__ import annotations

import threading

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.events import ExecutionEvent, InputRequested, InputSettled
from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus
from tests.support.executions import DIE_ON_A_THREAD, LIMIT_SECONDS, run, with_enough_time


def test_input_and_getpass_are_answered(environment: Environment) -> None:
    asked: list[tuple[str, bool]] = []
    events: list[ExecutionEvent] = []

    def answer(prompt: str, password: bool) -> str:
        asked.append((prompt, password))
        return "secret" if password else "Ada"

    result = environment.execute_code(
        "s1",
        "import getpass; print(input('name? '), getpass.getpass('key? '))",
        on_input=answer,
        on_event=events.append,
        timeout=LIMIT_SECONDS,
    )

    assert asked == [("name? ", False), ("key? ", True)]
    assert "".join(result.stdout) == "Ada secret\n"
    questions = [e for e in events if isinstance(e, (InputRequested, InputSettled))]
    assert [type(e) for e in questions] == [InputRequested, InputSettled] * 2


def test_without_an_answerer_input_fails_at_once(environment: Environment) -> None:
    for call in ("input('x')", "__import__('getpass').getpass()"):
        result = environment.execute_code("s1", call, timeout=LIMIT_SECONDS)

        assert result.status is ExecutionStatus.ERROR
        assert "nobody is there to answer" in (result.error or "")
    assert environment.execute_code("s1", "1").output == "1"


def test_output_comes_before_the_question(environment: Environment) -> None:
    order: list[str] = []

    def answer(prompt: str, _password: bool) -> str:
        order.append(prompt)
        return "y"

    for _ in range(5):
        order.clear()
        environment.execute_code(
            "s1",
            "print('first'); input('then?')",
            on_output=lambda _, text: order.append(text),
            on_input=answer,
            timeout=LIMIT_SECONDS,
        )
        assert "".join(order) == "first\nthen?"


def test_an_answerer_that_raises_is_end_of_input(environment: Environment) -> None:
    def refuse(_prompt: str, _password: bool) -> str:
        raise EOFError

    result = environment.execute_code("s1", "input()", on_input=refuse, timeout=LIMIT_SECONDS)

    assert "EOFError" in (result.error or "")


def test_the_clock_stands_still_while_a_question_is_open(environment: Environment) -> None:
    def run_for(seconds: float) -> ExecutionResult:
        def think(_prompt: str, _password: bool) -> str:
            threading.Event().wait(2 * seconds)
            return "42"

        return environment.execute_code("s1", "print(input())", on_input=think, timeout=seconds)

    result = with_enough_time(run_for, lambda result: result.is_success)

    assert result.status is ExecutionStatus.SUCCESS
    assert "".join(result.stdout) == "42\n"


def test_an_open_question_is_cancelled_by_an_interrupt(environment: Environment) -> None:
    thinking = threading.Event()
    events: list[ExecutionEvent] = []

    def never_answer(_prompt: str, _password: bool) -> str:
        environment.interrupt("s1")
        thinking.wait(LIMIT_SECONDS)
        return ""

    result = environment.execute_code(
        "s1", "input()", on_input=never_answer, on_event=events.append, timeout=LIMIT_SECONDS
    )
    thinking.set()

    assert result.status is ExecutionStatus.CANCELLED
    assert [e.outcome for e in events if isinstance(e, InputSettled)] == ["cancelled"]
    assert run(environment, "print('on')").text() == "on\n"


def test_an_open_question_is_cancelled_by_the_death_of_the_kernel(environment: Environment) -> None:
    thinking = threading.Event()
    code = f"{DIE_ON_A_THREAD}\ninput()"

    def never_answer(_prompt: str, _password: bool) -> str:
        thinking.wait(LIMIT_SECONDS)
        return ""

    result = environment.execute_code("s1", code, on_input=never_answer, timeout=LIMIT_SECONDS)
    thinking.set()

    assert result.status is ExecutionStatus.DIED
