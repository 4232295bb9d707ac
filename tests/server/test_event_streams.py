"""Events over SSE and WebSocket, from any event on: real server, real kernels, real clients."""

from __future__ import annotations

import hashlib
import random

import pytest
from websockets.exceptions import InvalidStatus

from taskweaver_ext.events.event_json import event_from_json
from tests.server.conftest import OpenServer
from tests.support.server import ServerProcess, Values, is_end_of, output_of, until

MANY_LINES = 200_000
FLOOD = f"for number in range({MANY_LINES}): print('line', number)"
FLOOD_HASH = hashlib.sha256(
    "".join(f"line {number}\n" for number in range(MANY_LINES)).encode()
).hexdigest()


def test_both_ways_tell_the_same_events_with_the_same_numbers(server: ServerProcess) -> None:
    session = server.make_session()
    told = server.run_to_end(session, "print('hi'); 6 * 7")

    with server.events(session) as events:
        by_sse = [*until(events, lambda one: one["event"] == "round_end")]
    with server.socket(session) as socket:
        socket.event("round_end")

    assert [one["seq"] for one in by_sse] == list(range(1, len(by_sse) + 1))
    assert [one["id"] for one in by_sse] == [f"1:{one['seq']}" for one in by_sse]
    assert socket.seen == [{k: v for k, v in one.items() if k != "id"} for one in by_sse]
    assert socket.epoch == 1
    assert output_of(told) == "hi\n"
    for event in socket.seen:
        event_from_json(event)


def test_output_arrives_while_the_code_still_runs(server: ServerProcess) -> None:
    session = server.make_session()
    with server.socket(session) as socket:
        socket.send(command="run_code", code="print(input('name? '))", id=1)
        question = socket.event("session_question")["extra"]["question_id"]
        socket.send(command="answer", question_id=question, outcome="answered", text="Ada", id=2)
        outcome = socket.last_reply(1)["outcome"]

    assert outcome["status"] == "success"
    assert "Ada\n" in output_of(socket.seen)


def test_a_reply_comes_after_the_events_that_happened_before_it(server: ServerProcess) -> None:
    session = server.make_session()
    with server.socket(session) as socket:
        socket.send(command="run_code", code="for n in range(1000): print(n)", id="x")
        reply = socket.last_reply("x")

    assert is_end_of(socket.seen[-1], reply["outcome"]["round_id"])


@pytest.mark.parametrize("after", ["1", "a:b", "1:-2", "1:1:1", "9" * 30])
def test_a_cursor_that_makes_no_sense_is_refused(server: ServerProcess, after: str) -> None:
    session = server.make_session()

    response = server.http.get(f"sessions/{session}/events", params={"after": after})

    assert response.status_code == 400
    assert response.json()["error"]["code"] == "bad_cursor"
    with pytest.raises(InvalidStatus) as refused, server.socket(session, after):
        pass
    assert refused.value.response.status_code == 400


@pytest.mark.parametrize("after", ["1:999", "2:1"])
def test_an_event_that_has_not_been_is_refused(server: ServerProcess, after: str) -> None:
    session = server.make_session()

    response = server.http.get(f"sessions/{session}/events", params={"after": after})

    assert response.status_code == 409
    assert response.json()["error"]["code"] == "no_such_event"


@pytest.mark.parametrize("seed", range(5))
def test_a_connection_cut_at_random_moments_misses_nothing(
    server: ServerProcess, seed: int
) -> None:
    chance = random.Random(seed)
    session = server.make_session()
    seen: list[Values] = []
    cursor = ""
    round_id = server.run(session, FLOOD)

    while not seen or not is_end_of(seen[-1], round_id):
        with server.socket(session, cursor) as socket:
            for _ in range(chance.randint(1, 60)):
                if is_end_of(socket.next(), round_id):
                    break
        seen += socket.seen
        cursor = socket.cursor or cursor

    assert [one["seq"] for one in seen] == list(range(1, len(seen) + 1))
    assert hashlib.sha256(output_of(seen).encode()).hexdigest() == FLOOD_HASH


def test_a_client_that_was_away_gets_what_memory_no_longer_has(open_server: OpenServer) -> None:
    server = open_server(SERVER_HISTORY_MB="1")
    session = server.make_session()

    server.run_to_end(session, "for n in range(300_000): print('0123456789')")
    with server.events(session) as events:
        seen = [*until(events, lambda one: one["event"] == "round_end")]

    assert [one["seq"] for one in seen] == list(range(1, len(seen) + 1))
    assert output_of(seen) == "0123456789\n" * 300_000


def test_a_client_goes_on_after_the_server_was_killed(open_server: OpenServer) -> None:
    server = open_server()
    session = server.make_session()
    with server.socket(session) as socket:
        socket.send(command="run_code", code="import time\nprint('on')\ntime.sleep(60)", id=1)
        socket.event("post_execution_output")
        server.kill()
        socket.rest()

    again = open_server()
    with again.socket(session, socket.cursor) as later:
        later.send(command="run_code", code="print('again')", id=2)
        later.last_reply(2)

    assert socket.epoch < later.epoch
    seen = socket.seen + later.seen
    assert [one["seq"] for one in seen] == list(range(1, len(seen) + 1))
    assert output_of(seen) == "on\nagain\n"
