"""What is too much is refused with a clear error, and costs nobody else anything."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.server.conftest import OpenServer
from tests.support.server import ServerProcess, output_of
from tests.support.terminal_program import LIMIT_SECONDS


def code_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def test_a_body_that_is_too_large_is_refused_before_it_is_read(open_server: OpenServer) -> None:
    server = open_server(SERVER_MAX_BODY_MB="1", SERVER_MAX_UPLOAD_MB="1")
    session = server.make_session()
    large = b'{"code": "' + b"x" * (1 << 20) + b'"}'

    said = server.http.post(f"sessions/{session}/runs", content=large)
    unsaid = server.http.post(f"sessions/{session}/runs", content=iter([large]))
    upload = server.http.put(f"sessions/{session}/files/a", content=iter([large]))

    assert code_of(said) == code_of(unsaid) == code_of(upload) == (413, "too_large")
    assert server.get(f"sessions/{session}/files")["files"] == []


def test_too_many_sessions_are_refused(open_server: OpenServer) -> None:
    server = open_server(SERVER_MAX_SESSIONS="2")
    first = server.make_session()
    server.make_session()

    assert code_of(server.http.post("sessions")) == (429, "too_many_sessions")
    server.post(f"sessions/{first}/end")
    assert server.make_session()
    assert code_of(server.http.post(f"sessions/{first}/resume")) == (429, "too_many_sessions")


def test_too_many_sessions_are_refused_when_all_are_asked_for_at_once(
    open_server: OpenServer,
) -> None:
    server = open_server(SERVER_MAX_SESSIONS="3")
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: server.http.post("sessions").status_code, range(20)))

    assert sorted(answers) == [201] * 3 + [429] * 17


def test_too_many_connections_are_refused_and_those_that_are_open_go_on(
    open_server: OpenServer,
) -> None:
    server = open_server(SERVER_MAX_CONNECTIONS="3")
    session = server.make_session()
    with ExitStack() as stack:
        sockets = [stack.enter_context(server.socket(session)) for _ in range(3)]
        response = server.http.get("sessions")
        assert code_of(response) == (503, "too_many_connections")
        assert response.headers["retry-after"] == "1"
        with pytest.raises(InvalidStatus) as refused, server.socket(session):
            pass
        assert refused.value.response.status_code == 503
        sockets[0].send(command="run_code", code="print(1)", id=1)
        for one in sockets:
            one.event("round_end")


def test_too_many_requests_are_refused(open_server: OpenServer) -> None:
    server = open_server(SERVER_REQUESTS_PER_SECOND="5")

    answers = [server.http.get("health") for _ in range(60)]

    refused = [one for one in answers if one.status_code == 429]
    assert refused
    assert code_of(refused[0]) == (429, "too_many_requests")


def test_a_hundred_clients_see_the_same(server: ServerProcess) -> None:
    session = server.make_session()
    with ExitStack() as stack:
        sockets = [stack.enter_context(server.socket(session)) for _ in range(100)]
        assert server.get(f"sessions/{session}")["client_count"] == 100
        sockets[0].send(command="run_code", code="for n in range(5_000): print(n)", id=1)
        for one in sockets:
            one.event("round_end")

    assert all(one.seen == sockets[0].seen for one in sockets)
    assert output_of(sockets[0].seen) == "".join(f"{number}\n" for number in range(5_000))


def test_a_client_that_does_not_read_holds_nothing_back(open_server: OpenServer) -> None:
    server = open_server(SERVER_HISTORY_MB="1")
    session = server.make_session()
    port = int(server.url.rstrip("/").rpartition(":")[2])
    slow = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_SECONDS)
    slow.request(
        "GET",
        f"/api/v1/sessions/{session}/events",
        headers={"authorization": f"Bearer {server.token}"},
    )
    stream = slow.getresponse()

    events = server.run_to_end(session, "for n in range(2_000_000): print('0123456789')")
    memory = peak_memory(server)

    assert len(output_of(events)) == 22_000_000
    assert memory < 300 << 20, "22 MB of output are not in memory for a client that does not read"
    received = 0
    while received < 22_000_000:  # when it does read, it gets everything
        received += len(stream.read1(1 << 20))
    slow.close()


def peak_memory(server: ServerProcess) -> int:
    lines = server.http.get("metrics").text.splitlines()
    [line] = [one for one in lines if one.startswith("taskweaver_peak_memory_bytes ")]
    return int(line.split()[1])


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"nonsense",
        b"[]",
        b'{"command": 1}',
        b'{"command": "no_such"}',
        b'{"command": "run_code"}',
        b'{"command": "run_code", "code": 1}',
        b'{"command": "send_message", "message": "x", "files": ["/etc/passwd"]}',
        b'{"command": "send_message", "message": "x", "files": ["../../journal.jsonl"]}',
        b"\xff\xfe",
        json.dumps({"command": "answer", "question_id": "q", "outcome": "x"}).encode(),
        b'{"a":' * 10_000,
    ],
    ids=range(12),
)
def test_a_message_that_makes_no_sense_is_refused_and_costs_nothing_else(
    server: ServerProcess, message: bytes
) -> None:
    with server.socket(server.make_session()) as events:
        events.connection.send(message)
        refused = events.until(lambda one: "reply" in one)
        events.send(command="interrupt", id=1)

        assert refused["reply"] == "refused"
        assert refused["reason"]
        assert events.last_reply(1)["outcome"] == {"was_running": False}


def test_a_message_that_is_too_large_ends_its_connection_alone(server: ServerProcess) -> None:
    session = server.make_session()
    with contextlib.suppress(ConnectionClosed, OSError), server.socket(session) as events:
        events.connection.send("x" * (5 << 20))
        events.until(lambda one: "reply" in one)
        pytest.fail("the message was taken")
    assert server.get(f"sessions/{session}")["state"] == "idle"


def test_strangers_that_speak_no_http_cost_nothing(server: ServerProcess) -> None:
    port = int(server.url.rstrip("/").rpartition(":")[2])
    for bytes_sent in (b"\x16\x03\x01", b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 5000, b"A" * 100_000):
        with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_SECONDS) as stranger:
            stranger.sendall(bytes_sent)

    assert server.get("health")["status"] == "ok"


def test_an_idle_session_is_put_away_and_comes_back(open_server: OpenServer, project: Path) -> None:
    server = open_server(SERVER_IDLE_MINUTES="0.02")
    session = server.make_session()
    with server.socket(session) as events:
        events.send(command="run_code", code="x = 1\nimport time; time.sleep(3)", id=1)
        assert events.last_reply(1)["outcome"]["status"] == "success", "work is not idle"
        notice = events.until(lambda one: one.get("extra", {}).get("about") == "put_away")
        events.event("session_end")
        assert "comes back" in notice["msg"]
        deadline = time.monotonic() + LIMIT_SECONDS
        while server.get(f"sessions/{session}")["state"] != "saved":
            assert time.monotonic() < deadline

        events.send(command="run_code", code="print(x)", id=2)
        events.event("session_start")
        outcome = events.last_reply(2)["outcome"]

    assert outcome["status"] == "error", "the kernel is a fresh one"
    assert events.epoch == 2
    assert [one["seq"] for one in events.seen] == list(range(1, len(events.seen) + 1))
