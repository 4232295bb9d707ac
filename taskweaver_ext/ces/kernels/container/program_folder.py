"""Files for programs in a container: in the folder that both sides see, or inside."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from taskweaver_ext.ces.kernels.container.spawner import SpawnerLine, Stream
from taskweaver_ext.ces.programs.process_output import ReadEnd


class FolderKeeper(Protocol):
    """The container as a folder sees it; raises as a `ProgramSite` does."""

    def open_stream(self) -> Stream:
        """A stream for something that is about to be started."""

    def read_end(self, stream: Stream) -> ReadEnd:
        """The end of a stream that is ours."""

    def make_pipe_inside(self, stream: Stream) -> str:
        """A named pipe in the container whose content comes out of a stream of ours."""

    def make_folder_inside(self) -> str:
        """A folder into which programs can write."""

    def remove_folder_inside(self, path: str) -> None:
        """Remove such a folder."""


class ContainerFolder:
    """A `ProgramFolder` that the container can read and we can write."""

    def __init__(
        self,
        site: FolderKeeper,
        path: Path,
        inside: str,
        line: SpawnerLine,
        give_away: Callable[[Path], None],
    ) -> None:
        self._site = site
        self._path = path
        self._inside = inside
        self._line = line
        self._give_away = give_away
        self._made_inside: list[str] = []

    def write(self, name: str, content: bytes) -> str:
        """Write a file."""
        path = self._path / name
        path.unlink(missing_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        self._give_away(path)
        return f"{self._inside}/{name}"

    def make_pipe(self, name: str) -> tuple[str, ReadEnd]:
        """Make a named pipe: here, where both sides can open it, else in the container."""
        if isinstance(self._line.address, int):
            stream = self._site.open_stream()
            try:
                return self._site.make_pipe_inside(stream), self._site.read_end(stream)
            except BaseException:
                os.close(stream.descriptor)
                raise
        path = self._path / name
        os.mkfifo(path, 0o600)
        self._give_away(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        return f"{self._inside}/{name}", ReadEnd(descriptor)

    def remove(self, name: str) -> None:
        """Take a name away."""
        (self._path / name).unlink(missing_ok=True)

    def path_for_builds(self) -> str:
        """A folder in the container's memory."""
        path = self._site.make_folder_inside()
        self._made_inside.append(path)
        return path

    def close(self) -> None:
        """Remove it."""
        for path in self._made_inside:
            self._site.remove_folder_inside(path)
        shutil.rmtree(self._path, ignore_errors=True)
