"""Run as a script: the gateway that processes of one user share.

    python process.py LOCK_FILE METADATA_FILE IDLE_SECONDS

As long as this process lives it holds the lock, and its process id stands in
that file, so it is known which process that is; when it listens it writes the
metadata, with a token that it has made up. It ends when no kernel has been
there for IDLE_SECONDS, and ends kernels whose client is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import secrets
import socket
import sys
import time
from pathlib import Path
from typing import Any

from kernel_gateway.gatewayapp import KernelGatewayApp  # type: ignore[import-untyped]
from tornado.ioloop import PeriodicCallback
from traitlets.config import Config

_ALREADY_THERE = 3
"""Exit code: another process is the gateway."""

_LOCK_SECONDS = 2.0
_ORPHAN_SECONDS = 600
_DEATH_SECONDS = 0.5
"""How often the gateway looks whether its kernels live."""


def allow_many_descriptors() -> None:
    """Take as many as the system lets us have: each kernel needs a dozen of them here."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # then what there is has to do
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def hold_lock(path: Path) -> None:
    """Become the one gateway, until this process has ended; exits when another one is."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.truncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
            return  # the system closes it, and not before the end
        except BlockingIOError:
            # Another process may only have looked whether it is locked.
            if time.monotonic() > deadline:
                sys.exit(_ALREADY_THERE)
            time.sleep(0.02)


def write_metadata(path: Path, metadata: dict[str, Any]) -> None:
    """Write the file as a whole or not at all, for its owner only."""
    unfinished = path.with_suffix(".unfinished")  # only the holder of the lock writes it
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with open(os.open(unfinished, flags, 0o600), "w") as file:
        json.dump(metadata, file)
    unfinished.replace(path)


def free_port() -> int:
    """A port that is free now; the gateway tries others if another process is faster."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class IdleWatch:
    """End the gateway when it has had no kernels for long enough."""

    def __init__(self, app: KernelGatewayApp, idle_seconds: float) -> None:
        self._app = app
        self._idle_seconds = idle_seconds
        self._used_at = time.monotonic()

    def look(self) -> None:
        """Called now and then by the gateway's loop."""
        if self._app.kernel_manager.list_kernel_ids():
            self._used_at = time.monotonic()
        elif time.monotonic() - self._used_at >= self._idle_seconds:
            self._app.stop()


def main() -> None:
    """Listen, say so, and serve."""
    lock_path, metadata_path, idle_seconds = (
        Path(sys.argv[1]),
        Path(sys.argv[2]),
        float(sys.argv[3]),
    )
    allow_many_descriptors()
    hold_lock(lock_path)
    metadata_path.unlink(missing_ok=True)
    token = secrets.token_urlsafe(32)
    app = KernelGatewayApp.instance(config=gateway_config(token))
    app.initialize([])
    write_metadata(
        metadata_path,
        {
            "pid": os.getpid(),
            "url": f"http://127.0.0.1:{app.port}",
            "token": token,
            "started_at": time.time(),
        },
    )
    watch = IdleWatch(app, idle_seconds)
    PeriodicCallback(watch.look, min(5.0, idle_seconds / 4) * 1000).start()
    app.start()
    metadata_path.unlink(missing_ok=True)


def gateway_config(token: str) -> Config:
    """For this machine only, without limits on output, and quick to notice a death."""
    config = Config()
    config.KernelGatewayApp.ip = "127.0.0.1"
    config.KernelGatewayApp.port = free_port()
    config.KernelGatewayApp.auth_token = token
    config.KernelGatewayApp.cookie_secret = secrets.token_bytes(32)
    config.ZMQChannelsWebsocketConnection.limit_rate = False
    config.KernelRestarter.time_to_dead = _DEATH_SECONDS
    config.MappingKernelManager.cull_idle_timeout = _ORPHAN_SECONDS
    config.MappingKernelManager.cull_interval = _ORPHAN_SECONDS // 10
    config.MappingKernelManager.cull_busy = True  # only of clients that are gone
    return config


if __name__ == "__main__":
    main()
