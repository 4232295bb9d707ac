"""`chat --json`: driven by a program through pipes, with real kernels and a real model server."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import psutil
import pytest

from taskweaver_ext.chat.protocol import MAX_LINE_BYTES
from taskweaver_ext.events.event_json import event_from_json
from tests.cli.test_ask import configure
from tests.support.conversations import answer, code, plan
from tests.support.executions import wait_until
from tests.support.json_chat import JsonChatProcess
from tests.support.model_server import ModelServer, ScriptedAnswer, ScriptEntry
from tests.support.terminal_program import LIMIT_SECONDS

FOR_EVER = "import time\nprint('on', flush=True)\nwhile True: time.sleep(0.01)"


class OpenJsonChat(Protocol):
    def __call__(self, *arguments: str, reads: bool = True) -> JsonChatProcess: ...


@pytest.fixture
def open_json_chat(project: Path) -> Iterator[OpenJsonChat]:
    with ExitStack() as stack:
        yield lambda *arguments, reads=True: stack.enter_context(
            JsonChatProcess(project, *arguments, reads=reads)
        )


@pytest.fixture
def chat(open_json_chat: OpenJsonChat) -> JsonChatProcess:
    return open_json_chat()


def test_the_first_line_names_protocol_and_session_and_events_are_whole(
    chat: JsonChatProcess, project: Path
) -> None:
    chat.send(command="run_code", code="print('hi'); 6 * 7", id="a")
    outcome = chat.last_reply("a")["outcome"]
    assert chat.end() == 0

    first, *rest = chat.seen
    assert first["protocol"] == 1
    assert any(path.name == first["session_id"] for path in project.rglob("*"))
    assert (outcome["state"], outcome["status"]) == ("finished", "success")
    events = [line for line in rest if "event" in line]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    for event in events:
        event_from_json(event)
    assert events[-1]["event"] == "session_end"
    assert chat.output() == "hi\n"


def test_a_reply_comes_after_the_events_of_its_round(chat: JsonChatProcess) -> None:
    chat.send(command="run_code", code="for n in range(3000): print(n, flush=True)", id=1)
    chat.last_reply(1)

    assert chat.output() == "".join(f"{n}\n" for n in range(3000))
    assert chat.seen[-2]["event"] == "round_end"


def test_the_agent_answers_and_the_reply_says_what_it_cost(
    project: Path, open_json_chat: OpenJsonChat
) -> None:
    script: list[ScriptEntry] = [
        ScriptedAnswer(plan("go")),
        ScriptedAnswer(code("print('lucky', 7)")),
        ScriptedAnswer(answer("It is 7.")),
    ]
    (project / "data.csv").write_text("1,2\n")
    with ModelServer(script) as server:
        configure(project, server)
        chat = open_json_chat()
        chat.send(command="share", blocks=["I like primes."], id="s")
        assert chat.reply("s")["reply"] == "done"
        chat.send(command="send_message", message="what is lucky?", files=["data.csv"], id=5)
        accepted = chat.reply(5)
        outcome = chat.reply(5)["outcome"]
        assert chat.end() == 0

    assert accepted["round_id"] == outcome["round_id"]
    assert outcome["answer"] == "It is 7."
    assert outcome["is_done"]
    assert outcome["usage"] == {"prompt_tokens": 33, "completion_tokens": 21}
    told = json.dumps(server.requests[0].body)
    assert "I like primes." in told
    assert "data.csv" in told
    assert "lucky 7\n" in chat.output()


def test_code_asks_and_is_answered_while_the_round_runs(chat: JsonChatProcess) -> None:
    chat.send(command="run_code", code="print('hello', input('name? '))", id=1)
    question = chat.event("session_question")
    question_id = question["extra"]["question_id"]
    chat.send(command="answer", question_id=question_id, outcome="approved", id=2)
    chat.send(command="answer", question_id=question_id, outcome="answered", text="Ada", id=3)
    chat.send(command="answer", question_id=question_id, outcome="answered", text="Bob", id=4)
    replies = [chat.reply(number) for number in (2, 3, 4)]
    chat.until(lambda line: line.get("reply") == "done" and line["command"] == "run_code")

    assert question["msg"] == "name? "
    assert [reply["reply"] for reply in replies] == ["refused", "done", "refused"]
    assert "is no answer to this question" in replies[0]["reason"]
    assert "is not open" in replies[2]["reason"]
    assert chat.output() == "hello Ada\n"


def test_shell_of_the_agent_waits_for_a_decision_unless_it_is_set(
    project: Path, open_json_chat: OpenJsonChat
) -> None:
    script: list[ScriptEntry] = [
        ScriptedAnswer(plan("go")),
        ScriptedAnswer(code("echo asked", "bash")),
        ScriptedAnswer(answer("done")),
        ScriptedAnswer(plan("go")),
        ScriptedAnswer(code("echo unasked", "bash")),
        ScriptedAnswer(answer("done")),
    ]
    with ModelServer(script) as server:
        configure(project, server)
        chat = open_json_chat()
        chat.send(command="send_message", message="echo", id=1)
        question = chat.event("session_question")["extra"]
        edited = {"outcome": "edited", "text": "echo edited"}
        chat.send(command="answer", question_id=question["question_id"], id=2, **edited)
        chat.until(lambda line: line.get("id") == 1 and line.get("reply") == "done")
        chat.send(command="set_approval", mode="auto", id=3)
        chat.send(command="send_message", message="again", id=4)
        chat.last_reply(4)

    assert question["code"] == "echo asked"
    assert chat.output() == "edited\nunasked\n"


def test_an_interrupt_stops_what_runs_and_variables_stay(chat: JsonChatProcess) -> None:
    chat.send(command="interrupt", id="idle")
    assert chat.reply("idle")["outcome"] == {"was_running": False}
    chat.send(command="run_code", code="kept = 1\n" + FOR_EVER, id=1)
    chat.event("post_execution_output")
    chat.send(command="run_code", code="1", id=2)
    chat.send(command="send_message", message="hello", id=3)
    busy = [chat.reply(2), chat.reply(3)]
    chat.send(command="interrupt", id=4)
    assert chat.reply(4)["outcome"] == {"was_running": True}
    stopped = chat.reply(1)["outcome"]
    chat.send(command="run_code", code="print(kept)", id=5)
    again = chat.last_reply(5)["outcome"]

    assert [reply["reply"] for reply in busy] == ["refused", "refused"]
    assert all("busy" in reply["reason"] for reply in busy)
    assert (stopped["state"], stopped["status"]) == ("cancelled", "cancelled")
    assert again["state"] == "finished"
    ends = [line for line in chat.seen if line.get("event") == "round_end"]
    assert [end["extra"]["state"] for end in ends] == ["cancelled", "finished"]


NONSENSE = [
    (b"nonsense", "no JSON"),
    (b"[" * 100_000, "deep"),
    (b"[1]", "A command is an object"),
    (b"{}", "There is no command null"),
    (b'{"command":"explode"}', 'There is no command "explode"'),
    (b'{"command":["stop"]}', "There is no command"),
    (b'{"command":"run_code"}', "needs the field code"),
    (b'{"command":"run_code","code":7}', "code of run_code cannot be 7"),
    (b'{"command":"run_code","code":"1","speed":2}', 'no field "speed"'),
    (b'{"command":"interrupt","id":{}}', "id must be"),
    (b'{"command":"interrupt","id":"%s"}' % (b"x" * 1000), "id must be"),
    (b'{"command":"share","blocks":["\xff"]}', "not UTF-8"),
    (rb'{"command":"share","blocks":["\ud800"]}', "half a surrogate pair"),
    (b"x" * (MAX_LINE_BYTES + 1), "left out"),
    (b'{"command":"set_approval","mode":"maybe"}', "mode of set_approval"),
    (b'{"command":"send_message","message":"m","files":["/nowhere/x"]}', "cannot be copied"),
    (b'{"command":"answer","question_id":"q","outcome":"answered"}', "is not open"),
]


def test_nonsense_is_refused_with_a_sentence_and_costs_nothing_else(chat: JsonChatProcess) -> None:
    for line, reason in NONSENSE:
        chat.send_bytes(line + b"\n\n")
        refused = chat.until(lambda line: "reply" in line)
        chat.send(command="interrupt", id="after")

        assert refused["reply"] == "refused"
        assert reason in refused["reason"]
        assert len(refused["reason"]) < 1000
        assert chat.reply("after")["reply"] == "done"


def test_what_plugins_read_can_be_set(chat: JsonChatProcess) -> None:
    chat.send(command="update_session_var", variables={"unit": "km"}, id=1)

    assert chat.last_reply(1)["reply"] == "done"


def test_runs_are_shared_with_the_agent_on_request(chat: JsonChatProcess) -> None:
    chat.send(command="set_auto_send", value="next")
    chat.send(command="run_code", code="print('seen')", id=1)
    update = chat.event("session_context_update")

    assert "print('seen')" in update["extra"]["blocks"][0]


def test_what_the_agent_may_run_and_knows_is_decided_by_commands(
    project: Path, open_json_chat: OpenJsonChat
) -> None:
    script: list[ScriptEntry] = [
        *map(ScriptedAnswer, (plan("go"), code("echo one", "bash"), answer("done"))),
        *map(ScriptedAnswer, (answer("I see."), answer("nothing left"))),
    ]
    with ModelServer(script) as server:
        configure(project, server)
        chat = open_json_chat()
        chat.send(command="send_message", message="echo", id=1)
        question = chat.event("session_question")["extra"]
        about = {"question_id": question["question_id"], "outcome": "pattern"}
        chat.send(command="answer", text="ls*", id=2, **about)
        refused = chat.reply(2)
        chat.send(command="answer", text="echo *", id=3, **about)
        allowed = chat.event("session_settings")["extra"]
        chat.until(lambda line: line.get("id") == 1 and line.get("reply") == "done")
        chat.send(command="set_auto_send", value="on", id=4)
        chat.send(command="run_code", code="print('mi' + 'ne')", id=5)
        chat.until(lambda line: line.get("id") == 5 and line.get("reply") == "done")
        for number, block in ((6, 1), (7, 2), (8, 2)):
            chat.send(command="drop", block=block, id=number)
        dropped = [chat.reply(number)["reply"] for number in (6, 7, 8)]
        chat.send(command="send_message", message="what is left?", id=9)
        chat.last_reply(9)

    assert question["block"] == 1
    assert "does not allow this command" in refused["reason"]
    assert allowed["allowed_patterns"] == ["echo *"]
    assert dropped == ["done", "done", "refused"]
    sent = [json.dumps(request.body) for request in server.requests]
    assert "mine" in sent[3], "the agent reacts to what was run"
    assert "mine" not in sent[4]
    assert "echo one" not in sent[4]


def test_at_the_end_of_input_what_runs_may_finish_but_not_ask(chat: JsonChatProcess) -> None:
    asks = (
        "print('begun', flush=True)\n"
        "try:\n    input('? ')\n"
        "except EOFError:\n    print('nobody there')\n"
        "try:\n    input('again? ')\n"
        "except (EOFError, Exception):\n    print('still nobody')"
    )
    chat.send(command="run_code", code=asks, id=1)
    chat.event("session_question")

    assert chat.end() == 0
    assert chat.output() == "begun\nnobody there\nstill nobody\n"
    assert chat.seen[-1]["event"] == "session_end"
    assert chat.seen[-2]["outcome"]["state"] == "finished"


def test_a_last_command_needs_no_newline(chat: JsonChatProcess) -> None:
    chat.send_bytes(b'{"command":"run_code","code":"print(1)"}')

    assert chat.end() == 0
    assert chat.output() == "1\n"


def test_code_that_fails_is_exit_code_1(chat: JsonChatProcess) -> None:
    chat.send(command="run_code", code="1/0", id=1)

    assert "ZeroDivisionError" in chat.last_reply(1)["outcome"]["error"]
    assert chat.end() == 1


def test_stop_kills_what_runs_and_every_reply_comes(chat: JsonChatProcess) -> None:
    chat.send(command="run_code", code=FOR_EVER, id=1)
    chat.event("post_execution_output")
    chat.send(command="stop", id=2)
    chat.send(command="run_code", code="print('never')", id=3)

    assert chat.exit_code() == 0
    replies = [(line["id"], line["reply"]) for line in chat.seen if "reply" in line]
    assert sorted(replies) == [(1, "accepted"), (1, "done"), (2, "accepted"), (2, "done")]
    assert chat.seen[-1]["command"] == "stop"
    assert [line["extra"]["state"] for line in chat.seen if line.get("event") == "round_end"] == [
        "cancelled"
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("runs", [True, False], ids=["running", "idle"])
def test_a_signal_ends_the_session_in_order(
    chat: JsonChatProcess, number: signal.Signals, runs: bool
) -> None:
    if runs:
        chat.send(command="run_code", code=FOR_EVER, id=1)
        chat.event("post_execution_output")
    else:
        chat.event("session_start")
        chat.send(command="interrupt", id=0)
        chat.reply(0)
    chat.process.send_signal(number)

    assert chat.exit_code() == 130
    names = [line.get("event") for line in chat.seen]
    assert names.count("session_end") == 1
    if runs:
        [done] = [line for line in chat.seen if line.get("reply") == "done"]
        assert done["outcome"]["state"] == "cancelled"


def test_a_reader_that_is_gone_ends_everything(open_json_chat: OpenJsonChat) -> None:
    chat = open_json_chat(reads=False)
    assert chat.process.stdout is not None
    chat.send(command="run_code", code=FOR_EVER)
    while b"post_execution_output" not in chat.process.stdout.readline():
        pass
    kernels = psutil.Process(chat.process.pid).children(recursive=True)
    chat.process.stdout.close()

    assert chat.process.wait(LIMIT_SECONDS) == 1
    assert chat.process.stderr is not None
    assert b"Traceback" not in chat.process.stderr.read()
    wait_until(lambda: not any(kernel.is_running() for kernel in kernels))


def test_a_reader_that_does_not_read_holds_back_nothing_and_loses_nothing(
    open_json_chat: OpenJsonChat, project: Path
) -> None:
    chat = open_json_chat(reads=False)
    assert chat.process.stdin is not None
    assert chat.process.stdout is not None
    done = project / "done"
    lines = 30_000  # 30 MB: more than a pipe and the memory for events hold
    chat.send(
        command="run_code",
        code=f"for n in range({lines}): print(str(n).zfill(999))\nopen({str(done)!r}, 'w').close()",
    )
    wait_until(done.exists)
    for number in range(5000):  # more replies than wait for a reader: these wait in the pipe
        os.set_blocking(chat.process.stdin.fileno(), False)
        try:
            os.write(chat.process.stdin.fileno(), b'{"command":"interrupt","id":%d}\n' % number)
        except BlockingIOError:
            break
    chat.process.stdin.close()
    seen = [json.loads(line) for line in chat.process.stdout]

    output = [line for line in seen if line.get("event") == "post_execution_output"]
    assert "".join(line["msg"] for line in output) == "".join(f"{n:0999}\n" for n in range(lines))
    assert seen[-1]["event"] == "session_end"
    ids = [line["id"] for line in seen if "reply" in line and "id" in line]
    assert ids == sorted(ids)
    assert chat.process.wait(LIMIT_SECONDS) == 0


def test_a_signal_ends_it_though_nobody_reads(open_json_chat: OpenJsonChat, project: Path) -> None:
    chat = open_json_chat(reads=False)
    done = project / "done"
    chat.send(
        command="run_code",
        code=f"for n in range(200_000): print(n)\nopen({str(done)!r}, 'w').close()\n{FOR_EVER}",
    )
    wait_until(done.exists)
    chat.process.send_signal(signal.SIGTERM)

    assert chat.process.wait(LIMIT_SECONDS) == 130


ROLE = """
import os, subprocess
from taskweaver_ext import Role

class Loud(Role):
    def reply(self, memory):
        print("printed by a role")
        os.write(1, b"written by a role\\n")
        subprocess.run(["sh", "-c", "echo from a child; cat"])
        post = self.context.emitter.create_post_proxy(self.alias)
        post.update_send_to("User")
        post.update_message("quiet")
        return post.end()
"""


def test_what_a_projects_own_code_prints_never_gets_between_the_lines(
    project: Path, open_json_chat: OpenJsonChat
) -> None:
    roles = project / "roles"
    roles.mkdir()
    (roles / "loud.py").write_text(ROLE)
    (roles / "loud.role.yaml").write_text("alias: Loud\nmodule: loud.Loud\nintro: '- loud'\n")
    settings = {"execution_service.kernel_mode": "local", "session.roles": ["loud"]}
    (project / "taskweaver_config.json").write_text(json.dumps(settings))
    chat = open_json_chat()
    chat.send(command="send_message", message="go", id=1)
    assert chat.last_reply(1)["outcome"]["answer"] == "quiet"
    assert chat.end() == 0

    assert chat.process.stderr is not None
    heard = chat.process.stderr.read().decode()
    assert {"printed by a role", "written by a role", "from a child"} <= set(heard.splitlines())


def test_a_session_goes_on_with_the_events_after_its_earlier_ones(
    open_json_chat: OpenJsonChat,
) -> None:
    first = open_json_chat()
    first.send(command="run_code", code="print(1)", id=1)
    first.last_reply(1)
    assert first.end() == 0
    session_id, last = first.seen[0]["session_id"], first.seen[-1]["seq"]

    second = open_json_chat("--resume", session_id)
    second.send(command="run_code", code="print(2)", id=1)
    second.last_reply(1)
    assert second.end() == 0

    assert second.seen[0]["session_id"] == session_id
    numbers = [line["seq"] for line in second.seen if "event" in line]
    assert numbers == list(range(last + 1, last + 1 + len(numbers)))
    assert second.output() == "2\n"
