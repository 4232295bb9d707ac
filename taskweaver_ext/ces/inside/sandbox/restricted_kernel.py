"""What a kernel does before it is one: it opens what it needs, and then gives up the rest.

It is told by its settings: `restriction` is "guard", or rules (`rules.py`).
"""

from __future__ import annotations

import dataclasses
import json
import socket
from typing import Any

from .restrict import guard, restrict
from .rules import Rules

_CHANNELS = ("shell_port", "stdin_port", "control_port")
_WAITING_CONNECTIONS = 16


def restrict_kernel(settings: dict[str, Any]) -> None:
    """Restrict this process as its settings say; raises OSError. Call it before `launch`."""
    restriction = settings.get("restriction")
    if restriction == "guard":
        guard()
    elif restriction is not None:
        rules = Rules.from_json(restriction)
        wire = _connect(settings["socket_path"])
        channels = _open_channels(settings["connection_file"])
        restrict(dataclasses.replace(rules, descriptors=(wire, *channels.values())))
        settings["socket_path"] = f"fd:{wire}"
        settings["channels"] = channels


def _connect(path: str) -> int:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    return connection.detach()


def _open_channels(connection_file: str) -> dict[int, int]:
    """Listen where the client will connect to; give a descriptor for each number of a channel."""
    with open(connection_file, encoding="utf-8") as file:
        connection = json.load(file)
    channels = {}
    for name in _CHANNELS:
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        channel.bind(f"{connection['ip']}-{connection[name]}")
        channel.listen(_WAITING_CONNECTIONS)
        channels[connection[name]] = channel.detach()
    return channels
