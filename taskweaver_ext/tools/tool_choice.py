"""Which tools an agent is given: Python, bash, or both, as far as this machine can."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from taskweaver_ext.config import variables
from taskweaver_ext.config.variables import ToolMode
from taskweaver_ext.machine.child_environment import child_environment
from taskweaver_ext.machine.interpreters import explain_why_unusable, find_python

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChoice:
    """The tools for one session."""

    mode: ToolMode
    notice: str = ""
    """Why it is not what was asked for; empty when it is."""

    @property
    def offers_python(self) -> bool:
        """Whether the agent may call `PythonTool`."""
        return self.mode != "bash"

    @property
    def offers_bash(self) -> bool:
        """Whether the agent may call a shell."""
        return self.mode != "python"


def choose_tools(
    mode: ToolMode = "both",
    *,
    python: str | None = None,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
) -> ToolChoice:
    """Choose the tools, after a look whether kernels can run at all.

    `TASKWEAVER_PY` beats `mode`. Where Python cannot run kernels, bash is what is left, and the
    choice says so; with `TASKWEAVER_PYTHON_SKIP_CHECK` there is no such look.

    Args:
        python: The interpreter that is configured; found as for kernels when None.
        cwd: Where code is going to run; by default the current folder.
        env: Variables for kernels, besides the harmless ones of ours.
    """
    wanted = variables.tool_mode() or mode
    if wanted == "bash" or variables.skips_python_check():
        return ToolChoice(mode=wanted)
    environment = child_environment(env)
    interpreter = find_python(python, Path(cwd) if cwd is not None else Path.cwd(), environment)
    problem = explain_why_unusable(interpreter, environment)
    if problem is None:
        return ToolChoice(mode=wanted)
    notice = f"The Python tool is not available, only bash is: {problem}"
    _log.warning("%s", notice)
    return ToolChoice(mode="bash", notice=notice)
