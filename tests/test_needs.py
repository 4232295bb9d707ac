"""What the machine cannot give is found out once; its tests are skipped, and CI fails for it."""

from __future__ import annotations

import http.server
import json
import os
import re
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.containers import require_engine
from tests.support.gateways import enterprise_gateway, kernel_gateway
from tests.support.needs import require_chromium, require_node
from tests.support.smol_model import smol_model_file

PROJECT = Path(__file__).resolve().parent.parent


NEEDED: dict[str, Callable[[], object]] = {
    "engine": require_engine,
    "kernel gateway": kernel_gateway,
    "enterprise gateway": enterprise_gateway,
    "model": smol_model_file,
    "node": require_node,
    "chromium": require_chromium,
}


@pytest.fixture(scope="module", params=NEEDED)
def missing(request: pytest.FixtureRequest) -> str | None:
    """Why something is not to be had; what was started for it outlives the tests."""
    try:
        NEEDED[request.param]()
    except pytest.skip.Exception as reason:
        return reason.msg
    return None


@pytest.mark.flaky(reruns=0)  # it was looked for once
def test_the_machine_has_what_tests_need(missing: str | None) -> None:
    if missing and os.environ.get("CI"):
        pytest.fail(f"tests were left out: {missing}")
    if missing:
        pytest.skip(missing)


class RefusingEngine(http.server.BaseHTTPRequestHandler):
    """Says that it is there, and refuses whatever else it is asked for."""

    server: Engine
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.asked.append(path)
        if path.endswith("/_ping"):
            self._answer(200, "OK")
        elif path.endswith("/version"):
            self._answer(200, json.dumps({"ApiVersion": "1.41", "Version": "20"}))
        else:
            self._answer(500, json.dumps({"message": "operation not permitted"}))

    do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815 - the base class wants it so

    def _answer(self, status: int, text: str) -> None:
        self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def address_string(self) -> str:
        return "a client"

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


class Engine(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self.asked: list[str] = []
        super().__init__(str(path), RefusingEngine)


@contextmanager
def refusing_engine(path: Path) -> Iterator[Engine]:
    with Engine(path) as engine:
        thread = threading.Thread(target=engine.serve_forever, args=(0.05,))
        thread.start()
        yield engine
        engine.shutdown()
        thread.join()


def run_tests(folder: Path, *paths: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run tests as scripts/test does, in a home of their own and without anything cached there."""
    options = ["-n", "2", "--dist", "load", "--reruns", "2", "-p", "no:cacheprovider"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environ.pop("CI", None)
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *paths],
        cwd=PROJECT,
        env={**environ, "HOME": str(folder), **variables},
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_an_engine_that_runs_no_container_is_asked_once_and_its_tests_are_skipped(
    tmp_path: Path,
) -> None:
    with refusing_engine(tmp_path / "engine") as engine:
        run = run_tests(
            tmp_path,
            "tests/ces/environment/test_looking.py",
            "tests/session/test_containers.py",
            "-k",
            "container",
            DOCKER_HOST=f"unix://{tmp_path}/engine",
        )

    assert run.returncode == 0, run.stdout
    (skipped,) = [line for line in run.stdout.splitlines() if line.startswith("SKIPPED")]
    assert re.match(r"SKIPPED \[[1-9]", skipped)  # all of them, in one line
    assert "runs no container" in skipped
    assert "operation not permitted" in skipped
    assert "tried again" not in run.stdout
    assert len([path for path in engine.asked if path.endswith("/json")]) == 1


def test_a_missing_package_is_looked_for_once_and_is_one_failure_in_ci(tmp_path: Path) -> None:
    log = tmp_path / "pip.log"
    run = run_tests(
        tmp_path,
        "tests/test_needs.py",
        "tests/ces/environment/test_looking.py",
        "-k",
        "enterprise",
        CI="1",
        PIP_NO_INDEX="1",
        PIP_LOG=str(log),
    )

    assert run.returncode == 1, run.stdout
    (failed,) = [line for line in run.stdout.splitlines() if line.startswith("FAILED")]
    assert "tests were left out: Enterprise Gateway cannot be installed" in failed
    (skipped,) = [line for line in run.stdout.splitlines() if line.startswith("SKIPPED")]
    assert skipped.startswith("SKIPPED [3]")
    assert "tried again" not in run.stdout
    assert log.read_text().count("Using pip") == 1
