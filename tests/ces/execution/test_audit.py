"""The audit log has every run, privately, and no secrets."""

from __future__ import annotations

import json
import os
import pwd
import threading
from pathlib import Path
from typing import Any

import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.audit import STARS, AuditLog, mask_secrets
from taskweaver_ext.ces.execution.results import ExecutionId, ExecutionResult, ExecutionStatus
from taskweaver_ext.ces.executors import ExecutorRegistry
from taskweaver_ext.text.redaction import MASK, Redactor
from tests.support.growth import growth


def entries_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_is_written_at_its_start_and_at_its_end(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl", who="session s1")
    result = ExecutionResult(
        execution_id=ExecutionId("e1"),
        code="exit 3",
        status=ExecutionStatus.ERROR,
        error="The program ended with exit code 3.",
        exit_code=3,
        duration_seconds=0.25,
    )

    log.write_start("e1", executor="process:bash", code="exit 3", cwd="/work", has_stdin=True)
    log.write_end(result, executor="process:bash")
    log.close()

    started, ended = entries_of(log.path)
    user = pwd.getpwuid(os.getuid()).pw_name
    for entry in (started, ended):
        assert (entry["who"], entry["user"], entry["pid"]) == ("session s1", user, os.getpid())
        assert entry["time"].endswith("+00:00")
    assert started["event"] == "started"
    assert (started["code"], started["cwd"], started["has_stdin"]) == ("exit 3", "/work", True)
    assert ended["event"] == "ended"
    assert (ended["status"], ended["exit_code"], ended["duration_seconds"]) == ("error", 3, 0.25)
    assert ended["error"] == "The program ended with exit code 3."


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "folder" / "audit.jsonl")

    log.write_start("e1", executor="shell:bash", code="id")
    log.close()

    assert log.path.stat().st_mode & 0o777 == 0o600
    assert log.path.parent.stat().st_mode & 0o777 == 0o700


def test_it_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "audit.jsonl").symlink_to(tmp_path / "elsewhere")
    log = AuditLog(tmp_path / "audit.jsonl")

    failure = log.write_start("e1", executor="shell:bash", code="id")

    assert failure is not None
    assert "symbolic links" in failure.message
    assert not (tmp_path / "elsewhere").exists()


def test_lines_of_many_threads_and_logs_stay_whole(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    logs = [AuditLog(path, who=str(number)) for number in range(4)]

    def write(log: AuditLog) -> None:
        for number in range(50):
            log.write_start(f"e{number}", executor="shell:bash", code="x" * 1000)

    threads = [threading.Thread(target=write, args=(log,)) for log in logs for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for log in logs:
        log.close()

    assert len(entries_of(path)) == 400


def test_code_that_is_very_long_is_cut_and_known_by_its_digest(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    code = "x" * 1_000_000

    log.write_start("e1", executor="shell:bash", code=code)
    log.close()

    (entry,) = entries_of(log.path)
    assert len(entry["code"]) < 100_000
    assert entry["code_characters"] == len(code)
    assert len(entry["code_sha256"]) == 64


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ('api_key = "abc def"', f'api_key = "{STARS}"'),
        ("export OPENAI_API_KEY=abcdefgh", f"export OPENAI_API_KEY={STARS}"),
        ("d['access_token'] = 'xyz'", f"d['access_token'] = '{STARS}'"),
        ('{"password": "p w"}', f'{{"password": "{STARS}"}}'),
        ("mysql --password hunter2 -u me", f"mysql --password {STARS} -u me"),
        ("curl -H 'Authorization: Bearer abc.def-123'",
         f"curl -H 'Authorization: Bearer {STARS}'"),
        ("psql postgres://me:pw@host/db", f"psql postgres://me:{STARS}@host/db"),
        ("use sk-abcdefghijklmnop1234 now", f"use sk-{STARS} now"),
        ("ghp_abcdefghijklmnopqrst", f"ghp_{STARS}"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----",
         f"-----BEGIN RSA PRIVATE KEY-----{STARS}-----END RSA PRIVATE KEY-----"),
        ("echo my-own-secret-value", f"echo {MASK}"),
    ],
)  # fmt: skip
def test_what_looks_like_a_secret_is_masked(text: str, masked: str) -> None:
    assert mask_secrets(text, Redactor(["my-own-secret-value"])) == masked


@pytest.mark.parametrize(
    "text",
    [
        "token = get_token()",
        'print("the token expired")',
        "PASSWORD=$OTHER command",
        "tokenizer=AutoTokenizer.from_pretrained(name)",
        "cd /tmp && ls -la",
        "for key in keys: print(key)",
    ],
)
def test_ordinary_code_stays_as_it_is(text: str) -> None:
    assert mask_secrets(text) == text


@pytest.mark.parametrize(
    "piece", ["token-", "--token", "a-", "key = ", "://a:", "sk-", "eyJaaaaaaaaaaaa.", "=" * 7]
)
def test_twice_the_text_takes_twice_the_time(piece: str) -> None:
    once = piece * (40_000 // len(piece))

    assert growth(lambda: mask_secrets, [once], [once * 2]) <= 2.5


def test_errors_are_masked_too(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl", redactor=Redactor(["very-secret"]))
    result = ExecutionResult(
        execution_id=ExecutionId("e1"),
        code="",
        status=ExecutionStatus.ERROR,
        error="ValueError: very-secret is wrong",
    )

    log.write_end(result, executor="kernel:python")
    log.close()

    assert entries_of(log.path)[0]["error"] == f"ValueError: {MASK} is wrong"


@pytest.mark.parametrize(
    ("language", "fresh"), [("bash", True), ("bash", False), ("python", False)]
)
def test_a_run_that_cannot_be_written_down_says_so_once(
    environment: Environment, tmp_path: Path, language: str, fresh: bool
) -> None:
    (tmp_path / "file").touch()
    log = AuditLog(tmp_path / "file" / "audit.jsonl")

    with ExecutorRegistry(environment, "s1", audit=log) as registry:
        code = "print('hi')" if language == "python" else "echo hi"
        result = registry.get(language, fresh=fresh).execute(code)

    assert result.stdout == ["hi\n"]
    assert [notice.kind for notice in result.notices] == ["record_failed"]
