"""A kernel says what code would find in it, and nothing of that costs anything."""

from __future__ import annotations

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.results import ExecutionStatus, KernelContents
from tests.support.executions import LIMIT_SECONDS, run

CODE = """
import json
total, names, _hidden = 3, ["a", "b"], 1
def mean(values, weights=None): ...
class Sale: ...
sale = Sale()
globals()[5] = "no name"
"""

PLUGIN = """
from taskweaver.plugin import register_plugin

@register_plugin
def told_elsewhere():
    pass
"""


def variables(environment: Environment) -> dict[str, str]:
    contents = environment.kernel_contents("s1")
    assert contents is not None
    return dict(contents.variables)


def test_variables_are_told_with_their_kinds(environment: Environment) -> None:
    assert variables(environment) == {}
    environment.load_plugin("s1", "told_elsewhere", PLUGIN)

    run(environment, CODE)

    assert variables(environment) == {
        "json": "module",
        "total": "int",
        "names": "list of 2",
        "mean": "function(values, weights)",
        "Sale": "type",
        "sale": "Sale",
    }


def test_looking_runs_no_code_and_counts_as_no_cell(environment: Environment) -> None:
    run(environment, "class Loud:\n    def __getattribute__(self, name): print('looked at')")
    run(environment, "loud = Loud()")

    assert variables(environment)["loud"] == "Loud"
    assert run(environment, "len(In)").result.output == "4"  # an empty one, and three cells


def test_of_many_variables_the_latest_are_told(environment: Environment) -> None:
    run(environment, "for number in range(1000): globals()[f'v{number}'] = number")

    contents = environment.kernel_contents("s1")

    assert contents is not None
    assert contents.variable_count == 1001
    assert len(contents.variables) < 100
    assert contents.variables[-1] == ("v999", "int")


def test_a_kernel_that_died_says_nothing_and_its_loss_is_still_told(
    environment: Environment,
) -> None:
    died = environment.execute_code("s1", "import os; os._exit(1)", timeout=LIMIT_SECONDS)
    assert died.status is ExecutionStatus.DIED

    assert environment.kernel_contents("s1") is None
    assert [notice.kind for notice in run(environment, "1").result.notices] == ["restarted"]


def test_what_makes_no_sense_is_not_believed() -> None:
    assert KernelContents.from_json("") is None
    assert KernelContents.from_json('{"python": "3"}') is None
    assert KernelContents.from_json("[" * 100_000) is None
