"""The servers that tests of their clients use."""

from __future__ import annotations

from tests.server.conftest import open_server, project, server, shared_server

__all__ = ["open_server", "project", "server", "shared_server"]
