"""Settings come from where they should, are checked together, and never change afterwards."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import taskweaver_ext
from taskweaver_ext.config import loading, variables
from taskweaver_ext.config.folders import FILE_NAME
from taskweaver_ext.config.settings import ExecutionServiceConfig
from taskweaver_ext.errors import ConfigError
from taskweaver_ext.llm.model_settings import ModelSettings, TimeLimits

PROJECT = Path(__file__).resolve().parents[2] / "project"


def write_settings(folder: Path, values: Mapping[str, object]) -> Path:
    (folder / FILE_NAME).write_text(json.dumps(values), encoding="utf-8")
    return folder


def test_defaults_are_those_of_taskweaver_but_for_what_we_changed(tmp_path: Path) -> None:
    loaded = loading.load(tmp_path, environ={"XDG_STATE_HOME": "/state"})

    assert loaded.execution_service.kernel_mode == "local"
    assert loaded.execution_service.env_dir == tmp_path / "env"
    assert loaded.session.roles == ("planner", "code_interpreter")
    assert loaded.session.max_internal_chat_round_num == 10
    assert loaded.code_interpreter.code_verification_on
    assert loaded.code_interpreter.allowed_modules is None
    assert {"open", "input"}.isdisjoint(loaded.code_interpreter.blocked_functions)
    assert {"eval", "exec", "__import__"} <= set(loaded.code_interpreter.blocked_functions)
    assert loaded.planner.example_base_path == tmp_path / "examples/planner_examples"
    assert loaded.workspace.workspace_path.parent == Path("/state/taskweaver-ext")
    assert loaded.workspace.keep_days == 90
    assert loaded.llm.settings == {}


def test_each_source_wins_over_those_after_it(tmp_path: Path) -> None:
    name = "session.max_internal_chat_round_num"
    write_settings(tmp_path, {name: 4})
    environ = {"SESSION_MAX_INTERNAL_CHAT_ROUND_NUM": "3"}

    def rounds(**sources: Mapping[str, object]) -> int:
        given = {"environ": {}, **sources}
        loaded = loading.load(tmp_path, **given)  # type: ignore[arg-type]
        return loaded.session.max_internal_chat_round_num

    assert rounds() == 4
    assert rounds(environ=environ) == 3
    assert rounds(environ=environ, arguments={name: 2}) == 2
    assert rounds(environ=environ, arguments={name: 2}, overrides={name: 1}) == 1


def test_a_setting_without_a_value_is_not_set(tmp_path: Path) -> None:
    write_settings(tmp_path, {"session.max_internal_chat_round_num": None, "llm.api_key": ""})

    loaded = loading.load(tmp_path, environ={"LLM_MODEL": ""})

    assert loaded.session.max_internal_chat_round_num == 10
    assert loaded.llm.settings == {}
    assert not loaded.llm.has_api_key


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("relative", "{app}/relative"),
        ("/absolute", "/absolute"),
        ("${AppBaseDir}/inside", "{app}/inside"),
        ("${ModuleBaseDir}/inside", "{module}/inside"),
        ("~/at_home", "{home}/at_home"),
    ],
)
def test_paths_may_be_relative_to_known_folders(tmp_path: Path, given: str, expected: str) -> None:
    loaded = loading.load(tmp_path, overrides={"plugin.base_path": given}, environ={})

    folders = {"app": tmp_path, "module": Path(taskweaver_ext.__file__).parent, "home": Path.home()}
    assert str(loaded.plugin.base_path) == expected.format(**folders)


def test_values_from_the_environment_get_their_real_types(tmp_path: Path) -> None:
    environ = {
        "CODE_INTERPRETER_CODE_VERIFICATION_ON": "false",
        "CODE_INTERPRETER_ALLOWED_MODULES": "pandas, numpy",
        "CODE_INTERPRETER_BLOCKED_FUNCTIONS": '["eval"]',
        "CODE_INTERPRETER_MAX_RETRY_COUNT": "0",
        "WORKSPACE_WORKSPACE_PATH": "elsewhere",
        "EXT_LLMS_LLM_CONFIGS": '{"small": {"llm.model": "tiny"}}',
    }

    loaded = loading.load(tmp_path, environ=environ)

    assert not loaded.code_interpreter.code_verification_on
    assert loaded.code_interpreter.allowed_modules == ("pandas", "numpy")
    assert loaded.code_interpreter.blocked_functions == ("eval",)
    assert loaded.code_interpreter.max_retry_count == 0
    assert loaded.workspace.workspace_path == tmp_path / "elsewhere"
    assert loaded.llm.alternatives == {"small": {"llm.model": "tiny"}}


@pytest.mark.parametrize(
    ("given", "rounds"), [({}, 1), ({"execution_service.kernel_mode": "gateway"}, 2)]
)
def test_what_is_set_nowhere_may_depend_on_the_kernel_mode(
    tmp_path: Path, given: Mapping[str, object], rounds: int
) -> None:
    name = "session.max_internal_chat_round_num"
    defaults: Mapping[str, Mapping[str, object]] = {"local": {name: 1}, "gateway": {name: 2}}

    def load(overrides: Mapping[str, object]) -> int:
        loaded = loading.load(tmp_path, overrides=overrides, environ={}, mode_defaults=defaults)
        return loaded.session.max_internal_chat_round_num

    assert load(given) == rounds
    assert load({**given, name: 7}) == 7


ENGINE, GATEWAY = "execution_service.engine_url", "execution_service.gateway_url"


@pytest.mark.parametrize(
    ("overrides", "environ", "url"),
    [
        ({}, {}, "tcp://file"),
        ({}, {"DOCKER_HOST": "tcp://known"}, "tcp://known"),
        (
            {},
            {"DOCKER_HOST": "tcp://known", "EXECUTION_SERVICE_ENGINE_URL": "tcp://own"},
            "tcp://own",
        ),
        ({ENGINE: "tcp://code"}, {"DOCKER_HOST": "tcp://known"}, "tcp://code"),
    ],
)
def test_a_variable_that_others_know_sets_the_engine_too(
    tmp_path: Path, overrides: Mapping[str, object], environ: Mapping[str, str], url: str
) -> None:
    write_settings(tmp_path, {ENGINE: "tcp://file"})

    loaded = loading.load(tmp_path, overrides=overrides, environ=environ)

    assert loaded.execution_service.engine_url == url


def test_a_gateway_is_given_no_token_that_was_set_for_another(tmp_path: Path) -> None:
    write_settings(
        tmp_path,
        {
            GATEWAY: "http://file",
            "execution_service.gateway_token": "of the file",
            "execution_service.gateway_kernel": "of the file",
            "execution_service.gateway_ca_file": "of the file",
        },
    )

    def load(**environ: str) -> ExecutionServiceConfig:
        return loading.load(tmp_path, environ=environ).execution_service

    of_file, elsewhere = load(), load(TASKWEAVER_GATEWAY_URL="http://variable")
    assert (of_file.gateway_url, of_file.gateway_token) == ("http://file", "of the file")
    assert of_file.gateway_ca_file == tmp_path / "of the file"
    assert (elsewhere.gateway_url, elsewhere.gateway_token) == ("http://variable", "")
    assert (elsewhere.gateway_kernel, elsewhere.gateway_ca_file) == ("python3", None)
    assert load(TASKWEAVER_GATEWAY_TOKEN="newer").gateway_token == "newer"
    assert load(TASKWEAVER_GATEWAY_TOKEN="newer").gateway_url == "http://file"
    assert "of the file" not in repr(replace(of_file, gateway_kernel="", gateway_ca_file=None))


def test_without_a_project_variables_say_where_code_runs() -> None:
    environ = {"TASKWEAVER_GATEWAY_URL": "http://variable", "TASKWEAVER_GATEWAY_CA_FILE": "ca.pem"}

    service = loading.load_execution_service(environ)

    assert service.gateway_url == "http://variable"
    assert service.gateway_ca_file == Path("ca.pem")
    assert service.engine_url == "unix:///var/run/docker.sock"
    with pytest.raises(ConfigError, match="EXECUTION_SERVICE_SPARE_KERNELS"):
        loading.load_execution_service({"EXECUTION_SERVICE_SPARE_KERNELS": "many"})


def test_no_allowed_modules_is_not_the_same_as_an_empty_list(tmp_path: Path) -> None:
    write_settings(tmp_path, {"code_interpreter.allowed_modules": []})

    assert loading.load(tmp_path, environ={}).code_interpreter.allowed_modules == ()


def test_all_mistakes_are_reported_in_one_error(tmp_path: Path) -> None:
    write_settings(
        tmp_path,
        {
            "execution_service.kernel_mode": "docker",
            "session.max_internal_chat_round_num": "many",
            "session.roles": "[1",
            "round_compressor.rounds_to_retain": 0,
            "code_interpreter.code_verification_on": "perhaps",
            "workspace.workspace_path": 7,
            "ext_llms.llm_configs": [],
        },
    )

    with pytest.raises(ConfigError) as caught:
        loading.load(tmp_path, environ={"CODE_INTERPRETER_MAX_RETRY_COUNT": "-1"})

    message = str(caught.value)
    for mistake in (
        f"execution_service.kernel_mode is 'docker' ({tmp_path / FILE_NAME}); it must be"
        " local, sandbox, container or gateway.",
        "session.max_internal_chat_round_num is 'many'",
        "session.roles is '[1'",
        "round_compressor.rounds_to_retain is 0",
        "must be true or false.",
        "workspace.workspace_path is 7",
        "ext_llms.llm_configs",
        "code_interpreter.max_retry_count is '-1' (environment variable"
        " CODE_INTERPRETER_MAX_RETRY_COUNT); it must be at least 0.",
    ):
        assert mistake in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "is not valid JSON"),
        ("[]", "must hold one JSON object"),
        ("\xff", "is not valid JSON"),
    ],
)
def test_a_file_that_cannot_be_understood_is_an_error(
    tmp_path: Path, content: str, complaint: str
) -> None:
    (tmp_path / FILE_NAME).write_text(content, encoding="latin-1")

    with pytest.raises(ConfigError, match=complaint):
        loading.load(tmp_path, environ={})


def test_a_project_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="There is no folder"):
        loading.load(tmp_path / "missing", environ={})


def test_unknown_settings_are_ignored_with_one_warning_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_settings(tmp_path, {"llm.modle": "x", "web_search.api": "y", "llm.model": "z"})

    with caplog.at_level(logging.WARNING):
        loaded = loading.load(tmp_path, environ={})

    first, second = (record.getMessage() for record in caplog.records)
    assert "'llm.modle'" in first
    assert first.endswith("did you mean 'llm.model'?")
    assert "'web_search.api'" in second
    assert dict(loaded.llm.settings) == {"llm.model": "z"}


def test_settings_of_taskweaver_without_an_effect_are_named_with_what_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_settings(
        tmp_path,
        {
            "planner.use_experience": True,
            "code_generator.use_experience": False,
            "code_generator.enable_auto_plugin_selection": True,
            "llm.use_mock": True,
            "llm.mock.cache_path": "",
        },
    )

    with caplog.at_level(logging.WARNING):
        loading.load(tmp_path, environ={})

    experience, selection, mock = (record.getMessage() for record in caplog.records)
    assert "'planner.use_experience'" in experience
    assert "has no effect: experience is not kept; put what" in experience
    assert "told of all plugins" in selection
    assert "pass TaskWeaverApp a ScriptedModel" in mock


def test_the_nearest_project_upwards_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_settings(tmp_path, {"llm.model": "from-the-project"})
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)

    loaded = loading.load(environ={})

    assert loaded.app_base_dir == tmp_path
    assert loaded.llm.settings["llm.model"] == "from-the-project"


def test_settings_cannot_be_changed_and_do_not_show_a_key(tmp_path: Path) -> None:
    loaded = loading.load(tmp_path, environ={"LLM_API_KEY": "sk-very-secret"})

    assert loaded.llm.has_api_key
    assert "sk-very-secret" not in repr(loaded)
    with pytest.raises(dataclasses.FrozenInstanceError):
        loaded.session.max_internal_chat_round_num = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        loaded.llm.settings["llm.model"] = "x"  # type: ignore[index]


def test_every_setting_of_a_model_can_come_from_the_environment(tmp_path: Path) -> None:
    names = {
        field.name for kind in (ModelSettings, TimeLimits) for field in dataclasses.fields(kind)
    }
    names.remove("limits")
    environ = {f"LLM_{name.upper()}": "1" for name in names}

    loaded = loading.load(tmp_path, environ=environ)

    assert {name.removeprefix("llm.") for name in loaded.llm.settings} == names


def test_settings_of_one_provider_are_known(tmp_path: Path) -> None:
    loaded = loading.load(tmp_path, environ={"LLM_ANTHROPIC_MAX_TOKENS": "5"})

    assert loaded.llm.settings == {"llm.anthropic.max_tokens": "5"}


def test_the_project_that_comes_with_the_package_loads(caplog: pytest.LogCaptureFixture) -> None:
    loaded = loading.load(PROJECT, environ={})

    assert ModelSettings.from_mapping(loaded.llm.settings).model == "gpt-4o"
    assert caplog.records == []


@pytest.mark.parametrize(
    ("environ", "is_wanted"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_colours_can_be_declined(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], is_wanted: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    assert variables.wants_color() is is_wanted


def test_a_number_with_a_point_is_read_from_everywhere_and_nonsense_is_named(
    tmp_path: Path,
) -> None:
    read = loading.load(tmp_path, environ={"SERVER_IDLE_MINUTES": "0.5"})
    given = loading.load(tmp_path, overrides={"server.idle_minutes": 2}, environ={})

    assert (read.server.idle_minutes, given.server.idle_minutes) == (0.5, 2.0)
    for nonsense in ("soon", "nan", "-1", "1e999"):
        with pytest.raises(ConfigError, match=r"server\.idle_minutes"):
            loading.load(tmp_path, environ={"SERVER_IDLE_MINUTES": nonsense})
