"""The network of containers that are reached by published ports: it leads nowhere else.

Ports are published only on a bridge, and a bridge leads to the host and, through
it, to other machines. Two things are taken from it: the other containers, and the
way out. An engine sends what is for other machines to an address that it can be
told; here that is one that no machine has. What remains is the host itself, at the
bridge's own address.
"""

from __future__ import annotations

import ipaddress
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from taskweaver_ext.ces.kernels.container.engine import Engine, EngineError

NAME = "taskweaver-sealed"

_OPTIONS = {
    "com.docker.network.bridge.enable_ip_masquerade": "false",
    "com.docker.network.bridge.enable_icc": "false",
}
_GATEWAY = "DefaultGatewayIPv4"


@dataclass(frozen=True, slots=True)
class ClosedNetwork:
    """A network of ours that an engine has."""

    id: str
    leads_out: bool
    """Whether the engine has not done as it was told, so that the code can reach other machines."""


def ensure_closed_network(engine: Engine) -> ClosedNetwork:
    """Find the network, or make it; raises EngineError."""
    if (found := _find(engine)) is not None:
        return found
    subnet = _find_free_subnet(engine)
    unused = str(ipaddress.ip_network(subnet).broadcast_address - 1)
    try:
        engine.create_network(NAME, _OPTIONS, subnet=subnet, addresses={_GATEWAY: unused})
    except EngineError:
        # Another process may have been faster, and has its name or its addresses.
        if (found := _find(engine)) is not None:
            return found
        raise
    found = _find(engine)
    if found is None:
        raise EngineError(f"the engine does not have the network {NAME} that it has just made")
    return found


def _find(engine: Engine) -> ClosedNetwork | None:
    """The oldest of this name: there may be two when two processes were equally fast."""
    for network in sorted(engine.networks(NAME), key=lambda network: str(network["Created"])):
        return ClosedNetwork(str(network["Id"]), leads_out=not _is_sealed(network))
    return None


def _is_sealed(network: Mapping[str, Any]) -> bool:
    configuration = (network.get("IPAM") or {}).get("Config") or ()
    return any(_GATEWAY in (entry.get("AuxiliaryAddresses") or {}) for entry in configuration)


def _find_free_subnet(engine: Engine) -> str:
    """Only the engine knows which addresses are free, and it says so by taking some."""
    name = f"{NAME}-{uuid.uuid4().hex[:8]}"
    engine.create_network(name, _OPTIONS)
    try:
        subnets = [
            str(entry["Subnet"])
            for network in engine.networks(name)
            for entry in network["IPAM"]["Config"]
            if "." in str(entry["Subnet"])
        ]
    finally:
        engine.remove_network(name)
    if not subnets:
        raise EngineError("the engine has no addresses for a network of ours")
    return subnets[0]
