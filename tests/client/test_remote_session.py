"""Both clients of a server: real server, real kernels, connections that are cut."""

from __future__ import annotations

import asyncio
import hashlib
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from taskweaver_ext import AsyncRemoteSession, RemoteSession
from taskweaver_ext.client.wire import ServerAddress
from taskweaver_ext.errors import ConfigError, SessionError
from taskweaver_ext.events.types import (
    PostEventType,
    RoundEventType,
    SessionEventType,
    TaskWeaverEvent,
)
from taskweaver_ext.server.event_streams import KEEP_ALIVE_SECONDS
from tests.support.proxy import FailingProxy
from tests.support.server import ServerProcess
from tests.support.terminal_program import LIMIT_SECONDS

MANY_LINES = 200_000
FLOOD = f"for number in range({MANY_LINES}): print('line', number)"
FLOOD_HASH = hashlib.sha256(
    "".join(f"line {number}\n" for number in range(MANY_LINES)).encode()
).hexdigest()


class CuttingProxy(FailingProxy):
    """Cuts its connections after every few bytes that the server has sent, at random."""

    def __init__(self, port: int, seed: int) -> None:
        super().__init__(port)
        self._chance = random.Random(seed)
        self._next_cut = 10_000
        self.cuts = 0
        self.on_passed = self._cut_now_and_then

    def _cut_now_and_then(self, total: int) -> None:
        if total >= self._next_cut:
            self._next_cut = total + self._chance.randint(10_000, 400_000)
            self.cuts += 1
            self.cut()


@pytest.fixture
def cut_address(server: ServerProcess) -> Iterator[Callable[[int], tuple[str, CuttingProxy]]]:
    with ExitStack() as stack:

        def open_proxy(seed: int) -> tuple[str, CuttingProxy]:
            port = int(server.url.rstrip("/").rpartition(":")[2])
            proxy = CuttingProxy(port, seed)
            stack.callback(proxy.close)
            return f"{proxy.url}/?token={server.token}", proxy

        yield open_proxy


def test_code_runs_and_files_go_there_and_back(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    with RemoteSession(server.address) as session:
        assert session.upload(tmp_path / "a.txt") == "a.txt"
        assert session.upload(b"x", "below/b.bin") == "below/b.bin"
        done = session.run("print(open('a.txt').read()); open('c.txt', 'w').write('made')")
        failed = session.run("1 / 0")
        shell = session.run("echo from the shell", "bash")

        assert (done.state, done.output) == ("finished", "hello\n")
        assert failed.state == "failed"
        assert shell.output == "from the shell\n"
        assert session.files() == ["a.txt", "below/b.bin", "c.txt"]
        assert session.download("c.txt") == b"made"
        assert "".join(session.record(done.execution_ids[0])) == "hello\n"
        assert b"hello" in session.export("md")
        again = RemoteSession(server.address, session.session_id)
        again.close()
        assert session.command("share", blocks=["x"])["reply"] == "done"
        assert session.end()


def test_a_question_is_answered_while_the_code_waits(server: ServerProcess) -> None:
    with RemoteSession(server.address) as session:

        def answer(event: TaskWeaverEvent) -> None:
            if event.t is SessionEventType.session_question and "question_id" in event.extra:
                session.answer(event.extra["question_id"], "answered", "Ada")
                with pytest.raises(SessionError):
                    session.answer(event.extra["question_id"], "answered", "Bob")

        done = session.run("print('hi', input('name? '))", on_event=answer)

    assert "hi Ada\n" in done.output


def test_what_runs_is_stopped_from_another_thread(server: ServerProcess) -> None:
    with RemoteSession(server.address) as session:

        def stop(event: TaskWeaverEvent) -> None:
            if event.t is PostEventType.post_execution_output:
                threading.Thread(target=session.interrupt).start()

        stopped = session.run("print('on')\nwhile True: pass", on_event=stop)

    assert stopped.state == "cancelled"


def test_events_come_exactly_once_through_a_connection_that_is_cut(
    server: ServerProcess, cut_address: Callable[[int], tuple[str, CuttingProxy]]
) -> None:
    url, proxy = cut_address(1)
    with RemoteSession(server.address) as whole, RemoteSession(url, whole.session_id) as session:
        seen: list[TaskWeaverEvent] = []
        whole.run(FLOOD)
        for event in session.events():
            seen.append(event)
            if event.t is RoundEventType.round_end:
                break

    assert proxy.cuts > 3
    assert [one.seq for one in seen] == list(range(1, len(seen) + 1))
    text = "".join(one.msg for one in seen if one.t is PostEventType.post_execution_output)
    assert hashlib.sha256(text.encode()).hexdigest() == FLOOD_HASH


def test_an_event_loop_has_the_same(
    server: ServerProcess, cut_address: Callable[[int], tuple[str, CuttingProxy]]
) -> None:
    url, proxy = cut_address(2)

    async def use() -> tuple[list[TaskWeaverEvent], str]:
        async with AsyncRemoteSession(server.address) as session:
            await session.upload(b"made", "a.txt")
            assert await session.files() == ["a.txt"]
            assert await session.download("a.txt") == b"made"
            done = await session.run(FLOOD)
            assert done.state == "finished"
            record = "".join([part async for part in session.record(done.execution_ids[0])])
            assert not await session.interrupt()
            assert b"line" in await session.export("md")
            seen = []
            async with AsyncRemoteSession(url, session.session_id) as cut:
                async for event in cut.events():
                    seen.append(event)
                    if event.t is RoundEventType.round_end:
                        break
            assert await session.end()
            return seen, record

    seen, record = asyncio.run(use())

    assert proxy.cuts > 3
    assert [one.seq for one in seen] == list(range(1, len(seen) + 1))
    assert hashlib.sha256(record.encode()).hexdigest() == FLOOD_HASH


def test_what_is_wrong_is_an_error_of_ours(server: ServerProcess) -> None:
    wrong_token = f"{server.url}?token=wrong"
    for url, session_id, kind in [
        ("nonsense", None, ConfigError),
        ("ftp://x/", None, ConfigError),
        (wrong_token, None, ConfigError),
        (server.address, "none", SessionError),
        ("http://127.0.0.1:9/?token=x", None, SessionError),
    ]:
        with pytest.raises(kind):
            RemoteSession(url, session_id)
    assert "wrong" not in repr(ServerAddress.parse(wrong_token))


def test_code_that_fails_says_why(server: ServerProcess) -> None:
    with RemoteSession(server.address) as session:
        failed = session.run("1 / 0")
        caught = session.run("print('all is well')")

    assert failed.state == "failed"
    assert "ZeroDivisionError" in failed.error
    assert (caught.state, caught.error) == ("finished", "")


def test_closing_ends_a_stream_at_once_that_another_thread_waits_on(server: ServerProcess) -> None:
    session = RemoteSession(server.address)
    is_waiting, seen = threading.Event(), []

    def follow() -> None:
        for event in session.events():
            seen.append(event)
            is_waiting.set()

    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(follow)
        assert is_waiting.wait(LIMIT_SECONDS)
        session.close()
        following.result(KEEP_ALIVE_SECONDS / 2)  # no longer than the server is silent

    with pytest.raises(SessionError, match="was closed"):
        session.run("1")


def test_a_stream_waits_for_a_server_that_has_too_much_to_do(
    open_server: Callable[..., ServerProcess],
) -> None:
    server = open_server(SERVER_MAX_CONNECTIONS="1")
    with RemoteSession(server.address) as session, ThreadPoolExecutor(1) as pool:
        with server.socket(session.session_id):
            refused = server.http.get("sessions").status_code
            events = pool.submit(lambda: list(session.events(follow=False)))
            with pytest.raises(TimeoutError):
                events.result(0.5)
        assert refused == 503
        assert events.result(LIMIT_SECONDS)[0].seq == 1


def test_a_server_that_is_gone_is_said_after_a_while(
    open_server: Callable[[], ServerProcess],
) -> None:
    server = open_server()
    with RemoteSession(server.address, reconnect_seconds=0.3) as session:
        events = session.events()
        next(events)
        server.kill()
        with pytest.raises(SessionError, match="cannot be reached"):
            list(events)


def test_a_round_whose_server_was_killed_ends_once_there_is_one_again(
    open_server: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    token = ("--token-file", str(tmp_path / "token"))
    server = open_server(*token)
    port = server.url.rstrip("/").rpartition(":")[2]
    with RemoteSession(server.address) as session:

        def kill(event: TaskWeaverEvent) -> None:
            is_running = server.process.poll() is None
            if is_running and event.t is PostEventType.post_execution_output:
                server.kill()
                open_server(*token, "--port", port)

        ended = session.run("print('on')\nwhile True: pass", on_event=kill)

    assert (ended.state, ended.output.strip()) == ("failed", "on")
    assert "ended in the middle" in ended.error
