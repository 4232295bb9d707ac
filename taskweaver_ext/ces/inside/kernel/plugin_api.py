"""The plugin API as TaskWeaver's plugins expect it, inside the kernel.

`from taskweaver.plugin import Plugin, register_plugin, test_plugin` works in
every kernel of ours, whether TaskWeaver is installed there or not. What a
plugin logs, and the artifacts it adds, are published while it runs.
"""

from __future__ import annotations

import base64
import contextlib
import inspect
import json
import linecache
import os
import shutil
import sys
import types
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

LOG_MIME = "application/vnd.taskweaver.log+json"
ARTIFACT_MIME = "application/vnd.taskweaver.artifact+json"
STATUS_MIME = "application/vnd.taskweaver.status+json"

LEVELS = ("info", "warning", "error")
Publish = Callable[[str, "dict[str, Any]"], None]

_PIECE_BYTES = 3 << 20
"""Of a file whose content is sent: a message must not become too large."""

_Marked = TypeVar("_Marked", bound="Callable[..., Any]")


class PluginContext:
    """What a plugin may use of the session it runs in."""

    def __init__(self, publish: Publish, *, env_id: str, session_id: str) -> None:
        self._publish = publish
        self._env_id = env_id
        self._session_id = session_id
        self._folder = Path.cwd()
        """The session's working directory, wherever code goes later."""
        self._announced_later: list[dict[str, Any]] = []
        self.execution: dict[str, Any] = {}
        """What came with the running request: execution id and session variables."""
        self.carries_contents = False
        """True where the session's folder is not on a shared disk: files travel in messages."""

    def begin(self, request: dict[str, Any]) -> None:
        """An execution starts. A kernel that was started in advance learns its session."""
        self.execution = request
        if request.get("cwd", str(self._folder)) != str(self._folder):
            self._folder = Path(request["cwd"])
            os.chdir(self._folder)
        self._session_id = request.get("session_id", self._session_id)

    @property
    def env_id(self) -> str:
        """Which environment this is."""
        return self._env_id

    @property
    def session_id(self) -> str:
        """Which session of it."""
        return self._session_id

    @property
    def execution_id(self) -> str:
        """Which execution is running."""
        return str(self.execution.get("execution_id", ""))

    def get_session_var(self, variable_name: str, default: str | None = None) -> str | None:
        """A variable of the session, as the application set it."""
        value: str | None = self.execution.get("session_variables", {}).get(variable_name, default)
        return value

    def get_env(self, plugin_name: str, variable_name: str) -> str:
        """A setting that was passed to this plugin by name through the environment."""
        return os.environ[f"PLUGIN_{plugin_name}_{variable_name}"]

    def log(self, level: str, tag: str, message: str) -> None:
        """Say something that is seen while the plugin runs."""
        if level not in LEVELS:
            raise ValueError(f"unknown log level {level!r}: use one of {', '.join(LEVELS)}")
        self._publish(LOG_MIME, {"level": level, "tag": str(tag), "message": str(message)})

    def add_artifact(
        self, name: str, file_name: str, type: str, val: Any, desc: str | None = None
    ) -> str:
        """Save `val` as a file of the session and announce it; return its id."""
        artifact = self._describe(name, file_name, type, desc or _preview(val))
        _save(val, self._folder / artifact["path"])
        self._announce(artifact)
        return str(artifact["id"])

    def create_artifact_path(
        self, name: str, file_name: str, type: str, desc: str
    ) -> tuple[str, str]:
        """Give an id and a path to write to; announced when the execution ends."""
        artifact = self._describe(name, file_name, type, desc)
        self._announced_later.append(artifact)
        return str(artifact["id"]), str(self._folder / artifact["path"])

    def wrap_text_with_delimiter_temporal(self, text: str) -> str:
        """Mark a text as temporary, as TaskWeaver does."""
        return f"<TEMPORAL>{text}</TEMPORAL>"

    def announce_what_was_made(self) -> None:
        """Called at the end of an execution: announce files promised by `create_artifact_path`."""
        while self._announced_later:
            artifact = self._announced_later.pop(0)
            if (self._folder / artifact["path"]).exists():
                self._announce(artifact)

    def _describe(self, name: str, file_name: str, type: str, preview: str) -> dict[str, Any]:
        artifact_id = f"{self.execution_id or 'artifact'}-{uuid.uuid4().hex[:8]}"
        safe_name = os.path.basename(file_name) or "artifact"
        return {
            "id": artifact_id,
            "name": name,
            "type": type,
            "original_name": file_name,
            "path": f"{artifact_id}_{safe_name}",  # relative: the client may see another root
            "preview": preview,
        }

    def _announce(self, artifact: dict[str, Any]) -> None:
        if not self.carries_contents:
            self._publish(ARTIFACT_MIME, artifact)
            return
        with open(self._folder / artifact["path"], "rb") as file:
            size = os.fstat(file.fileno()).st_size
            offset = 0
            while True:
                piece = file.read(min(_PIECE_BYTES, size - offset))
                if not piece:
                    size = offset  # it is empty, or was cut off meanwhile
                content = base64.b64encode(piece).decode("ascii")
                place = {"offset": offset, "size": size, "content": content}
                self._publish(ARTIFACT_MIME, {**artifact, **place})
                offset += len(piece)
                if offset >= size:
                    return


class Plugin:
    """Base class of plugins: subclass it, define `__call__`, and register the class."""

    def __init__(self, name: str, ctx: PluginContext, config: dict[str, Any]) -> None:
        self.name = name
        self.ctx = ctx
        self.config = config

    def __call__(self, *args: Any, **named: Any) -> Any:
        """What generated code calls under the plugin's name."""
        raise NotImplementedError(f"plugin {self.name!r} does not define __call__")

    def log(self, level: str, message: str) -> None:
        """Log under the plugin's own name."""
        self.ctx.log(level, f"Plugin-{self.name}", message)

    def get_env(self, variable_name: str) -> str:
        """A setting that was passed to this plugin through the environment."""
        return self.ctx.get_env(self.name, variable_name)


class _Registrations:
    """What a plugin's source registers while it is loaded."""

    def __init__(self) -> None:
        self.implementations: list[Any] = []
        self.tests: list[tuple[str, str, Callable[..., Any]]] = []


_loading: list[_Registrations] = []


def register_plugin(implementation: _Marked) -> _Marked:
    """Decorator: this class or function is the plugin that the file implements."""
    if _loading:
        _loading[-1].implementations.append(implementation)
    return implementation


def test_plugin(
    name: str | None = None, description: str | None = None
) -> Callable[[_Marked], _Marked]:
    """Decorator: this function tests the plugin; it is called with the plugin's callable."""

    def mark(test: _Marked) -> _Marked:
        if _loading:
            _loading[-1].tests.append((name or test.__name__, description or "", test))
        return test

    return mark


class LoadedPlugins:
    """The plugins of one kernel, by name; each is callable in the user's namespace."""

    def __init__(self, context: PluginContext, namespace: dict[str, Any]) -> None:
        self._context = context
        self._namespace = namespace
        self._tests: dict[str, list[tuple[str, str, Callable[..., Any]]]] = {}

    @property
    def names(self) -> list[str]:
        """What the plugins are called."""
        return list(self._tests)

    def load(self, name: str, source: str, config: dict[str, Any]) -> None:
        """Run a plugin's source and put what it registers into the user's namespace."""
        registrations = _Registrations()
        module = types.ModuleType(f"taskweaver_plugin_{name}")
        module.__file__ = f"<plugin {name}>"
        lines = source.splitlines(keepends=True)
        linecache.cache[module.__file__] = (len(source), None, lines, module.__file__)
        _loading.append(registrations)
        sys.modules[module.__name__] = module
        try:
            exec(compile(source, module.__file__, "exec"), module.__dict__)
        finally:
            _loading.pop()
        if len(registrations.implementations) != 1:
            raise ImportError(
                f"plugin {name!r} registers {len(registrations.implementations)} implementations;"
                " mark exactly one class or function with @register_plugin"
            )
        self._namespace[name] = self._instance(name, registrations.implementations[0], config)
        self._tests[name] = registrations.tests

    def _instance(self, name: str, implementation: Any, config: dict[str, Any]) -> Any:
        if inspect.isclass(implementation):
            plugin: Any = implementation
            return plugin(name, self._context, config)
        return _function_plugin(implementation)(name, self._context, config)

    def unload(self, name: str) -> None:
        """Take a plugin out of the user's namespace."""
        self._require(name)
        del self._tests[name]
        self._namespace.pop(name, None)
        sys.modules.pop(f"taskweaver_plugin_{name}", None)

    def test(self, name: str) -> None:
        """Run the plugin's own tests; the first that raises ends it."""
        self._require(name)
        for test_name, description, test in self._tests[name]:
            self._context.log("info", f"Plugin-{name}", f"test {test_name}: {description}")
            test(self._namespace[name])

    def run_script(self, name: str, path: str, source: str) -> None:
        """Run what belongs to every kernel: a module, or the prelude if it has no name."""
        file_name = path or "<prelude>"
        lines = source.splitlines(keepends=True)
        linecache.cache[file_name] = (len(source), None, lines, file_name)
        code = compile(source, file_name, "exec")
        if not name:
            exec(code, self._namespace)
            return
        module = types.ModuleType(f"taskweaver_module_{name}")
        module.__file__ = path
        sys.modules[module.__name__] = module
        exec(code, module.__dict__)
        public = [known for known in vars(module) if not known.startswith("_")]
        for known in getattr(module, "__all__", public):
            self._namespace[known] = getattr(module, known)

    def _require(self, name: str) -> None:
        if name not in self._tests:
            raise KeyError(f"plugin {name!r} is not loaded")


def _function_plugin(function: Callable[..., Any]) -> type[Plugin]:
    """Make a plugin class of a plain function; a first parameter `ctx` gets the context."""
    wants_context = next(iter(inspect.signature(function).parameters), None) == "ctx"

    class FunctionPlugin(Plugin):
        """A plugin written as a function."""

        def __call__(self, *args: Any, **named: Any) -> Any:
            if wants_context:
                return function(self.ctx, *args, **named)
            return function(*args, **named)

    FunctionPlugin.__doc__ = function.__doc__
    return FunctionPlugin


def _preview(value: Any) -> str:
    """A short text that stands for a value."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 500 else f"{text[:500]}..."


def _save(value: Any, path: Path) -> None:
    """Write a value in the way its own type writes files, else as text."""
    if isinstance(value, os.PathLike):
        shutil.copyfile(value, path)
    elif isinstance(value, (bytes, bytearray)):
        path.write_bytes(value)
    elif isinstance(value, str):
        path.write_text(value, encoding="utf-8")
    elif hasattr(value, "to_csv"):
        if path.suffix == ".parquet":
            value.to_parquet(path)
        else:
            value.to_csv(path, index=False)
    elif hasattr(value, "savefig"):
        value.savefig(path)
    elif hasattr(value, "save"):
        value.save(path)
    else:
        path.write_text(json.dumps(value, default=str), encoding="utf-8")


@contextlib.contextmanager
def temp_context() -> Iterator[PluginContext]:
    """A context for running a plugin's file alone, outside a session: it prints what is logged."""

    def show(mime: str, content: dict[str, Any]) -> None:
        print(mime, content)  # noqa: T201 - there is no session to tell

    yield PluginContext(show, env_id="local", session_id="temporary")


def install() -> None:
    """Make the module names that TaskWeaver's plugins import."""
    api = {
        "Plugin": Plugin,
        "PluginContext": PluginContext,
        "register_plugin": register_plugin,
        "test_plugin": test_plugin,
        "temp_context": temp_context,
    }
    for name in (
        "taskweaver",
        "taskweaver.plugin",
        "taskweaver.plugin.base",
        "taskweaver.plugin.context",
        "taskweaver.plugin.register",
    ):
        module = types.ModuleType(name, "Provided by the kernel for plugins.")
        module.__path__ = []
        if name != "taskweaver":
            module.__dict__.update(api)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
        sys.modules[name] = module
