"""The package exports what it promises, and pays for nothing before it is asked for."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import taskweaver_ext
from taskweaver_ext import errors
from taskweaver_ext.ces.execution import events

PROMISED = {
    "Approval",
    "Attachment",
    "AsyncRemoteSession",
    "AttachmentType",
    "Cell",
    "Completion",
    "Completions",
    "choose_tools",
    "ChannelEvent",
    "ChannelParser",
    "ChannelSubscriptions",
    "ChatModel",
    "ContainerLimits",
    "ContainerSettings",
    "Display",
    "Environment",
    "EnvMode",
    "event_from_json",
    "event_to_json",
    "EventScope",
    "ExecutionArtifact",
    "ExecutionEvent",
    "ExecutionResult",
    "ExecutionStatus",
    "ExecutorRegistry",
    "ExecWidget",
    "GatewaySettings",
    "Inspection",
    "JsonStringStream",
    "KernelContents",
    "KernelDeath",
    "KernelPeek",
    "Language",
    "Notice",
    "OutputBatcher",
    "Plugin",
    "PluginContext",
    "Post",
    "PostEventProxy",
    "PostEventType",
    "ProcessExecutor",
    "ProgramLimits",
    "PythonCallResult",
    "PythonTool",
    "RunningCode",
    "StackLine",
    "Variable",
    "register_plugin",
    "Memory",
    "RemoteRound",
    "RemoteSession",
    "RestoredVariables",
    "Role",
    "Round",
    "RoundEventType",
    "SandboxSettings",
    "SavedVariables",
    "ScriptedModel",
    "Session",
    "SessionEventEmitter",
    "SessionEventHandler",
    "SessionEventHandlerBase",
    "SessionEventType",
    "SessionInfo",
    "ShellExecutor",
    "StopStream",
    "Submitted",
    "TaskWeaverApp",
    "TaskWeaverEvent",
    "ToolChoice",
    "test_plugin",
}
PROMISED_EVENTS = {
    name
    for name, value in vars(events).items()
    if isinstance(value, type) and value.__module__ == events.__name__
}
PROMISED_ERRORS = {
    name
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, errors.TaskWeaverError)
}


def test_what_was_promised_is_exported_and_nothing_else() -> None:
    assert set(taskweaver_ext.__all__) == PROMISED | PROMISED_EVENTS | PROMISED_ERRORS


def modules_by_name() -> dict[str, str]:
    """Return where type checkers are told to find each exported name."""
    tree = ast.parse(Path(str(taskweaver_ext.__file__)).read_text(encoding="utf-8"))
    [block] = [
        node
        for node in tree.body
        if isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    ]
    return {
        alias.asname: str(statement.module)
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
        if alias.asname == alias.name
    }


def test_type_checkers_see_the_names_that_are_exported() -> None:
    assert sorted(modules_by_name()) == taskweaver_ext.__all__


@pytest.mark.parametrize(("name", "module"), modules_by_name().items())
def test_an_exported_name_is_what_type_checkers_find(name: str, module: str) -> None:
    assert getattr(taskweaver_ext, name) is getattr(importlib.import_module(module), name)


def test_names_are_listed_before_they_are_used_and_unknown_ones_are_refused() -> None:
    assert set(taskweaver_ext.__all__) <= set(dir(taskweaver_ext))
    with pytest.raises(AttributeError, match="has no attribute 'Enviroment'"):
        _ = taskweaver_ext.Enviroment  # type: ignore[attr-defined]  # misspelled on purpose


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import json, sys; import taskweaver_ext; print(json.dumps(sorted(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(taskweaver_ext.__path__[0]).parent,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    loaded = json.loads(result.stdout)

    assert [name for name in loaded if name.startswith("taskweaver_ext")] == ["taskweaver_ext"]
    heavy = {"IPython", "asyncio", "click", "docker", "ipykernel", "openai", "rich", "zmq"}
    assert heavy & set(loaded) == set()


def test_plugin_decorators_give_back_what_they_mark_with_its_type() -> None:
    @taskweaver_ext.register_plugin
    class Twice(taskweaver_ext.Plugin):
        def __call__(self, number: int) -> int:
            return 2 * number

    @taskweaver_ext.test_plugin(name="doubles")
    def doubles(twice: Twice) -> None:
        assert twice(2) == 4

    plugin: Twice = Twice("twice", ctx=None, config={})  # type: ignore[arg-type]  # not used
    doubles(plugin)
