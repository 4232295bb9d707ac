"""One request from the command line, against a real server."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

from taskweaver_ext.config.folders import FILE_NAME
from taskweaver_ext.events.event_json import event_from_json
from taskweaver_ext.events.types import TaskWeaverEvent
from tests.support.chat_terminal import environ
from tests.support.command_line import PROGRAM
from tests.support.conversations import answer, code, plan
from tests.support.emulated_terminal import EmulatedTerminal
from tests.support.model_server import HttpFailure, ModelServer, ScriptedAnswer, ScriptEntry
from tests.support.terminal_program import LIMIT_SECONDS


def configure(project: Path, server: ModelServer) -> None:
    settings = {
        "llm.api_type": "openai",
        "llm.api_base": server.openai_url,
        "llm.api_key": "secret-key",
        "llm.model": "m",
        "llm.max_retries": 0,
    }
    (project / "taskweaver_config.json").write_text(json.dumps(settings))


def ask(project: Path, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, "ask", *arguments, "-p", str(project)],
        cwd=project,
        capture_output=True,
        text=True,
        env=environ(project),
        timeout=LIMIT_SECONDS,
        check=False,
        input=str(options.get("input", "")),
    )


def test_the_answer_is_on_stdout_and_the_work_on_stderr(project: Path) -> None:
    script: list[ScriptEntry] = [
        ScriptedAnswer(plan("print seven")),
        ScriptedAnswer(code("print('lucky', 7)")),
        ScriptedAnswer(answer("It is **7**.")),
    ]
    with ModelServer(script) as server:
        configure(project, server)
        done = ask(project, "what", "is", "lucky?")

    assert done.stdout == "It is **7**.\n"
    assert done.returncode == 0
    for row in (
        " ╶─ Planner → CodeInterpreter: print seven",
        " ╭─► [1] print('lucky', 7)",
        " │   lucky 7",
        " ╰──● [1] ✔ done",
    ):
        assert row in done.stderr.splitlines()
    assert done.stderr.splitlines().count(" │   lucky 7") == 1
    assert "(54 tokens: 33 read, 21 written)" in done.stderr.splitlines()
    assert "secret-key" not in done.stdout + done.stderr
    written = [path for path in project.rglob("*") if path.is_file() and path.name != FILE_NAME]
    assert {".json", ".log", ".jsonl"} <= {path.suffix for path in written}
    for path in written:
        assert b"secret-key" not in path.read_bytes(), path


def test_files_go_with_the_request_and_it_may_come_from_stdin(
    project: Path, tmp_path: Path
) -> None:
    data = tmp_path / "numbers.csv"
    data.write_text("1\n2\n")
    with ModelServer([ScriptedAnswer(answer("I see"))]) as server:
        configure(project, server)
        done = ask(project, "-", "--file", str(data), input="look at it")

    assert done.stdout == "I see\n"
    told = json.dumps(server.requests[0].body)
    assert "look at it" in told
    assert "numbers.csv" in told


def test_a_failed_task_is_exit_code_1_and_one_line_says_why(project: Path) -> None:
    with ModelServer([HttpFailure(401, "bad key")]) as server:
        configure(project, server)
        done = ask(project, "anything")

    assert done.returncode == 1
    assert done.stdout == ""
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr
    assert "tokens" not in done.stderr
    assert "secret-key" not in done.stderr


def test_an_answer_that_the_task_failed_is_no_success(project: Path) -> None:
    failure = plan("It cannot be done.", to="User", stop="TaskFailure")
    with ModelServer([ScriptedAnswer(failure)]) as server:
        configure(project, server)
        done = ask(project, "anything")

    assert done.returncode == 1
    assert done.stdout == "It cannot be done.\n"


def test_nothing_to_ask_is_misuse(project: Path) -> None:
    assert ask(project, " ").returncode == 2


def test_ctrl_c_stops_a_reply_that_never_ends(project: Path) -> None:
    stalled = ScriptedAnswer(answer("never")[:60], ending="stall")
    with ModelServer([stalled]) as server:
        configure(project, server)
        process = subprocess.Popen(
            [*PROGRAM, "ask", "anything", "-p", str(project)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environ(project),
        )
        server.wait_for_request()
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=LIMIT_SECONDS)

    assert process.returncode == 130
    assert stdout == ""
    assert "[Cancelled]" in stderr


def test_on_a_terminal_code_is_seen_as_it_is_written_and_the_answer_is_drawn(
    project: Path,
) -> None:
    script: list[ScriptEntry] = [
        ScriptedAnswer(plan("go")),
        ScriptedAnswer(code("for n in range(3):\n    print('n', n)")),
        ScriptedAnswer(answer("# Result\n\n**fine**")),
    ]
    with ModelServer(script) as server:
        configure(project, server)
        with EmulatedTerminal(
            [*PROGRAM, "ask", "count", "-p", str(project)], cwd=project, environ=environ(project)
        ) as terminal:
            exit_code = terminal.wait()
            lines = terminal.screen.all_lines

    assert exit_code == 0
    start = lines.index(" ╭─► [1]")
    assert lines[start + 1 : start + 3] == [" │   for n in range(3):", " │       print('n', n)"]
    assert b"\x1b[35mfor\x1b[0m" in terminal.screen.received
    assert any("Result" in line for line in lines[-6:])
    assert not any("**" in line for line in lines)
    assert terminal.screen.has_cursor


def test_json_is_events_on_stdout_and_nothing_else(project: Path) -> None:
    script: list[ScriptEntry] = [
        ScriptedAnswer(plan("print seven")),
        ScriptedAnswer(code("print('lucky', 7)")),
        ScriptedAnswer(answer("It is **7**.")),
    ]
    with ModelServer(script) as server:
        configure(project, server)
        done = ask(project, "what is lucky?", "--json")

    events = [event_from_json(json.loads(line)) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert all(isinstance(event, TaskWeaverEvent) for event in events)
    assert [getattr(event, "seq", 0) for event in events] == list(range(1, len(events) + 1))
    assert '"event":"session_start"' in done.stdout.splitlines()[0]
    assert '"event":"session_end"' in done.stdout.splitlines()[-1]
    assert "lucky 7" in done.stdout
    assert "It is **7**." in "".join(getattr(event, "msg", "") for event in events)
    assert "--resume" in done.stderr
    assert "secret-key" not in done.stdout + done.stderr


def test_json_of_a_failed_task_is_exit_code_1_and_says_why(project: Path) -> None:
    with ModelServer([HttpFailure(401, "bad key")]) as server:
        configure(project, server)
        done = ask(project, "anything", "--json")

    assert done.returncode == 1
    assert '"event":"round_error"' in done.stdout
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr


def test_json_comes_while_it_happens_and_ctrl_c_ends_it_in_order(project: Path) -> None:
    stalled = ScriptedAnswer(answer("never")[:60], ending="stall")
    with ModelServer([stalled]) as server:
        configure(project, server)
        process = subprocess.Popen(
            [*PROGRAM, "ask", "anything", "--json", "-p", str(project)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environ(project),
        )
        assert process.stdout is not None
        for line in process.stdout:
            if "reading the model's reply" in line:
                break  # it has begun, and does not end
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=LIMIT_SECONDS)

    assert process.returncode == 130
    lines = [json.loads(line) for line in stdout.splitlines()]
    ends = [line["extra"]["state"] for line in lines if line["event"] == "round_end"]
    assert ends == ["cancelled"]
    assert lines[-1]["event"] == "session_end"
    assert "Traceback" not in stderr
