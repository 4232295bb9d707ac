"""`taskweaver-ext doctor` finds what is there and says what to do about what is not."""

from __future__ import annotations

import json
import os
import re
import shlex
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from taskweaver_ext.ces.sandbox import sandbox
from taskweaver_ext.cli import doctor

LIMIT_SECONDS = 240
NEEDED = ("python", "temporary folder", "disk", "ipykernel", "kernel")


class Engine(BaseHTTPRequestHandler):
    """Answers as a Docker engine does."""

    has_image = True

    def do_GET(self) -> None:
        body = json.dumps({"Version": "28.0.1"} if self.path == "/version" else {}).encode()
        is_missing = self.path.startswith("/images/") and not self.has_image
        self.send_response(404 if is_missing else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[str]:
    """The address of an engine."""
    path = tmp_path / "engine.sock"
    with socketserver.ThreadingUnixStreamServer(str(path), Engine) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield f"unix://{path}"
        server.shutdown()
        thread.join()


@pytest.fixture
def examine(tmp_path: Path) -> Callable[..., Any]:
    """Run the command with these variables and return its exit code and what it wrote."""

    def examine(*arguments: str, **variables: str) -> tuple[int, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("LLM_")}
        result = subprocess.run(
            [sys.executable, "-m", "taskweaver_ext.cli", "doctor", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**inherited, "DOCKER_HOST": f"unix://{tmp_path}/none", **variables},
            timeout=LIMIT_SECONDS,
        )
        assert result.stderr == ""
        return result.returncode, result.stdout

    return examine


def test_a_machine_that_can_run_code_is_fine_without_docker_and_model(
    examine: Callable[..., Any],
) -> None:
    code, text = examine()

    assert code == 0
    for name in NEEDED:
        assert f"ok    {name}: " in text
    assert "warn  docker: cannot reach the engine at unix://" in text
    assert "; local kernels need no Docker" in text
    assert "warn  model: openai gpt-4, key not set" in text
    assert "-> set llm.api_key in taskweaver_config.json, or LLM_API_KEY" in text


def test_json_tells_the_same_and_a_key_is_never_shown(
    examine: Callable[..., Any], engine: str, tmp_path: Path
) -> None:
    (tmp_path / "taskweaver_config.json").write_text('{"llm.model": "from-the-file"}')

    code, text = examine("--json", DOCKER_HOST=engine, LLM_API_KEY="sk-very-secret")

    report = json.loads(text)
    assert code == 0
    assert report["can_run"] is True
    found = {check["name"]: check for check in report["checks"]}
    others = {"languages", "sandbox", "guard", "docker", "isolation", "variables"}
    assert set(found) == {*NEEDED, *others, "model", "sessions"}
    assert re.search(r"\bbash \d+\.\d+", found["languages"]["detail"])
    assert found["docker"]["status"] == "ok"
    assert found["docker"]["detail"] == f"engine 28.0.1 at {engine}"
    assert found["model"]["detail"] == "openai from-the-file, key set"
    sure = [check for check in report["checks"] if check["name"] != "sandbox"]
    assert {check["status"] for check in sure} == {"ok"}
    assert (found["sandbox"]["status"] == "ok") == (not sandbox.probe().missing)
    assert ("root" in found["guard"]["detail"]) == (os.geteuid() == 0)
    assert "very-secret" not in text


def test_an_engine_without_the_image_of_kernels_is_told_how_to_get_it(
    engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Engine, "has_image", False)
    monkeypatch.setenv("DOCKER_HOST", engine)

    found = doctor._check_docker(tmp_path)

    assert found.status == "ok"
    assert "without the image of kernels; build it with: taskweaver-ext image build" in found.detail


def test_the_engine_and_the_image_of_a_project_are_checked(
    engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Engine, "has_image", False)
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    settings = {"execution_service.engine_url": engine, "execution_service.custom_image": "mine:1"}
    (tmp_path / "taskweaver_config.json").write_text(json.dumps(settings))

    found = doctor._check_docker(tmp_path)

    assert found.detail == f"engine 28.0.1 at {engine}, without the image mine:1"


def test_an_interpreter_that_cannot_run_kernels_is_a_failure_with_a_remedy(
    examine: Callable[..., Any], tmp_path: Path
) -> None:
    python = tmp_path / "bare" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S "$@"\n')
    python.chmod(0o755)

    code, text = examine(VIRTUAL_ENV=str(tmp_path / "bare"))

    assert code == 1
    assert f"FAIL  ipykernel: The Python at {python} has no ipykernel" in text
    assert re.search(r"-> .*pip install .*ipykernel", text)
    assert "FAIL  kernel: " in text


def test_settings_that_make_no_sense_are_named(tmp_path: Path) -> None:
    (tmp_path / "taskweaver_config.json").write_text('{"llm.temperature": "warm"}')

    finding = doctor._check_model(tmp_path)

    assert finding.status == "warning"
    assert "llm.temperature is 'warm'" in finding.detail
    assert finding.advice


@pytest.mark.parametrize(
    ("free_bytes", "status"), [(1 << 40, "ok"), (500 << 20, "warning"), (1 << 20, "failed")]
)
def test_little_space_on_the_disk_is_noticed(
    monkeypatch: pytest.MonkeyPatch, free_bytes: int, status: str
) -> None:
    usage = SimpleNamespace(free=free_bytes)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)

    finding = doctor._check_disk()

    assert finding.status == status
    assert bool(finding.advice) is (status != "ok")


def test_a_temporary_folder_that_cannot_be_written_is_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc/no-such-folder")

    finding = doctor._check_temporary_folder()

    assert finding.status == "failed"
    assert "TMPDIR" in finding.advice


def test_a_model_at_an_address_of_its_own_may_need_no_key(tmp_path: Path) -> None:
    settings = {"llm.api_base": "http://localhost:8000/v1", "llm.model": "m"}
    (tmp_path / "taskweaver_config.json").write_text(json.dumps(settings))

    finding = doctor._check_model(tmp_path)

    assert (finding.status, finding.detail) == ("ok", "openai m, key not set")


def test_a_broken_project_file_keeps_no_user_from_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taskweaver_config.json").write_text("{")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/missing.sock")

    finding = doctor._check_docker(tmp_path)
    cleaned = subprocess.run(
        [sys.executable, "-m", "taskweaver_ext.cli", "doctor", "--clean", "--json"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "missing.sock" in finding.detail
    assert finding.advice
    assert cleaned.returncode == 0, cleaned.stderr
    assert "missing.sock" in json.loads(cleaned.stdout)["problem"]
