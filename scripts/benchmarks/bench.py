"""What every measurement is given."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from scripts.benchmarks.peers import MakePeer, NbclientPeer, OurPeer, Peer, PipePeer, RawPeer
from scripts.benchmarks.rows import LIMIT, NBCLIENT, OURS, RAW, Row
from scripts.benchmarks.sizes import Sizes
from taskweaver_ext import Environment


class SkippedError(Exception):
    """A measurement that cannot be made here; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One run: how much is measured, and our warm environment."""

    sizes: Sizes
    folder: Path
    environment: Environment
    container_is_required: bool = False

    def make_environment(self, **settings: Any) -> Environment:  # noqa: ANN401 - passed on as is
        """Another environment, with other settings."""
        return make_environment(self.folder, **settings)

    def our_peer(self) -> OurPeer:
        """A session of the warm environment."""
        return OurPeer(self.environment)

    def peers(self, *names: str, limit_is_unbuffered: bool = False) -> list[Peer]:
        """A new peer of each of these kinds; of all by default."""
        makers: dict[str, MakePeer] = {
            OURS: self.our_peer,
            RAW: RawPeer,
            NBCLIENT: NbclientPeer,
            LIMIT: lambda: PipePeer(is_unbuffered=limit_is_unbuffered),
        }
        return [makers[name]() for name in names or makers]


Measurement: TypeAlias = Callable[[Bench], Iterator[Row]]


def make_environment(folder: Path, **settings: Any) -> Environment:  # noqa: ANN401 - passed on as is
    """An environment whose kernels run on the Python that runs us, as those of the peers do."""
    return Environment(folder / uuid.uuid4().hex, python=sys.executable, **settings)


def at_once(actions: Sequence[Callable[[], object]]) -> None:
    """Call all actions at the same time, each on a thread of its own."""
    with ThreadPoolExecutor(len(actions)) as threads:
        for future in [threads.submit(action) for action in actions]:
            future.result()
