"""The plugins of a project: what their YAML files say, and where their source is.

Each `<name>.yaml` beside a `<code>.py` describes one function that generated code
may call. A file that cannot be used is named with its reason and left out; the
others load. Nothing here runs a plugin: its source is sent to the kernel.
"""

from __future__ import annotations

import json
import keyword
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taskweaver_ext.config.data_files import DataFileError
from taskweaver_ext.config.yaml_files import read_yaml
from taskweaver_ext.errors import PluginError

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginValue:
    """A parameter of a plugin, or something it returns."""

    name: str
    description: str = ""
    type: str = "Any"
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginEntry:
    """One plugin, as its YAML file describes it."""

    name: str
    description: str
    source_path: Path
    parameters: tuple[PluginValue, ...] = ()
    returns: tuple[PluginValue, ...] = ()
    enabled: bool = True
    required: bool = False
    plugin_only: bool = False
    """For sessions that may do nothing but call plugins; not shown in others."""
    examples: str = ""
    configurations: Mapping[str, Any] = field(default_factory=dict)

    @property
    def signature(self) -> str:
        """How it is called, in Python's own form."""
        ordered = sorted(self.parameters, key=lambda parameter: not parameter.required)
        parameters = ", ".join(
            f"{one.name}: {one.type}" + ("" if one.required else " = None") for one in ordered
        )
        types = ", ".join(value.type for value in self.returns)
        result = f"tuple[{types}]" if len(self.returns) > 1 else types or "None"
        return f"def {self.name}({parameters}) -> {result}"

    def describe(self) -> str:
        """Return everything that a model must know to write a call."""
        lines = [f"{self.signature}:", f"    {_one_line(self.description)}"]
        for title, values in (("Parameters", self.parameters), ("Returns", self.returns)):
            if values:
                lines.append(f"    {title}:")
                lines += [f"        {one.name}: {_one_line(one.description)}" for one in values]
        if self.examples:
            lines.append("    Example:")
            lines += [f"        {line}" for line in self.examples.strip().splitlines()]
        return "\n".join(lines)

    def read_source(self) -> str:
        """Return the Python source.

        Raises:
            PluginError: It cannot be read.
        """
        try:
            return self.source_path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PluginError(
                f"The source of plugin {self.name!r} cannot be read from {self.source_path}:"
                f" {error}. The plugin is left out."
            ) from error


class PluginRegistry:
    """The usable plugins of one folder, by name."""

    def __init__(self, entries: Mapping[str, PluginEntry], problems: tuple[str, ...] = ()) -> None:
        self._entries = dict(entries)
        self.problems = problems
        """One sentence for each file that could not be used."""

    @classmethod
    def load(cls, folder: Path) -> PluginRegistry:
        """Read every YAML file of a folder; one that does not exist has no plugins."""
        entries: dict[str, PluginEntry] = {}
        problems: list[str] = []
        for path in sorted((*folder.glob("*.yaml"), *folder.glob("*.yml"))):
            try:
                entry = read_plugin(path)
                if entry.name in entries:
                    raise PluginError(f"{path}: there is another plugin {entry.name!r} already.")
                entries[entry.name] = entry
            except PluginError as error:
                problems.append(str(error))
                _logger.warning("A plugin is left out. %s", error)
        return cls(entries, tuple(problems))

    def __iter__(self) -> Iterator[PluginEntry]:
        """Yield the enabled plugins, by name."""
        return (entry for _, entry in sorted(self._entries.items()) if entry.enabled)

    @property
    def configurations(self) -> tuple[Mapping[str, Any], ...]:
        """What all of them are configured with, those that are not enabled too; may hold keys."""
        return tuple(entry.configurations for entry in self._entries.values())

    def without_plugin_only(self) -> tuple[PluginEntry, ...]:
        """Return the enabled plugins that generated code may call."""
        return tuple(entry for entry in self if not entry.plugin_only)


def read_plugin(path: Path) -> PluginEntry:
    """Read one plugin's YAML file.

    Raises:
        PluginError: It is no YAML, or does not describe a plugin; the message names the file.
    """
    try:
        content = read_yaml(path)
    except (OSError, DataFileError) as error:
        raise PluginError(f"{path} cannot be read as YAML: {_one_line(str(error))}") from error
    if not isinstance(content, dict):
        raise PluginError(f"{path} must hold a mapping with name, description and parameters.")
    fields = _Fields(path, content)
    name = fields.text("name", is_needed=True)
    if not name.isidentifier() or keyword.iskeyword(name):
        raise PluginError(f"{path}: the name {name!r} cannot be called from Python.")
    source_path = path.parent / f"{_file_stem(path, fields.text('code', default=name))}.py"
    if not source_path.is_file():
        raise PluginError(f"{path}: there is no {source_path.name} beside it.")
    return PluginEntry(
        name=name,
        description=fields.text("description", is_needed=True),
        source_path=source_path,
        parameters=fields.values("parameters"),
        returns=fields.values("returns"),
        enabled=fields.flag("enabled", default=True),
        required=fields.flag("required"),
        plugin_only=fields.flag("plugin_only"),
        examples=fields.text("examples"),
        configurations=fields.mapping("configurations"),
    )


class _Fields:
    """The values of a mapping in a YAML file, checked one by one."""

    def __init__(self, path: Path, content: Mapping[str, Any]) -> None:
        self._path = path
        self._content = content

    def text(self, name: str, *, default: str = "", is_needed: bool = False) -> str:
        value = self._content.get(name)
        if value is None and not is_needed:
            return default
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return "\n".join(value)
        if not isinstance(value, str) or (is_needed and not value.strip()):
            raise PluginError(f"{self._path}: {name} must be text.")
        return value.strip()

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self._content.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise PluginError(f"{self._path}: {name} must be true or false.")
        return value

    def mapping(self, name: str) -> Mapping[str, Any]:
        value = self._content.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise PluginError(f"{self._path}: {name} must be a mapping.")
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            raise PluginError(
                f"{self._path}: {name} may hold texts, numbers, lists and mappings; put dates"
                f" into quotation marks ({error})."
            ) from error
        return value

    def values(self, name: str) -> tuple[PluginValue, ...]:
        items = self._content.get(name)
        if items is None:
            return ()
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise PluginError(f"{self._path}: {name} must be a list of mappings.")
        return tuple(_Fields(self._path, item).value() for item in items)

    def value(self) -> PluginValue:
        return PluginValue(
            name=self.text("name", is_needed=True),
            description=self.text("description"),
            type=self.text("type", default="Any"),
            required=self.flag("required"),
        )


def _file_stem(path: Path, code: str) -> str:
    if Path(code).name != code:
        raise PluginError(f"{path}: code must be the name of a file beside it, not {code!r}.")
    return code.removesuffix(".py")


def _one_line(text: str) -> str:
    return " ".join(text.split())
