"""The description of the API is true: every answer to whatever fits it, or does not, fits it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.server import ServerProcess

LIMIT_SECONDS = 600
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance,negative_data_rejection"
)


def test_every_answer_is_one_that_the_description_knows(
    server: ServerProcess, tmp_path: Path
) -> None:
    session = server.make_session()
    server.run_to_end(session, "print(1)")

    fuzzed = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run"),
            f"{server.url}api/v1/openapi.json",
            *("--header", f"Authorization: Bearer {server.token}"),
            *("--checks", CHECKS),
            *("--phases", "examples,coverage,fuzzing", "--max-examples", "8"),
            *("--seed", "1", "--generation-deterministic", "--workers", "1"),
            *("--exclude-path-regex", "/events$"),  # never ends; its own tests follow it
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "150"},
        timeout=LIMIT_SECONDS,
    )

    said = "\n".join(line[:300] for line in (fuzzed.stdout + fuzzed.stderr).splitlines())
    assert fuzzed.returncode == 0, said


def test_every_route_is_described(server: ServerProcess) -> None:
    described = server.get("openapi.json")

    assert described["openapi"].startswith("3.")
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"].endswith("."), (method, path)
    names = [one["operationId"] for path in described["paths"].values() for one in path.values()]
    assert len(set(names)) == len(names)
