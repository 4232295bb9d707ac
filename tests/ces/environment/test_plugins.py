"""Plugins written for TaskWeaver run in our kernels, and are heard while they do."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.events import ArtifactProduced, ExecutionEvent, LogRecorded
from taskweaver_ext.ces.execution.results import ExecutionStatus
from taskweaver_ext.errors import PluginError
from tests.support.executions import LIMIT_SECONDS, run

CLASS_PLUGIN = """
import pathlib, time
from taskweaver.plugin import Plugin, register_plugin, test_plugin

@register_plugin
class Reporter(Plugin):
    def __call__(self, gate=None):
        self.log("info", f"session {self.ctx.get_session_var('user', 'nobody')}")
        print("printed")
        artifact_id = self.ctx.add_artifact("notes", "notes.txt", "txt", "hello")
        while gate and not pathlib.Path(gate).exists():
            time.sleep(0.01)
        return self.config["unit"], self.ctx.execution_id

@test_plugin(name="works", description="returns two things")
def check(reporter):
    assert len(reporter()) == 2
"""

FUNCTION_PLUGIN = """
from taskweaver.plugin import register_plugin

@register_plugin
def double(x: int) -> int:
    "Twice as much."
    return 2 * x
"""

CONTEXT_PLUGIN = """
from taskweaver.plugin import register_plugin

@register_plugin
def tell(ctx, what):
    ctx.log("warning", "tell", what)
"""


def test_a_plugin_is_heard_while_it_runs(environment: Environment, tmp_path: Path) -> None:
    environment.load_plugin("s1", "reporter", CLASS_PLUGIN, {"unit": "kg"})
    environment.update_session_var("s1", {"user": "ada"})
    gate = tmp_path / "session" / "cwd" / "gate"
    events: list[ExecutionEvent] = []

    def open_gate_at_the_artifact(event: ExecutionEvent) -> None:
        events.append(event)
        if isinstance(event, ArtifactProduced):
            gate.touch()

    result = environment.execute_code(
        "s1",
        f"reporter({str(gate)!r})",
        exec_id="e1",
        on_event=open_gate_at_the_artifact,
        timeout=LIMIT_SECONDS,
    )

    assert result.output == "('kg', 'e1')"
    assert result.log == [("info", "Plugin-reporter", "session ada")]
    assert any(isinstance(e, LogRecorded) for e in events)
    (artifact,) = result.artifact
    assert (artifact.name, artifact.original_name) == ("notes", "notes.txt")
    assert Path(artifact.file_name).read_text() == "hello"
    # In the working directory, or where files are kept that came in messages.
    assert Path(artifact.file_name).is_relative_to(tmp_path / "session")


def test_a_plugin_reads_its_own_variables(tmp_path: Path) -> None:
    source = """
from taskweaver.plugin import Plugin, register_plugin

@register_plugin
class Where(Plugin):
    def __call__(self):
        return self.get_env("REGION")
"""
    with Environment(tmp_path, env={"PLUGIN_where_REGION": "north"}) as environment:
        environment.start_session("s1")
        environment.load_plugin("s1", "where", source)

        assert environment.execute_code("s1", "where()").output == "'north'"


def test_functions_are_plugins_too(environment: Environment) -> None:
    environment.load_plugin("s1", "double", FUNCTION_PLUGIN)
    environment.load_plugin("s1", "tell", CONTEXT_PLUGIN)

    result = environment.execute_code("s1", "tell('careful'); double(21)")

    assert result.output == "42"
    assert result.log == [("warning", "tell", "careful")]


def test_a_plugins_own_tests_are_run(environment: Environment) -> None:
    environment.load_plugin("s1", "reporter", CLASS_PLUGIN, {"unit": "kg"})
    environment.test_plugin("s1", "reporter")

    environment.load_plugin("s1", "reporter", CLASS_PLUGIN.replace("== 2", "== 4"), {"unit": "kg"})
    with pytest.raises(PluginError, match="(?s)test plugin 'reporter' failed.*AssertionError"):
        environment.test_plugin("s1", "reporter")


def test_an_unloaded_plugin_is_gone(environment: Environment) -> None:
    environment.load_plugin("s1", "double", FUNCTION_PLUGIN)
    environment.unload_plugin("s1", "double")

    assert "NameError" in (environment.execute_code("s1", "double(1)").error or "")
    with pytest.raises(PluginError, match="not loaded"):
        environment.unload_plugin("s1", "double")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("def broken(:", "SyntaxError"),
        ("x = 1", "registers 0 implementations"),
    ],
)
def test_a_bad_plugin_is_refused_with_its_reason(
    environment: Environment, source: str, reason: str
) -> None:
    with pytest.raises(PluginError, match=reason):
        environment.load_plugin("s1", "bad", source)

    assert environment.execute_code("s1", "1").output == "1"


def test_restart_loads_the_plugins_again(environment: Environment) -> None:
    environment.load_plugin("s1", "double", FUNCTION_PLUGIN)
    environment.execute_code("s1", "x = 1")

    environment.restart_session("s1")

    assert environment.execute_code("s1", "double(2), 'x' in dir()").output == "(4, False)"


def test_a_promised_path_is_announced_at_the_end(environment: Environment) -> None:
    source = """
from taskweaver.plugin import Plugin, register_plugin

@register_plugin
class Save(Plugin):
    def __call__(self):
        _, path = self.ctx.create_artifact_path("made", "made.csv", "df", "a table")
        open(path, "w").write("a,b\\n")
        self.ctx.create_artifact_path("never", "never.csv", "df", "not written")
"""
    environment.load_plugin("s1", "save", source)

    result = environment.execute_code("s1", "save()")

    assert [(a.name, a.mime_type) for a in result.artifact] == [("made", "text/csv")]


@pytest.mark.parametrize("path", ["/etc/passwd", "../../../etc/passwd", "link", "/dev/null", "sub"])
def test_a_forged_artifact_cannot_reach_outside_the_session(
    environment: Environment, path: str
) -> None:
    code = f"""
import os
from IPython.display import display
os.symlink("/etc/passwd", "link"); os.mkdir("sub")
display({{"application/vnd.taskweaver.artifact+json":
         {{"id": "x", "name": "x", "type": "file", "path": {path!r}}}}}, raw=True)
"""

    heard = run(environment, code)

    assert heard.result.status is ExecutionStatus.SUCCESS
    assert heard.result.artifact == []
    assert path in heard.result.notices[0].message
