"""Sessions over HTTP: made, found, renamed, put away, ended with the server, answered once."""

from __future__ import annotations

import io
import json
import threading
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.cli.test_ask import configure
from tests.server.conftest import OpenServer
from tests.support.conversations import answer, code, plan
from tests.support.model_server import ModelServer, ScriptedAnswer
from tests.support.server import ServerProcess, Values, is_end_of, output_of, until
from tests.support.terminal_program import LIMIT_SECONDS

FOR_EVER = "print('on', flush=True)\nwhile True: pass"


def test_sessions_are_listed_searched_renamed_and_deleted(server: ServerProcess) -> None:
    session = server.make_session()
    server.run_to_end(session, "print('about zebras')")

    renamed = server.http.patch(f"sessions/{session}", json={"title": "Striped  animals"}).json()
    by_title = server.get("sessions", search="animals striped")["sessions"]
    by_id = server.get("sessions", search=session[-8:])["sessions"]
    none = server.get("sessions", search="giraffes")["sessions"]

    assert renamed["title"] == "Striped animals"
    assert [one["session_id"] for one in by_title] == [session] == [by_id[0]["session_id"]]
    assert none == []
    server.post(f"sessions/{session}/end")
    assert server.get(f"sessions/{session}")["state"] == "saved"
    server.http.patch(f"sessions/{session}", json={"title": "Saved"})
    assert server.get(f"sessions/{session}")["title"] == "Saved"
    assert server.http.delete(f"sessions/{session}").status_code == 204
    assert server.http.get(f"sessions/{session}").status_code == 404


def test_a_session_that_was_deleted_does_not_come_back(server: ServerProcess) -> None:
    """Also for requests that were already waiting for it."""
    session = server.make_session()
    path = f"sessions/{session}"
    with ThreadPoolExecutor(6) as pool:
        others = [pool.submit(server.http.post, f"{path}/end") for _ in range(2)]
        deleting = pool.submit(server.http.delete, path)
        others += [pool.submit(server.http.post, f"{path}/resume") for _ in range(3)]

    assert deleting.result().status_code == 204
    assert {one.result().status_code for one in others} <= {200, 404}
    assert server.http.get(path).status_code == 404
    assert server.get("sessions", search=session)["sessions"] == []


def test_what_another_process_does_to_a_session_reaches_clients(
    project: Path, open_server: OpenServer
) -> None:
    here, elsewhere = open_server(), open_server()
    session = elsewhere.make_session()
    with here.events(session) as events:
        first = next(events)
        round_id = elsewhere.run(session, "print('elsewhere')")
        seen = [first, *until(events, lambda one: is_end_of(one, round_id))]
        cursor = seen[-1]["id"]
        elsewhere.http.delete(f"sessions/{session}")
        rest = list(events)

    assert output_of(seen) == "elsewhere\n"
    numbers = [one["seq"] for one in [*seen, *rest]]
    assert numbers == list(range(1, len(numbers) + 1))
    gone = here.http.get(f"sessions/{session}/events", params={"after": cursor})
    assert gone.status_code == 404


def test_a_renaming_reaches_those_that_look(server: ServerProcess) -> None:
    session = server.make_session()
    with server.socket(session) as events:
        server.http.patch(f"sessions/{session}", json={"title": "One"})
        assert events.event("session_renamed")["msg"] == "One"
        server.post(f"sessions/{session}/end")
        server.http.patch(f"sessions/{session}", json={"title": "Two"})
        assert events.event("session_renamed")["msg"] == "Two"

    assert [one["seq"] for one in events.seen] == list(range(1, len(events.seen) + 1))


def test_a_session_goes_on_without_clients(server: ServerProcess) -> None:
    session = server.make_session()
    with server.socket(session) as events:
        source = "import time\nfor n in range(20): time.sleep(.1); print(n)"
        events.send(command="run_code", code=source)
        events.event("post_execution_output")

    with server.events(session, events.cursor) as rest:
        seen = [*until(rest, lambda one: one["event"] == "round_end")]

    assert output_of(events.seen) + output_of(seen) == "".join(f"{n}\n" for n in range(20))


def test_two_clients_may_answer_and_the_first_one_counts(server: ServerProcess) -> None:
    session = server.make_session()
    with server.socket(session) as one, server.socket(session) as other:
        one.send(command="run_code", code="print(input('name? '))")
        question = one.event("session_question")["extra"]["question_id"]
        assert other.event("session_question")["extra"]["question_id"] == question
        assert server.get(f"sessions/{session}")["questions"][0]["question_id"] == question

        first = {"question_id": question, "outcome": "answered", "text": "Ada"}
        assert server.http.post(f"sessions/{session}/answers", json=first).status_code == 204
        second = server.http.post(f"sessions/{session}/answers", json=first)
        assert other.event("session_answered")["extra"]["answer"] == "Ada"
        other.event("round_end")

    assert second.status_code == 409
    assert "Ada\n" in output_of(other.seen)


def test_a_round_at_a_time(server: ServerProcess) -> None:
    session = server.make_session()
    with server.socket(session) as events:
        events.send(command="run_code", code=FOR_EVER)
        events.event("post_execution_output")
        busy = server.http.post(f"sessions/{session}/runs", json={"code": "1"})
        assert server.get(f"sessions/{session}")["state"] == "busy"
        stopped = server.post(f"sessions/{session}/interrupt", kill=True)
        end = events.event("round_end")
        again = server.post(f"sessions/{session}/interrupt")

    assert busy.status_code == 409
    assert (stopped, again) == ({"was_running": True}, {"was_running": False})
    assert end["extra"]["state"] == "cancelled"


def test_the_agent_answers_and_asks_over_http(project: Path, open_server: OpenServer) -> None:
    script = [
        ScriptedAnswer(plan("List the files.")),
        ScriptedAnswer(code("echo listed", "bash")),
        ScriptedAnswer(answer("There is one file.")),
    ]
    with ModelServer(script) as model:
        configure(project, model)
        server = open_server()
        session = server.make_session()
        server.http.put(f"sessions/{session}/files/a.txt", content=b"x")
        with server.socket(session) as events:
            body = {"message": "Which files are there?", "files": ["a.txt"]}
            begun = server.http.post(f"sessions/{session}/messages", json=body)
            question = events.event("session_question")["extra"]
            approve = {"question_id": question["question_id"], "outcome": "approved"}
            server.http.post(f"sessions/{session}/answers", json=approve)
            events.until(lambda one: is_end_of(one, begun.json()["round_id"]))
        blocks = server.get(f"sessions/{session}/blocks")["blocks"]

    assert question["code"] == "echo listed"
    assert output_of(events.seen) == "listed\n"
    assert [one["text"] for one in blocks if one["block"] == "message"][-1] == "There is one file."
    [cell] = [one for one in blocks if one["block"] == "cell"]
    assert (cell["code"], cell["status"]) == ("echo listed", "success")


def test_any_command_of_the_protocol_can_be_posted(server: ServerProcess) -> None:
    session = server.make_session()
    path = f"sessions/{session}/commands"

    done = server.post(path, command="share", fields={"blocks": ["know this"]})
    begun = server.post(path, command="run_code", fields={"code": "1 + 1"})
    unknown = server.http.post(path, json={"command": "fly"})
    stopped = server.post(path, command="stop")

    assert (done["reply"], begun["reply"], stopped["reply"]) == ("done", "accepted", "done")
    assert begun["round_id"]
    assert unknown.status_code == 400
    assert server.get(f"sessions/{session}")["state"] == "saved"


@pytest.mark.parametrize("session", ["none", "..", "%2e%2e", "a%2Fb", "a%00b", "x" * 300])
def test_what_is_no_session_is_not_found(server: ServerProcess, session: str) -> None:
    for path in ("", "/events", "/files", "/blocks"):
        assert server.http.get(f"sessions/{session}{path}").status_code == 404, path


@pytest.mark.parametrize("to", ["ipynb", "md", "html", "bundle"])
def test_a_session_is_exported_while_it_runs(server: ServerProcess, to: str) -> None:
    session = server.make_session()
    server.run_to_end(session, "print('kept')")

    response = server.http.get(f"sessions/{session}/export", params={"to": to})

    assert response.is_success
    assert f'filename="{session}' in response.headers["content-disposition"]
    content = response.content
    if to == "bundle":
        with zipfile.ZipFile(io.BytesIO(content)) as bundle:
            content = b"".join(map(bundle.read, bundle.namelist()))
    assert b"kept" in content
    if to == "ipynb":
        json.loads(content)


def test_a_signal_ends_it_in_time_with_whole_journals_and_without_kernels(
    open_server: OpenServer, project: Path
) -> None:
    server = open_server()
    sessions = [server.make_session() for _ in range(3)]
    with server.socket(sessions[0]) as events:
        for session in sessions:
            server.run(session, FOR_EVER)
        events.event("post_execution_output")
        family = psutil.Process(server.process.pid).children(recursive=True)
        seconds = server.terminate()
        assert events.rest() in (1001, 1012, None)

    assert server.process.returncode == 0
    assert seconds < 5
    gone, alive = psutil.wait_procs(family, timeout=LIMIT_SECONDS)
    assert alive == []
    assert len(gone) == len(family)
    for session in sessions:
        [journal] = project.rglob(f"{session}/journal.jsonl")
        assert '"event":"session_end"' in journal.read_text().splitlines()[-1]


def test_what_it_prints_is_one_line_with_its_address(open_server: OpenServer) -> None:
    server = open_server()
    assert server.address == f"{server.url}?token={server.token}"
    server.terminate()
    assert server.process.stdout is not None
    assert server.process.stdout.read() == ""


def test_many_sessions_work_at_the_same_time(server: ServerProcess) -> None:
    sessions = [server.make_session() for _ in range(4)]
    outputs: dict[str, str] = {}

    def work(session: str) -> None:
        events = server.run_to_end(session, f"for n in range(1000): print({session!r}, n)")
        outputs[session] = output_of(events)

    threads = [threading.Thread(target=work, args=(one,)) for one in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECONDS)

    for session in sessions:
        assert outputs[session] == "".join(f"{session} {n}\n" for n in range(1000))


def test_numbers_for_prometheus(server: ServerProcess) -> None:
    server.make_session()

    lines = server.http.get("metrics").text.splitlines()

    numbers = dict(line.split(" ") for line in lines if not line.startswith("#"))
    assert numbers["taskweaver_sessions_running"] == "1"
    assert float(numbers["taskweaver_start_time_seconds"]) <= time.time()


def answered(
    ask: Callable[[], Values], is_it: Callable[[Values], bool] = lambda _answer: True
) -> Values:
    """Ask until the kernel has answered in time: the machine may be busy, too."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while (answer := ask())["status"] != "ok" or not is_it(answer):
        assert time.monotonic() < deadline, answer
    return answer


def test_a_busy_kernel_can_be_looked_into(server: ServerProcess) -> None:
    session = server.make_session()
    path = f"sessions/{session}"
    before = server.get(f"{path}/variables")
    with server.socket(session) as events:
        events.send(
            command="run_code", code="import time\nnumber = 42\nprint('on')\ntime.sleep(99)"
        )
        events.event("post_execution_output")
        seen = answered(
            lambda: server.get(f"{path}/variables"),
            lambda one: one["running"]["stack"][-1]["text"] == "time.sleep(99)",
        )
        place = {"code": "numb", "cursor": 4, "language": "python"}
        completed = answered(lambda: server.post(f"{path}/completions", **place))
        shell = server.post(f"{path}/completions", code="l", language="bash")
        known = answered(lambda: server.post(f"{path}/inspections", code="number"))
        server.post(f"{path}/interrupt")
        events.event("round_end")

    assert before["variables"] == []
    assert {"number": "42"}.items() <= {v["name"]: v["value"] for v in seen["variables"]}.items()
    assert seen["state"] == "busy"
    assert completed["matches"][0]["text"] == "number"
    assert (completed["start"], completed["end"]) == (0, 4)
    assert shell["matches"] == []
    assert known["value"] == "42"
    wrong = server.http.post(f"{path}/completions", json={"code": "a", "cursor": 2})
    assert wrong.status_code == 400


def test_a_setting_is_changed_for_all_that_look(server: ServerProcess) -> None:
    session = server.make_session()
    with server.socket(session) as events:
        changed = {"command": "set_approval", "fields": {"mode": "deny", "scope": "all"}}
        assert server.post(f"sessions/{session}/commands", **changed)["reply"] == "done"
        told = events.until(lambda one: one.get("extra", {}).get("approval") == "deny")

    assert told["event"] == "session_settings"
    settings = server.get(f"sessions/{session}")["settings"]
    assert (settings["approval"], settings["approval_scope"]) == ("deny", "all")
