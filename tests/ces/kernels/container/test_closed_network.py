"""Containers that are reached by published ports reach nothing but their bridge."""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from docker import DockerClient

from taskweaver_ext.ces.kernels.container import closed_network
from taskweaver_ext.ces.kernels.container.closed_network import ClosedNetwork
from taskweaver_ext.ces.kernels.container.description import ContainerSettings
from taskweaver_ext.ces.kernels.container.engine import Engine
from tests.support.containers import container_environment
from tests.support.executions import run


@pytest.fixture
def own_name(
    engine: Engine, docker_client: DockerClient, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A name that no network has yet; those that get it are removed."""
    name = f"taskweaver-test-{uuid.uuid4().hex[:8]}"
    monkeypatch.setattr(closed_network, "NAME", name)
    yield name
    for network in engine.networks(name):
        docker_client.api.remove_network(network["Id"])


def test_the_way_to_other_machines_is_closed(tmp_path: Path, own_name: str, engine: Engine) -> None:
    with (
        socket.create_server(("0.0.0.0", 0)) as service,
        container_environment(tmp_path, ContainerSettings(transport="tcp")) as environment,
    ):
        environment.start_session("s1")
        [network] = engine.networks(own_name)
        bridge = network["IPAM"]["Config"][0]["Subnet"].rpartition(".")[0] + ".1"
        # What is sent to another address of this machine leaves the bridge as for any other one.
        others = {
            address.address
            for addresses in psutil.net_if_addrs().values()
            for address in addresses
            if address.family == socket.AF_INET and not address.address.startswith("127.")
        } - {bridge}
        port = service.getsockname()[1]
        reached = run(
            environment,
            f"""
import socket
for address in {[bridge, *sorted(others)]}:
    try:
        socket.create_connection((address, {port}), timeout=1)
        print(address)
    except OSError:
        pass
""",
        )

    assert others
    assert reached.text() == f"{bridge}\n"  # which is said
    assert any("services of the host" in notice.message for notice in reached.result.notices)


def test_it_is_made_once_by_those_who_want_it_at_once(engine: Engine, own_name: str) -> None:
    found: list[ClosedNetwork] = []
    at_once = threading.Barrier(4)

    def ensure() -> None:
        at_once.wait(20)
        found.append(closed_network.ensure_closed_network(engine))

    threads = [threading.Thread(target=ensure) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    later = closed_network.ensure_closed_network(engine)

    known = {str(network["Id"]) for network in engine.networks(own_name)}
    assert len(found) == 4
    assert {network.id for network in found} <= known
    assert not any(network.leads_out for network in [*found, later])
    assert later == closed_network.ensure_closed_network(engine)


def test_an_engine_that_ignores_what_it_is_told_is_noticed(
    engine: Engine, own_name: str, tmp_path: Path
) -> None:
    engine.create_network(own_name, {})
    with container_environment(tmp_path, ContainerSettings(transport="tcp")) as environment:
        environment.start_session("s1")

        heard = run(environment, "print(1)")

    notices = [notice.message for notice in heard.result.notices]
    assert "The engine cannot close the container's way to other machines." in notices
