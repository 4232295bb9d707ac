"""The roles of a conversation: their base class, and what they are given.

A role of one's own is a class derived from `Role` and a file `<name>.role.yaml`:

    alias: Echo
    module: echo.Echo
    intro: |-
      - Echo repeats what it is told.

`module` names a class: in a file beside the YAML file, or in an installed
package. `roles/echo` shows all there is to it.
"""

from __future__ import annotations

import abc
import importlib
import importlib.util
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import cast

from taskweaver_ext.config.data_files import DataFileError
from taskweaver_ext.config.settings import Config
from taskweaver_ext.config.yaml_files import read_yaml
from taskweaver_ext.conversation import Post, PostId, RoleName, Round, RoundId
from taskweaver_ext.errors import ConfigError
from taskweaver_ext.events.emitter import SessionEventEmitter
from taskweaver_ext.events.extras import MemoryExtra
from taskweaver_ext.events.types import TaskWeaverEvent
from taskweaver_ext.llm.chat_model import ChatModel
from taskweaver_ext.roles.base.cancellation import Cancellation
from taskweaver_ext.roles.base.token_count import TokenCounter
from taskweaver_ext.text.redaction import Redactor
from taskweaver_ext.traces.traces import NoTraces, Traces

USER: RoleName = "User"
PLANNER: RoleName = "Planner"

_SUFFIX = ".role.yaml"


@dataclass(slots=True)
class Memory:
    """What was said in a session, oldest round first; the last one is the current one."""

    rounds: list[Round] = field(default_factory=list)

    @property
    def current_round(self) -> Round:
        """The round that is under way."""
        return self.rounds[-1]

    @property
    def last_post(self) -> Post:
        """What is to be answered."""
        return self.current_round.post_list[-1]

    def rounds_of(self, alias: RoleName) -> list[Round]:
        """Return the rounds that concern a role, with the posts from and to it alone."""
        rounds: list[Round] = []
        for one in self.rounds:
            posts = [post for post in one.post_list if alias in (post.send_from, post.send_to)]
            if posts:
                rounds.append(Round(one.id, one.user_query, one.state, posts))
        return rounds

    def corrections_of(self, alias: RoleName) -> int:
        """Count how often a role has just spoken to itself, which is how it tries again."""
        count = 0
        for post in reversed(self.current_round.post_list):
            if not post.send_from == post.send_to == alias:
                break
            count += 1
        return count

    def asker_of(self, alias: RoleName) -> RoleName:
        """Return the role that waits for an answer: the last other one that spoke to this one."""
        for post in reversed(self.current_round.post_list):
            if post.send_to == alias != post.send_from:
                return post.send_from
        return USER


@dataclass(frozen=True, slots=True)
class RoleMemory:
    """What a role knows of earlier rounds besides the rounds themselves."""

    summary: str = ""
    covered_rounds: tuple[RoundId, ...] = ()
    """Those that the summary stands for."""
    room_share: float = 1.0
    """How much of the room that its model should have is used, after the model refused more."""

    @staticmethod
    def from_event(event: TaskWeaverEvent) -> RoleMemory:
        """Read what a `session_memory_update` says of a role."""
        details = cast(MemoryExtra, event.extra)
        share = details.get("room_share", 1.0)
        return RoleMemory(event.msg, tuple(details["covered_rounds"]), share)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleContext:
    """What a session gives to each of its roles."""

    session_id: str
    session_dir: Path
    emitter: SessionEventEmitter
    config: Config
    find_model: Callable[[str], ChatModel]
    """The model of an alias of `ext_llms.llm_configs`; of `llm.*` when the alias is empty."""
    cancellation: Cancellation
    usage: TokenCounter
    redactor: Redactor | None = None
    traces: Traces = field(default_factory=NoTraces)
    block_number: Callable[[PostId], int | None] = lambda _post_id: None
    """The number of the code block in a post of the current round."""

    def masked(self, text: str) -> str:
        """Return a text that no person typed without the secrets in it."""
        return text if self.redactor is None else self.redactor.redact(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleEntry:
    """One role, as its YAML file describes it."""

    name: str
    """As `session.roles` spells it."""
    alias: RoleName
    """How it is addressed."""
    module: str
    intro: str
    """What the planner is told about it."""
    folder: Path


class Role(abc.ABC):
    """A participant of a conversation that answers posts.

    The session makes one instance per role, calls `reply` whenever a post is
    addressed to it, one at a time, and `close` once at the end. In a session that an earlier
    process began, `restore` comes first if the role has told what it knows of earlier rounds.
    """

    def __init__(self, entry: RoleEntry, context: RoleContext) -> None:
        self.entry = entry
        self.context = context

    @property
    def alias(self) -> RoleName:
        """How the role is addressed."""
        return self.entry.alias

    @property
    def intro(self) -> str:
        """What the planner is told about the role."""
        return self.entry.intro

    @abc.abstractmethod
    def reply(self, memory: Memory) -> Post:
        """Answer the last post of the current round.

        Make the answer with `context.emitter.create_post_proxy`, so that every frontend
        shows it grow; a post of a role to itself asks for another call.

        Raises:
            TaskWeaverError: The round cannot go on; its message says why.
        """

    def restore(self, memory: RoleMemory) -> None:
        """Go on with what the role knew in an earlier process; called before any `reply`."""
        return

    def forget(self, rounds: Collection[RoundId]) -> None:
        """Let go of what the role has made of earlier rounds: something was taken out of them."""
        return

    def close(self) -> None:
        """Let go of what the role holds."""
        return


class RoleRegistry:
    """The roles that can take part, by the name of their YAML file."""

    def __init__(self, entries: Iterable[RoleEntry]) -> None:
        self._entries = {entry.name: entry for entry in entries}

    @classmethod
    def load(cls, *folders: Path) -> RoleRegistry:
        """Read the role files in and below folders; a later one replaces an earlier one."""
        paths = [path for folder in folders for path in sorted(folder.rglob(f"*{_SUFFIX}"))]
        return cls(map(read_role, paths))

    def __iter__(self) -> Iterator[RoleEntry]:
        return iter(self._entries.values())

    def get(self, name: str) -> RoleEntry:
        """Return the role called `name`.

        Raises:
            ConfigError: There is none.
        """
        if name not in self._entries:
            known = ", ".join(sorted(self._entries))
            raise ConfigError(
                f"session.roles names {name!r}, which is unknown. Known are: {known}."
            )
        return self._entries[name]


def read_role(path: Path) -> RoleEntry:
    """Read one role's YAML file.

    Raises:
        ConfigError: It cannot be read, or lacks something; the message names the file.
    """
    try:
        content = read_yaml(path)
    except (OSError, DataFileError) as error:
        raise ConfigError(f"{path} cannot be read as YAML: {error}") from error
    texts = {
        name: content.get(name) if isinstance(content, dict) else None
        for name in ("alias", "module", "intro")
    }
    missing = [name for name, text in texts.items() if not isinstance(text, str) or not text]
    if missing:
        raise ConfigError(f"{path} must hold {', '.join(missing)} as text.")
    return RoleEntry(
        name=path.name.removesuffix(_SUFFIX),
        alias=str(texts["alias"]),
        module=str(texts["module"]),
        intro=str(texts["intro"]),
        folder=path.parent,
    )


def find_role_class(entry: RoleEntry) -> type[Role]:
    """Return the class that a role's file names.

    Raises:
        ConfigError: It cannot be imported, or is no role.
    """
    module_name, _, class_name = entry.module.rpartition(".")
    try:
        role_class = getattr(_find_module(entry, module_name), class_name, None)
    except Exception as error:  # the file is the project's own and may raise anything
        raise ConfigError(
            f"Role {entry.name!r}: {entry.module} cannot be imported:"
            f" {type(error).__name__}: {error}"
        ) from error
    if not isinstance(role_class, type) or not issubclass(role_class, Role):
        raise ConfigError(f"Role {entry.name!r}: {entry.module} is no class derived from Role.")
    return role_class


def _find_module(entry: RoleEntry, module_name: str) -> ModuleType:
    path = entry.folder / f"{module_name}.py"
    if "." in module_name or not path.is_file():
        return importlib.import_module(module_name)
    name = f"taskweaver_role_{entry.name}_{module_name}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
