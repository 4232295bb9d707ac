"""A round, end to end: a real HTTP server for the model, a real kernel for the code."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from taskweaver_ext.conversation import AttachmentType, Round
from taskweaver_ext.errors import SessionError
from taskweaver_ext.events.types import (
    PostEventType,
    RoundEventType,
    SessionEventType,
    TaskWeaverEvent,
)
from tests.support.conversations import (
    API_KEY,
    Background,
    Listener,
    answer,
    attached,
    code,
    make_app,
    plan,
)
from tests.support.executions import LIMIT_SECONDS, wait_until
from tests.support.model_server import (
    HttpFailure,
    ModelServer,
    RecordedRequest,
    ScriptedAnswer,
    ScriptEntry,
)


def said(request: RecordedRequest) -> str:
    """Everything a request told the model."""
    return "\n".join(str(message["content"]) for message in request.body["messages"])


def test_a_request_is_planned_coded_run_and_answered(tmp_path: Path) -> None:
    script = [
        ScriptedAnswer(plan("Add 1 and 2 and print it."), wire_bytes=7),
        ScriptedAnswer(code("total = 1 + 2\nprint('total is', total)"), piece_chars=1),
        ScriptedAnswer(answer("The total is 3."), piece_chars=3),
    ]
    listener = Listener()
    with ModelServer(script) as server, make_app(tmp_path / "p", server.openai_url) as app:
        chat_round = app.get_session().send_message("What is 1 + 2?", listener)

    assert chat_round.state == "finished"
    assert [(post.send_from, post.send_to) for post in chat_round.post_list] == [
        ("User", "Planner"),
        ("Planner", "CodeInterpreter"),
        ("CodeInterpreter", "Planner"),
        ("Planner", "User"),
    ]
    _, planned, coded, answered = chat_round.post_list
    assert attached(planned, AttachmentType.plan) == "1. do it\n2. report"
    assert attached(planned, AttachmentType.stop) == "InProcess"
    assert attached(coded, AttachmentType.verification) == "CORRECT"
    assert attached(coded, AttachmentType.execution_status) == "SUCCESS"
    assert "total is 3" in attached(coded, AttachmentType.execution_result)
    assert answered.message == "The total is 3."
    assert listener.output() == "total is 3\n"
    assert listener.statuses_of_panel() == ["gen", "exec", "done"]
    assert listener.code_of_panel() == "total = 1 + 2\nprint('total is', total)"
    assert "What is 1 + 2?" in said(server.requests[0])
    assert "Add 1 and 2" in said(server.requests[1])
    assert "total is 3" in said(server.requests[2])


def test_output_and_code_are_seen_while_they_come(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    source = f"""
import pathlib, time
print("waiting")
limit = time.monotonic() + 20
while not pathlib.Path({str(gate)!r}).exists() and time.monotonic() < limit:
    time.sleep(0.01)
print("done" if time.monotonic() < limit else "nobody heard")
"""
    script = [ScriptedAnswer(plan("Wait.")), ScriptedAnswer(code(source)), ScriptedAnswer("{}")]
    script[2] = ScriptedAnswer(answer("It waited."))

    def open_gate_on_first_output(event: TaskWeaverEvent) -> None:
        if event.t is PostEventType.post_execution_output:
            gate.touch()  # only now may the code end

    listener = Listener(open_gate_on_first_output)
    with ModelServer(script) as server, make_app(tmp_path / "p", server.openai_url) as app:
        chat_round = app.get_session().send_message("wait", listener)

    assert chat_round.state == "finished"
    assert listener.output() == "waiting\ndone\n"
    pieces = [
        event
        for event in listener.events
        if "sub_type" in event.extra and event.extra["sub_type"] == "code_exec.code"
    ]
    assert len(pieces) > 10  # five characters at a time, not all at once
    plans = [
        event.msg
        for event in listener.events
        if "type" in event.extra and event.extra["type"] is AttachmentType.plan
    ]
    assert len(plans) > 3


def test_an_error_is_repaired(tmp_path: Path) -> None:
    script = [
        ScriptedAnswer(plan("Divide.")),
        ScriptedAnswer(code("print('before'); 1 / 0")),
        ScriptedAnswer(code("print(1 / 2)")),
        ScriptedAnswer(answer("0.5")),
    ]
    listener = Listener()
    with ModelServer(script) as server, make_app(tmp_path / "p", server.openai_url) as app:
        chat_round = app.get_session().send_message("divide", listener)

    failed, repaired = chat_round.post_list[2:4]
    assert (failed.send_from, failed.send_to) == ("CodeInterpreter", "CodeInterpreter")
    assert attached(failed, AttachmentType.execution_status) == "FAILURE"
    assert attached(repaired, AttachmentType.execution_status) == "SUCCESS"
    assert "ZeroDivisionError" in said(server.requests[2])
    assert "before" in said(server.requests[2])
    assert "ZeroDivisionError" not in said(server.requests[3])  # the planner hears the result only
    assert "ZeroDivisionError" in listener.errors_of_code()
    assert listener.statuses_of_panel() == ["gen", "exec", "error", "gen", "exec", "done"]
    assert chat_round.post_list[-1].message == "0.5"


def test_a_question_of_the_agents_code_is_answered_by_the_person(tmp_path: Path) -> None:
    script = [
        ScriptedAnswer(plan("Ask.")),
        ScriptedAnswer(code("print('hello', input('name? '))")),
        ScriptedAnswer(answer("Greeted.")),
    ]
    asked: list[str] = []

    def reply(prompt: str, _password: bool) -> str:
        asked.append(prompt)
        return "Ada"

    listener = Listener()
    with ModelServer(script) as server, make_app(tmp_path / "p", server.openai_url) as app:
        app.get_session().send_message("greet me", listener, on_input=reply)

    assert asked == ["name? "]
    assert listener.output() == "hello Ada\n"


def test_repairing_ends_at_the_limit_and_the_planner_is_told(tmp_path: Path) -> None:
    script = [
        ScriptedAnswer(plan("Fail.")),
        *[ScriptedAnswer(code(f"raise ValueError('number {n}')")) for n in range(3)],
        ScriptedAnswer(plan("It cannot be done.", to="User", stop="TaskFailure")),
    ]
    with (
        ModelServer(script) as server,
        make_app(tmp_path / "p", server.openai_url, code_interpreter__max_retry_count=2) as app,
    ):
        chat_round = app.get_session().send_message("fail")

    assert chat_round.state == "finished"
    assert len(server.requests) == 5
    assert "number 2" in said(server.requests[4])
    assert attached(chat_round.post_list[-1], AttachmentType.stop) == "TaskFailure"


def test_code_that_must_not_run_is_refused_and_written_again(tmp_path: Path) -> None:
    script = [
        ScriptedAnswer(plan("Compute.")),
        ScriptedAnswer(code("print(eval('1 + 1'))")),
        ScriptedAnswer(code("print(1 + 1)")),
        ScriptedAnswer(answer("2")),
    ]
    listener = Listener()
    with ModelServer(script) as server, make_app(tmp_path / "p", server.openai_url) as app:
        chat_round = app.get_session().send_message("compute", listener)

    refused = chat_round.post_list[2]
    assert attached(refused, AttachmentType.verification) == "INCORRECT"
    assert "eval" in attached(refused, AttachmentType.code_error)
    assert attached(refused, AttachmentType.execution_status) == "NONE"
    assert "'eval' is not allowed" in said(server.requests[2])
    assert listener.output() == "2\n"
    assert listener.statuses_of_panel() == ["gen", "error", "gen", "exec", "done"]


@pytest.mark.parametrize(
    "malformed",
    [
        "",
        "I would rather not.",
        '{"response": {"plan": "1. x", "send_to": "Code',
        '{"response": {"message": "for nobody", "send_to": "Nobody", "plan": "x"}}',
        "[]",
        '{"response": null}',
        '{"response": ' * 300,
    ],
)
def test_a_planners_reply_that_cannot_be_used_is_asked_for_again(
    tmp_path: Path, malformed: str
) -> None:
    script = [ScriptedAnswer(malformed), ScriptedAnswer(answer("hello"))]
    with ModelServer(script) as server, make_app(tmp_path / "p", server.openai_url) as app:
        chat_round = app.get_session().send_message("hi")

    assert chat_round.state == "finished"
    assert chat_round.post_list[-1].message == "hello"
    assert "Reply again" in said(server.requests[1])


@pytest.mark.parametrize(
    "odd",
    [
        "Sure! Here is my {plan}:\n```json\n" + answer("hello") + "\n```\nAnything else?",
        answer("hello")[:-2],  # the closing braces are missing
        answer("hello").replace('"stop"', '"note": None, "stop"'),
        answer("hello")[:-2] + ",}}",
        json.dumps(json.loads(answer("hello"))["response"]),
        answer("hello").replace('"1. do it\\n2. report"', '["1. do it", "2. report"]'),
    ],
)
def test_a_planners_reply_that_is_nearly_right_is_used(tmp_path: Path, odd: str) -> None:
    with (
        ModelServer([ScriptedAnswer(odd)]) as server,
        make_app(tmp_path / "p", server.openai_url) as app,
    ):
        chat_round = app.get_session().send_message("hi")

    assert chat_round.post_list[-1].message == "hello"
    assert attached(chat_round.post_list[-1], AttachmentType.plan) == "1. do it\n2. report"


def test_a_planner_that_is_never_understood_ends_the_round(tmp_path: Path) -> None:
    script = [ScriptedAnswer("gibberish")] * 4
    listener = Listener()
    with ModelServer(script) as server, make_app(tmp_path / "p", server.openai_url) as app:
        chat_round = app.get_session().send_message("hi", listener)

    assert chat_round.state == "failed"
    assert "4 times in a row" in listener.errors()[0]
    assert server.unused_entries == 0


def test_a_reply_that_was_cut_off_is_not_run(tmp_path: Path) -> None:
    script = [
        ScriptedAnswer(plan("Delete nothing.")),
        ScriptedAnswer(code("print('half')\nprint('whole')")[:-22], finish_reason="length"),
        ScriptedAnswer(code("print('whole')")),
        ScriptedAnswer(answer("done")),
    ]
    listener = Listener()
    with ModelServer(script) as server, make_app(tmp_path / "p", server.openai_url) as app:
        app.get_session().send_message("go", listener)

    assert listener.output() == "whole\n"
    assert "cut off" in said(server.requests[2])
    assert listener.statuses_of_panel() == ["gen", "error", "gen", "exec", "done"]


def test_a_reply_that_breaks_off_is_asked_for_again(tmp_path: Path) -> None:
    script = [
        ScriptedAnswer(plan("Print.")),
        ScriptedAnswer(code("print('lost')")[:60], ending="drop"),
        ScriptedAnswer(code("print('kept')")),
        ScriptedAnswer(answer("done")),
    ]
    listener = Listener()
    with ModelServer(script) as server, make_app(tmp_path / "p", server.openai_url) as app:
        chat_round = app.get_session().send_message("go", listener)

    assert chat_round.state == "finished"
    assert listener.output() == "kept\n"
    # It was not the model's fault, so it is asked the same again.
    assert server.requests[2].body["messages"] == server.requests[1].body["messages"]


@pytest.mark.parametrize(
    ("unfit", "way_out"),
    [
        (ScriptedAnswer('{"resp', ending="drop"), "Check the connection"),
        (ScriptedAnswer('{"resp', finish_reason="length"), "Raise llm.max_tokens"),
        (ScriptedAnswer("I would rather not."), "Ask in other words"),
    ],
)
def test_replies_that_are_never_of_use_end_with_what_to_do(
    tmp_path: Path, unfit: ScriptedAnswer, way_out: str
) -> None:
    with ModelServer([unfit] * 4) as server, make_app(tmp_path / "p", server.openai_url) as app:
        chat_round = app.get_session().send_message("go")

    assert chat_round.state == "failed"
    assert way_out in chat_round.error


def test_prose_around_code_is_forgiven(tmp_path: Path) -> None:
    script = [
        ScriptedAnswer(plan("Print.")),
        ScriptedAnswer("Here you are:\n```python\nprint('from a fence')\n```\nGood luck!"),
        ScriptedAnswer(answer("done")),
    ]
    listener = Listener()
    with ModelServer(script) as server, make_app(tmp_path / "p", server.openai_url) as app:
        app.get_session().send_message("go", listener)

    assert listener.output() == "from a fence\n"


def test_roles_that_only_talk_to_each_other_are_ended(tmp_path: Path) -> None:
    script = [ScriptedAnswer(plan("again")), ScriptedAnswer(code("pass"))] * 3
    script.append(ScriptedAnswer(answer("hello")))
    listener = Listener()
    with (
        ModelServer(script) as server,
        make_app(tmp_path / "p", server.openai_url, session__max_internal_chat_round_num=6) as app,
    ):
        session = app.get_session()
        endless = session.send_message("loop", listener)
        next_round = session.send_message("hi")

    assert endless.state == "failed"
    assert "6 times without an answer" in listener.errors()[0]
    assert "max_internal_chat_round_num" in listener.errors()[0]
    assert next_round.state == "finished"


def test_a_model_that_fails_fails_the_round_and_not_the_session(tmp_path: Path) -> None:
    script: list[ScriptEntry] = [
        HttpFailure(401, f"bad key {API_KEY}"),
        ScriptedAnswer(answer("hello")),
    ]
    listener = Listener()
    with ModelServer(script) as server, make_app(tmp_path / "p", server.openai_url) as app:
        session = app.get_session()
        failed = session.send_message("hi", listener)
        good = session.send_message("hi again")
        folder = session.session_dir

    assert failed.state == "failed"
    assert len(listener.errors()) == 1
    assert listener.events[-1].t is RoundEventType.round_end
    assert good.state == "finished"
    written = "".join(path.read_text() for path in folder.rglob("*") if path.is_file())
    assert API_KEY not in written + repr(listener.events)


def test_a_kernel_that_is_killed_is_reported_and_the_agent_goes_on(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    source = f"""
import os, pathlib, time
pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid()))
print("alive", flush=True)
time.sleep(60)
"""
    script = [
        ScriptedAnswer(plan("Sleep.")),
        ScriptedAnswer(code(source)),
        ScriptedAnswer(code("print('alive again')")),
        ScriptedAnswer(answer("The kernel died once.")),
    ]

    def kill_on_first_output(event: TaskWeaverEvent) -> None:
        if event.t is PostEventType.post_execution_output and event.msg == "alive\n":
            os.kill(int(pid_file.read_text()), signal.SIGKILL)

    listener = Listener(kill_on_first_output)
    with ModelServer(script) as server, make_app(tmp_path / "p", server.openai_url) as app:
        chat_round = app.get_session().send_message("sleep", listener)

    assert chat_round.state == "finished"
    assert attached(chat_round.post_list[2], AttachmentType.execution_status) == "DIED"
    assert "variables of earlier code are lost" in said(server.requests[2])
    assert "alive again" in listener.output()


def test_an_interrupt_stops_the_models_reply(tmp_path: Path) -> None:
    script = [
        ScriptedAnswer(plan("never sent")[:80], ending="stall"),
        ScriptedAnswer(answer("hello")),
    ]
    listener = Listener()
    with ModelServer(script) as server, make_app(tmp_path / "p", server.openai_url) as app:
        session = app.get_session()
        running = Background(lambda: session.send_message("hi", listener))
        wait_until(
            lambda: any(e.t is PostEventType.post_attachment_update for e in listener.events)
        )
        assert session.interrupt()
        stopped = running.result()
        assert server.client_left.wait(LIMIT_SECONDS)
        good = session.send_message("hi again")

    assert isinstance(stopped, Round)
    assert stopped.state == "cancelled"
    assert listener.end_states() == ["cancelled"]
    assert listener.errors() == []
    assert good.post_list[-1].message == "hello"


def test_an_interrupt_stops_the_code_and_its_variables_stay(tmp_path: Path) -> None:
    script = [
        ScriptedAnswer(plan("Sleep.")),
        ScriptedAnswer(code("kept = 42\nprint('sleeping')\nimport time\ntime.sleep(60)")),
        ScriptedAnswer(plan("Print it.")),
        ScriptedAnswer(code("print(kept)")),
        ScriptedAnswer(answer("42")),
    ]
    listener = Listener()
    with ModelServer(script) as server, make_app(tmp_path / "p", server.openai_url) as app:
        session = app.get_session()
        running = Background(lambda: session.send_message("sleep", listener))
        wait_until(lambda: "sleeping" in listener.output())
        session.interrupt()
        stopped = running.result()
        session.send_message("print", listener)

    assert isinstance(stopped, Round)
    assert stopped.state == "cancelled"
    assert attached(stopped.post_list[-1], AttachmentType.execution_status) == "CANCELLED"
    assert listener.end_states() == ["cancelled", "finished"]
    assert listener.errors() == []
    assert "42" in listener.output()


def test_code_that_ignores_an_interrupt_is_killed(tmp_path: Path) -> None:
    stubborn = """
import time
print("stubborn")
while True:
    try:
        time.sleep(1)
    except KeyboardInterrupt:
        print("no")
"""
    listener = Listener()
    with make_app(tmp_path / "p") as app:
        session = app.get_session()
        running = Background(lambda: session.run_code("python", stubborn, listener))
        wait_until(lambda: "stubborn" in listener.output())
        session.interrupt()
        wait_until(lambda: "no" in listener.output())
        session.interrupt(kill=True)
        running.result()

        assert session.run_code("python", "print('fresh')", listener).is_success

    assert "fresh" in listener.output()


def test_an_interrupt_without_a_round_does_nothing(tmp_path: Path) -> None:
    with (
        ModelServer([ScriptedAnswer(answer("hello"))]) as server,
        make_app(tmp_path / "p", server.openai_url) as app,
    ):
        session = app.get_session()
        assert not session.interrupt()
        assert session.send_message("hi").state == "finished"


def test_two_rounds_at_once_are_refused(tmp_path: Path) -> None:
    listener = Listener()
    with make_app(tmp_path / "p") as app:
        session = app.get_session()
        source = "print('busy'); import time; time.sleep(60)"
        running = Background(lambda: session.run_code("python", source, listener))
        wait_until(lambda: "busy" in listener.output())

        with pytest.raises(SessionError, match="busy"):
            session.send_message("hi")

        session.interrupt()
        running.result()


def test_a_person_runs_code_and_sees_everything(tmp_path: Path) -> None:
    listener = Listener()
    with make_app(tmp_path / "p") as app:
        session = app.get_session()
        value = session.run_code("python", "x = 40 + 2; x", listener)
        error = session.run_code("python", "1 / 0", listener)
        shell = session.run_code("bash", "echo from the shell; exit 3", listener)
        asked = session.run_code(
            "python", "print(input('name? '))", listener, lambda prompt, password: "Ada"
        )

    assert value.output == "42"
    assert not error.is_success
    assert shell.exit_code == 3
    assert asked.is_success
    assert listener.values() == ["42"]
    assert listener.output() == "from the shell\nAda\n"
    assert "ZeroDivisionError" in listener.errors_of_code()
    assert listener.end_states() == ["finished", "failed", "failed", "finished"]
    assert {e.extra["role"] for e in listener.events if "role" in e.extra} == {"User"}


def test_what_a_person_ran_goes_to_the_agent_when_it_shall(tmp_path: Path) -> None:
    script = [ScriptedAnswer(answer("I see.")), ScriptedAnswer(answer("Nothing new."))]
    with ModelServer(script) as server, make_app(tmp_path / "p", server.openai_url) as app:
        session = app.get_session()
        session.run_code("python", "print('secret of mine')")
        session.settings.set_auto_send("next")
        session.run_code("python", "print('for the ' + 'agent')")
        session.send_message("Did you see it?")

    assert "for the agent" in said(server.requests[0])
    assert "secret of mine" not in said(server.requests[0])
    assert session.context_blocks == ()


def test_files_are_copied_into_the_working_directory(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("a,b\n1,2\n")
    outside = tmp_path / "outside"
    outside.write_text("untouched")
    script = [ScriptedAnswer(answer("Thank you."))]
    with ModelServer(script) as server, make_app(tmp_path / "p", server.openai_url) as app:
        session = app.get_session()
        (session.cwd / "notes.txt").symlink_to(outside)
        session.send_message("look", files=[table, {"name": "../../notes.txt", "content": b"mine"}])

        assert (session.cwd / "table.csv").read_text() == "a,b\n1,2\n"
        assert (session.cwd / "notes-2.txt").read_text() == "mine"
        with pytest.raises(SessionError, match=r"missing\.csv"):
            session.send_message("look", files=[tmp_path / "missing.csv"])
    assert outside.read_text() == "untouched"
    assert "table.csv, notes-2.txt" in said(server.requests[0])


def test_prompts_are_kept_in_the_sessions_folder(tmp_path: Path) -> None:
    with (
        ModelServer([ScriptedAnswer(answer("hello"))]) as server,
        make_app(tmp_path / "p", server.openai_url) as app,
    ):
        session = app.get_session("mine")
        session.send_message("hi")

    folder = session.session_dir
    assert list(folder.glob("planner_prompt_log_*.json"))


def test_tokens_are_counted_by_round_and_by_session(tmp_path: Path) -> None:
    script = [ScriptedAnswer(answer("one")), ScriptedAnswer(answer("two"))]
    listener = Listener()
    with ModelServer(script) as server, make_app(tmp_path / "p", server.openai_url) as app:
        session = app.get_session()
        session.send_message("1")
        session.send_message("2", listener)

    assert session.usage.round.total_tokens == 18
    assert session.usage.session.total_tokens == 36
    statuses = [e.msg for e in listener.events if e.t is PostEventType.post_status_update]
    assert "18 tokens in this round, 36 in the session" in statuses


def test_a_stopped_session_refuses_messages(tmp_path: Path) -> None:
    with make_app(tmp_path / "p") as app:
        session = app.get_session()
        session.stop()
        session.stop()

        with pytest.raises(SessionError, match="stopped"):
            session.send_message("hi")
        with pytest.raises(SessionError, match="stopped"):
            session.run_code("python", "1")


def test_output_that_comes_late_belongs_to_the_post_that_caused_it(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    source = f"""
import pathlib, threading, time
def later():
    while not pathlib.Path({str(gate)!r}).exists():
        time.sleep(0.01)
    print("late")
threading.Thread(target=later).start()
"""
    listener = Listener()
    with make_app(tmp_path / "p") as app:
        session = app.get_session()
        with session.emitter.subscribe(listener):
            first = session.run_code("python", source)
            gate.touch()
            wait_until(lambda: "late" in listener.late_output())

    late = next(e for e in listener.events if e.t is SessionEventType.session_late_output)
    assert "execution_id" in late.extra
    assert late.extra["execution_id"] == first.execution_id


def test_a_kernel_that_died_too_often_gets_another_chance_with_the_next_request(
    tmp_path: Path,
) -> None:
    with make_app(tmp_path / "p") as app:
        session = app.get_session()
        for _ in range(3):
            assert session.run_code("python", "import os; os._exit(1)").death is not None
        given_up = session.run_code("python", "print('never')")
        after = session.run_code("python", "print('again')")

    assert "3 times in a row" in (given_up.error or "")
    assert after.is_success


def test_an_interrupt_stops_a_shell_command(tmp_path: Path) -> None:
    listener = Listener()
    with make_app(tmp_path / "p") as app:
        session = app.get_session()
        running = Background(
            lambda: session.run_code("bash", "kept=1; echo sleeping; sleep 60", listener)
        )
        wait_until(lambda: "sleeping" in listener.output())
        session.interrupt()
        running.result()
        after = session.run_code("bash", "echo kept=$kept")

    assert "".join(after.stdout) == "kept=1\n"
