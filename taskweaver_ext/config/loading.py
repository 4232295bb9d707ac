"""Load settings: TaskWeaver's names, read once and checked together.

A value given in code wins over an argument, which wins over an environment
variable (`llm.api_key` is `LLM_API_KEY`; some have another name besides, as
`DOCKER_HOST`), which wins over the project's `taskweaver_config.json`, which wins
over the default. Paths may begin with `~`, `${AppBaseDir}` (the project's folder)
or `${ModuleBaseDir}` (this package's); relative ones are relative to the
project's folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, get_type_hints

from taskweaver_ext.config.data_files import parse_json, read_json
from taskweaver_ext.config.folders import FILE_NAME, find_app_dir
from taskweaver_ext.config.reader import SettingsReader
from taskweaver_ext.config.sandbox import SandboxSettings
from taskweaver_ext.config.settings import Config, EnvMode, ExecutionServiceConfig, LlmConfig
from taskweaver_ext.config.state_folder import default_places, history_file, state_folder
from taskweaver_ext.errors import ConfigError

_Section = TypeVar("_Section")

_PROVIDERS = "openai azure azure_ad azure_ml ollama google_genai qwen zhipuai groq anthropic local"
_MODEL_SETTINGS = (
    "api_base api_key model response_format temperature max_tokens top_p seed stop_token"
    " api_version context_tokens max_retries connect_seconds first_token_seconds"
    " between_tokens_seconds whole_reply_seconds threads"
)

_WITHOUT_EFFECT = {
    **dict.fromkeys(
        ("planner.use_experience", "code_generator.use_experience"),
        "experience is not kept; put what a role should know into its examples or its prompt",
    ),
    **dict.fromkeys(
        ("planner.dynamic_example_sub_path", "code_generator.dynamic_example_sub_path"),
        "all examples in example_base_path are used",
    ),
    **dict.fromkeys(
        (
            "llm.use_mock",
            *(f"llm.mock.{name}" for name in ("mode", "cache_path", "playback_delay")),
        ),
        "replies are not recorded; for tests pass TaskWeaverApp a ScriptedModel",
    ),
    "code_generator.enable_auto_plugin_selection": "the model is told of all plugins",
    "code_generator.auto_plugin_selection_topk": "the model is told of all plugins",
    "code_generator.role_name": "a role is called as the alias in its role file says",
    "code_interpreter.use_local_uri": "artifacts are always named by their paths",
    "session.experience_dir": "experience is not kept",
}
"""What TaskWeaver has and we do not, and what to do instead."""


def load(
    app_dir: str | Path | None = None,
    *,
    overrides: Mapping[str, object] | None = None,
    arguments: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    mode_defaults: Mapping[str, Mapping[str, object]] | None = None,
    defaults: Mapping[str, object] | None = None,
) -> Config:
    """Read all settings of a project.

    Args:
        app_dir: The project's folder; by default the nearest one upwards that has a
            configuration file, else the current folder.
        overrides: Values given in code, by setting name.
        arguments: Values given on the command line, by setting name.
        environ: Environment variables; ours when None.
        mode_defaults: Values of settings, by name, that are set nowhere, for each kernel mode.
        defaults: The same, for all of them.

    Raises:
        ConfigError: Something cannot be used; the message names every mistake.
    """
    folder = Path(app_dir).expanduser().absolute() if app_dir is not None else find_app_dir()
    environ = os.environ if environ is None else environ
    reader = SettingsReader(folder, _known_names(), _WITHOUT_EFFECT)
    reader.add_named("given in code", overrides or {})
    reader.add_named("given as an argument", arguments or {})
    reader.add_environment(environ)
    reader.add_file(folder / FILE_NAME, is_needed=app_dir is not None)
    mode = reader.given("execution_service.kernel_mode")
    name = EnvMode.Local if mode is None else str(mode.value)
    reader.add_named("by default", {**(defaults or {}), **(mode_defaults or {}).get(name, {})})
    state_dir = state_folder(folder, environ)
    names_workspace = reader.given("workspace.workspace_path") is not None
    places = default_places(folder, state_dir, names_workspace=names_workspace)
    reader.add_named("by default", places)
    config = _read(reader, folder, history_file(folder, state_dir))
    return replace(config, names_kernel_mode=mode is not None)


def load_execution_service(environ: Mapping[str, str] | None = None) -> ExecutionServiceConfig:
    """Read what environment variables alone say about where code runs; raises ConfigError."""
    return _load_section("execution_service", ExecutionServiceConfig, environ)


def find_variable_names() -> ExecutionServiceConfig:
    """Read what variables and the nearest project say about `env_allow` and `env_deny` alone.

    For commands that use nothing else of a project, and work with one that is broken.

    Raises:
        ConfigError: What is said makes no sense.
    """
    try:
        folder = find_app_dir()
    except ConfigError:  # a program can work elsewhere all the same
        return load_execution_service()
    names = ("execution_service.env_allow", "execution_service.env_deny")
    reader = SettingsReader(folder, dict.fromkeys(names, ""), {})
    reader.add_environment(os.environ)
    try:
        values = read_json(folder / FILE_NAME)
    except (OSError, ValueError):
        values = None
    if isinstance(values, dict):
        said = {name: values[name] for name in names if name in values}
        reader.add_named(str(folder / FILE_NAME), said)
    section = reader.section("execution_service", ExecutionServiceConfig)
    reader.raise_mistakes()
    return section


def load_sandbox(environ: Mapping[str, str] | None = None) -> SandboxSettings:
    """Read what environment variables alone say about sandboxes; raises ConfigError."""
    return _load_section("sandbox", SandboxSettings, environ)


def _load_section(name: str, kind: type[_Section], environ: Mapping[str, str] | None) -> _Section:
    reader = SettingsReader(Path(), _names_in(name, kind), {})
    reader.add_environment(os.environ if environ is None else environ)
    section = reader.section(name, kind)
    reader.raise_mistakes()
    return section


def find_execution_service(app_dir: str | Path | None = None) -> ExecutionServiceConfig:
    """Read what a project says about where code runs; variables alone if its file is broken."""
    try:
        return load(app_dir).execution_service
    except ConfigError:
        return load_execution_service()


def _read(reader: SettingsReader, folder: Path, history: Path) -> Config:
    sections: dict[str, Any] = {
        name: reader.section(name, kind) for name, kind in _section_classes().items()
    }
    config = Config(
        app_base_dir=folder,
        history_file=history,
        named=tuple(reader.named),
        llm=_llm(reader),
        **sections,
    )
    reader.raise_mistakes()
    return config


def _llm(reader: SettingsReader) -> LlmConfig:
    given = reader.given("ext_llms.llm_configs")
    alternatives = {} if given is None else given.value
    if isinstance(alternatives, str):  # from an environment variable
        try:
            alternatives = parse_json(alternatives)
        except ValueError:
            alternatives = None
    if not isinstance(alternatives, dict) or not all(
        isinstance(values, dict) for values in alternatives.values()
    ):
        origin = given.origin if given else ""
        reader.mistakes.append(
            f"ext_llms.llm_configs ({origin}) must be an object of objects, by alias."
        )
        alternatives = {}
    return LlmConfig(
        settings=MappingProxyType(reader.given_below("llm.")),
        alternatives=MappingProxyType(alternatives),
    )


def _section_classes() -> dict[str, type[Any]]:
    hints = get_type_hints(Config)
    kinds: dict[str, type[Any]] = {entry.name: hints[entry.name] for entry in fields(Config)}
    return {
        name: kind for name, kind in kinds.items() if is_dataclass(kind) and kind is not LlmConfig
    }


def _known_names() -> dict[str, str]:
    """Every setting, with the variable that sets it besides the one named after it."""
    names = ["llm.api_type", "ext_llms.llm_configs"]
    for name in _MODEL_SETTINGS.split():
        names += [f"llm.{name}", *(f"llm.{provider}.{name}" for provider in _PROVIDERS.split())]
    known = dict.fromkeys(names, "")
    for section, kind in _section_classes().items():
        known |= _names_in(section, kind)
    return known


def _names_in(section: str, kind: type[Any]) -> dict[str, str]:
    return {f"{section}.{entry.name}": entry.metadata.get("variable", "") for entry in fields(kind)}
