"""The client of a container's spawner, when the spawner is not what it should be."""

from __future__ import annotations

import socket
import threading

import pytest

from taskweaver_ext.ces.inside.spawner.spawner_channels import FRAME
from taskweaver_ext.ces.kernels.container import spawner
from taskweaver_ext.ces.kernels.container.spawner import (
    SpawnerClient,
    SpawnerLostError,
    SpawnerSilentError,
)
from tests.support.executions import LIMIT_SECONDS


@pytest.mark.parametrize(
    "nonsense",
    [
        FRAME.pack(1 << 30),
        FRAME.pack(4) + b"null",
        FRAME.pack(2) + b"{}",
        FRAME.pack(3) + b"xyz",
        FRAME.pack(13) + b'{"ended": []}',
        FRAME.pack(24) + b'{"ended":1,"code":1e400}',
        FRAME.pack(15) + b'{"id":Infinity}',
        FRAME.pack(19) + b'{"id":1,"error":[]}',
        FRAME.pack(100_000) + b"[" * 100_000,
        FRAME.pack(8) + b'{"id":1}',
    ],
)
def test_a_spawner_that_talks_nonsense_counts_as_gone(nonsense: bytes) -> None:
    ours, theirs = socket.socketpair()
    lost = threading.Event()
    complaints: list[str] = []

    def hear(complaint: str) -> None:
        complaints.append(complaint)
        lost.set()

    client = SpawnerClient(ours, hear, "test")

    theirs.sendall(nonsense)

    assert lost.wait(LIMIT_SECONDS)
    assert complaints != [""]
    with pytest.raises(SpawnerLostError):
        client.ask("ticks", {}, seconds=LIMIT_SECONDS)
    client.close()
    theirs.close()


def test_a_spawner_that_does_not_answer_in_time_is_not_waited_for() -> None:
    ours, theirs = socket.socketpair()
    client = SpawnerClient(ours, lambda _: None, "test")

    with pytest.raises(SpawnerSilentError):
        client.ask("ticks", {}, seconds=0.05)

    client.close()
    theirs.close()


def test_a_spawner_that_reads_nothing_any_more_counts_as_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spawner, "_SEND_SECONDS", 1)
    ours, theirs = socket.socketpair()
    lost = threading.Event()
    client = SpawnerClient(ours, lambda _: lost.set(), "test")

    with pytest.raises(SpawnerLostError):
        client.ask("find_program", {"command": "x" * (1 << 23)}, seconds=LIMIT_SECONDS)

    assert lost.wait(LIMIT_SECONDS)
    client.close()
    theirs.close()
