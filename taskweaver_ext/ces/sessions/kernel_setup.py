"""What every kernel of a session has besides Python: the startup scripts and the plugins.

A kernel is replaced now and then; what belongs into it is remembered here and
put into the next one. What fails there is reported and stops nothing; what
took a kernel down is left out of those that follow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeAlias

from taskweaver_ext.ces.execution.cancellation import CancellationToken
from taskweaver_ext.ces.execution.results import ExecutionResult, Notice
from taskweaver_ext.ces.sessions.startup_scripts import (
    SCRIPT_SECONDS,
    StartupScript,
    StartupScripts,
)
from taskweaver_ext.errors import PluginError

_log = logging.getLogger(__name__)


AskRuntime: TypeAlias = Callable[
    [str, dict[str, Any], CancellationToken, float | None], ExecutionResult
]
"""Has the kernel's runtime do a command with arguments, and waits, for so many seconds at most."""


class KernelSetup:
    """The scripts and plugins of one session; used by the thread whose turn it is."""

    def __init__(
        self,
        session_id: str,
        scripts: StartupScripts,
        ask_runtime: AskRuntime,
        is_dead: Callable[[], bool],
    ) -> None:
        self._session_id = session_id
        self._scripts = scripts
        self._ask_runtime = ask_runtime
        self._is_dead = is_dead
        """Whether the kernel died of the last thing it was asked to do."""
        self._plugins: dict[str, dict[str, Any]] = {}
        self._left_out: set[str] = set()
        self._notices: list[Notice] = []

    def install(self) -> bool:
        """Put everything into a fresh kernel; False when that took it down."""
        for script in self._scripts.read():
            if script.label not in self._left_out and not self._run_script(script):
                return False
        return all(
            self._load_again(f"plugin {name!r}", plugin) for name, plugin in self._plugins.items()
        )

    def pop_notices(self) -> list[Notice]:
        """What failed since the last call."""
        notices, self._notices = self._notices, []
        return notices

    def load_plugin(
        self, name: str, source: str, config: dict[str, Any], token: CancellationToken
    ) -> None:
        """Load a plugin and remember it for the kernels to come; raises PluginError."""
        plugin = {"name": name, "source": source, "config": config}
        self._command("load_plugin", plugin, token)
        self._plugins[name] = plugin
        self._left_out.discard(f"plugin {name!r}")

    def unload_plugin(self, name: str, token: CancellationToken) -> None:
        """Take a plugin out of the kernel, and forget it; raises PluginError."""
        self._plugins.pop(name, None)
        self._command("unload_plugin", {"name": name}, token)

    def test_plugin(self, name: str, token: CancellationToken) -> None:
        """Run a plugin's tests; raises PluginError when one fails."""
        self._command("test_plugin", {"name": name}, token)

    def _run_script(self, script: StartupScript) -> bool:
        problem = script.problem
        if not problem:
            result = self._ask_runtime(
                "run_script", script.arguments(), CancellationToken(), SCRIPT_SECONDS
            )
            problem = self._problem_of(script.label, result)
        if problem:
            self._report(f"At the start of the kernel {script.label} failed: {problem}")
        return self._has_survived(script.label)

    def _load_again(self, label: str, plugin: dict[str, Any]) -> bool:
        if label in self._left_out:
            return True
        result = self._ask_runtime("load_plugin", plugin, CancellationToken(), None)
        if problem := self._problem_of(label, result):
            self._report(f"At the start of the kernel {label} could not be loaded: {problem}")
        return self._has_survived(label)

    def _has_survived(self, label: str) -> bool:
        if self._is_dead():
            self._left_out.add(label)
            return False
        return True

    def _problem_of(self, label: str, result: ExecutionResult) -> str:
        """Why something failed, in a line; the rest is in the log."""
        if result.is_success:
            return ""
        _log.warning("%s failed:\n%s", label, result.error)
        return (result.error or result.status.value).strip().splitlines()[-1]

    def _report(self, message: str) -> None:
        _log.warning("session %s: %s", self._session_id, message)
        self._notices.append(Notice(kind="host", message=message))

    def _command(self, command: str, arguments: dict[str, Any], token: CancellationToken) -> None:
        result = self._ask_runtime(command, arguments, token, None)
        if not result.is_success:
            raise PluginError(
                f"{command.replace('_', ' ')} {arguments['name']!r} failed in session"
                f" {self._session_id!r}: {result.error}"
            )
