"""What code adds to its folders in a sandbox has limits, which stop it and are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskweaver_ext import Environment, EnvMode, ExecutionStatus, SandboxSettings
from tests.support.executions import run
from tests.support.sandboxes import require_sandbox

LIMIT_SECONDS = 120

FILLERS = {
    "bytes": (
        SandboxSettings(disk_bytes=30 << 20),
        "f.write(b'x' * (1 << 20)); f.flush(); time.sleep(0.005)",
        "may grow by 30 MiB in this sandbox",
    ),
    "files": (
        SandboxSettings(disk_bytes=0, disk_files=3_000),
        "open(f'{folder}/{next(numbers)}', 'w').close(); time.sleep(0.0002)",
        "may grow by 3,000 files and folders in this sandbox",
    ),
}


@pytest.mark.parametrize("what", FILLERS)
@pytest.mark.parametrize("folder", [".", "tempfile.gettempdir()"], ids=["working", "temporary"])
def test_code_that_fills_its_folders_is_stopped_and_keeps_its_variables(
    tmp_path: Path, what: str, folder: str
) -> None:
    require_sandbox()
    settings, step, sentence = FILLERS[what]
    place = repr(folder) if folder == "." else folder
    with Environment(tmp_path / "env", EnvMode.Sandbox, sandbox=settings) as environment:
        environment.start_session("s1")
        run(environment, f"import itertools, tempfile, time; kept = 'kept'; folder = {place}")
        run(environment, "f = open(f'{folder}/filled', 'wb'); numbers = itertools.count()")

        result = run(environment, f"while True: {step}", timeout=LIMIT_SECONDS).result

        assert result.status is ExecutionStatus.ERROR
        assert sentence in " ".join(notice.message for notice in result.notices)
        assert run(environment, "print(kept)").result.stdout == ["kept\n"]
