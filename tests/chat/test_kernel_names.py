"""Names and signatures from a live kernel."""

from __future__ import annotations

import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.results import ExecutionResult
from taskweaver_ext.chat.kernel_names import find_names


@pytest.mark.parametrize(
    ("code", "completed", "signature"),
    [
        ("print(very_spec", "print(very_special_name", ""),
        ("x = very_f", "x = very_fast", "(a, b=2)"),
        ("collections.Ord", "collections.OrderedDict", ""),
        ("import colle", "import collections", ""),
        ("very_special_name.bit_len", "very_special_name.bit_length", ""),
    ],
)
def test_what_lives_in_the_kernel_is_found(
    environment: Environment, code: str, completed: str, signature: str
) -> None:
    environment.execute_code(
        "s1", "import collections\nvery_special_name = 1\ndef very_fast(a, b=2): pass"
    )

    names = find_names(lambda source: environment.execute_code("s1", source, timeout=20), code)

    found = {code[: len(code) - name.replaces] + name.text: name.signature for name in names}
    assert completed in found
    if signature:
        assert found[completed] == signature


def test_completing_leaves_the_namespace_alone(environment: Environment) -> None:
    names = "print(sorted(name for name in globals() if not name.startswith('_')))"
    before = environment.execute_code("s1", names).stdout

    find_names(lambda source: environment.execute_code("s1", source, timeout=20), "pri")

    assert environment.execute_code("s1", names).stdout == before


def test_a_kernel_that_says_something_else_offers_nothing() -> None:
    def answer(code: str) -> ExecutionResult:
        result = ExecutionResult(execution_id="x", code=code)  # type: ignore[arg-type]  # any id
        result.stdout = ["not JSON"]
        return result

    assert find_names(answer, "pri") == []
