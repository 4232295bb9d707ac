"""The table of kernel modes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from taskweaver_ext import ConfigError, ContainerSettings, Environment, ExecutorRegistry
from taskweaver_ext.ces.kernels.modes import KERNEL_MODES, EnvMode, container_settings
from taskweaver_ext.config.settings import ExecutionServiceConfig
from taskweaver_ext.errors import SessionError

MODES = pytest.mark.parametrize("mode", EnvMode)


@MODES
def test_every_mode_has_a_row(mode: EnvMode) -> None:
    assert mode in KERNEL_MODES


@MODES
def test_programs_run_without_a_session_unless_they_are_refused_in_one(mode: EnvMode) -> None:
    row = KERNEL_MODES[mode]

    assert (row.program_sites is None) is (row.programs == "refused")


@MODES
def test_code_that_is_confined_to_a_folder_finds_no_records_there(
    tmp_path: Path, mode: EnvMode
) -> None:
    with Environment(tmp_path / "env", mode, warm_start=False) as environment:
        open_registry = partial(ExecutorRegistry, environment, folder=tmp_path / "records")
        if KERNEL_MODES[mode].is_confined:
            with pytest.raises(SessionError, match="out of reach of its code"):
                open_registry(cwd=tmp_path)
        else:
            open_registry(cwd=tmp_path).close()


@pytest.mark.parametrize(
    "mode", [mode for mode, row in KERNEL_MODES.items() if row.programs != "beside the kernel"]
)
def test_a_shell_runs_here_or_is_refused(tmp_path: Path, mode: EnvMode) -> None:
    with (
        Environment(tmp_path, mode, warm_start=False) as environment,
        ExecutorRegistry(environment) as registry,
    ):
        result = registry.get("bash").execute("echo here")

    is_refused = KERNEL_MODES[mode].programs == "refused"
    assert ("NOT_ISOLATED" in (result.error or "")) is is_refused
    assert result.stdout == ([] if is_refused else ["here\n"])


@pytest.mark.parametrize("given", [None, ContainerSettings(), ContainerSettings(engine_url=None)])
def test_containers_use_the_engine_that_is_set_unless_another_is_given(
    given: ContainerSettings | None,
) -> None:
    service = ExecutionServiceConfig(engine_url="unix:///set.sock")
    other = ContainerSettings(engine_url="unix:///given.sock")

    assert container_settings(service, given).engine_url == "unix:///set.sock"
    assert container_settings(service, other) == other


def test_containers_use_the_user_and_runtime_that_are_set_unless_others_are_given() -> None:
    service = ExecutionServiceConfig(container_user="1:2", container_runtime="runsc")
    other = ContainerSettings(user="3:4", runtime="runc", engine_url="unix:///given.sock")

    settings = container_settings(service)

    assert (settings.user, settings.runtime) == ("1:2", "runsc")
    assert container_settings(service, other) == other


def test_a_mode_that_does_not_exist_is_named_with_those_that_do(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"'Local' is no kernel mode.*local, sandbox, container, gateway"
    ):
        Environment(tmp_path, "Local")  # type: ignore[arg-type]
