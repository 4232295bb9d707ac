"""What a session is made of: what it shares with others, its executors, its roles."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from taskweaver_ext.approval import Approval
from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.programs.languages import Language
from taskweaver_ext.config.settings import Config, ReplyForm
from taskweaver_ext.conversation import RoleName
from taskweaver_ext.errors import ConfigError
from taskweaver_ext.events.dispatcher import MAX_KEPT_BYTES
from taskweaver_ext.events.questions import Questions
from taskweaver_ext.llm.chat_model import ChatModel
from taskweaver_ext.plugins.registry import PluginRegistry
from taskweaver_ext.roles.base.role import (
    USER,
    Role,
    RoleContext,
    RoleEntry,
    RoleRegistry,
    find_role_class,
)
from taskweaver_ext.roles.code_interpreter.code_executor import CodeExecutor
from taskweaver_ext.roles.code_interpreter.code_interpreter import CodeInterpreter
from taskweaver_ext.roles.planner.planner import Planner
from taskweaver_ext.traces.traces import NoTraces, Traces


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionParts:
    """What all sessions of an application share."""

    config: Config
    environment: Environment
    plugins: PluginRegistry
    roles: RoleRegistry
    find_model: Callable[[str], ChatModel]
    languages: Mapping[str, Language]
    """Those that the project adds."""
    reply_form: ReplyForm = "json"
    traces: Traces = field(default_factory=NoTraces)
    kept_event_bytes: int = MAX_KEPT_BYTES
    """How much of the newest events each session keeps in memory."""


def make_executor(
    parts: SessionParts, context: RoleContext, cwd: Path, questions: Questions
) -> CodeExecutor:
    """Make what runs the code of one session in its working folder; nothing starts yet."""
    loads_plugins = parts.config.code_generator.load_plugin
    return CodeExecutor(
        parts.environment,
        context.session_id,
        context.session_dir,
        cwd,
        context.emitter,
        parts.plugins.without_plugin_only() if loads_plugins else (),
        context.cancellation,
        questions,
        plugin_problems=parts.plugins.problems if loads_plugins else (),
        languages=parts.languages,
        shell_init_script=_init_script(parts.config),
        traces=parts.traces,
    )


def _init_script(config: Config) -> str | None:
    """What each shell runs first: the text that is set, or that of the file which is named.

    It is read here, since a shell in a container does not see the file.
    """
    script = config.execution_service.shell_init_script
    if not script or "\n" in script:
        return script or None
    with contextlib.suppress(
        OSError, ValueError
    ):  # else it is a command, or bash says what is wrong
        path = config.app_base_dir / Path(script.strip()).expanduser()
        if path.is_file():
            return path.read_text(encoding="utf-8")
    return script


def make_roles(
    parts: SessionParts, context: RoleContext, executor: CodeExecutor, approval: Approval
) -> dict[RoleName, Role]:
    """Make the roles by alias; the one that hears the user first comes first.

    Raises:
        ConfigError: A role is unknown, or they do not fit together.
    """
    form = parts.reply_form
    workers: list[Role] = []
    planners: list[tuple[type[Planner], RoleEntry]] = []
    for entry in map(parts.roles.get, parts.config.session.roles):
        role_class = find_role_class(entry)
        if issubclass(role_class, Planner):
            planners.append((role_class, entry))  # made last: it is told of all the others
        elif issubclass(role_class, CodeInterpreter):
            workers.append(role_class(entry, context, executor, approval, form))
        else:
            workers.append(role_class(entry, context))
    if len(planners) > 1 or (not planners and len(workers) != 1):
        raise ConfigError("session.roles needs one planner, or exactly one other role.")
    leads = [kind(entry, context, workers, form) for kind, entry in planners]
    roles: dict[RoleName, Role] = {}
    for role in (*leads, *workers):
        if role.alias in (USER, *roles):
            raise ConfigError(f"session.roles: another one is called {role.alias!r} already.")
        roles[role.alias] = role
    return roles
