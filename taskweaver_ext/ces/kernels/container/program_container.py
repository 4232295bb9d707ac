"""A container for programs alone: without a kernel, so any image that has Python will do."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from taskweaver_ext.ces.kernels.container.container import Container
from taskweaver_ext.ces.kernels.container.description import ContainerSettings
from taskweaver_ext.ces.kernels.container.engine import EngineError, EngineGoneError
from taskweaver_ext.ces.kernels.container.failures import missing_engine, start_failure
from taskweaver_ext.ces.kernels.container.prepared_container import (
    ContainerRequest,
    PreparedContainer,
)
from taskweaver_ext.ces.programs.site import ProgramSite, SiteGoneError
from taskweaver_ext.machine.child_environment import variables_for_programs


class ProgramContainer:
    """`ProgramSites` that start their own container with the first program, and again if need be.

    Threads:
        Any thread may call any method; `_lock` guards the rest, and is held while a container
        starts.
    """

    def __init__(
        self, cwd: Path, settings: ContainerSettings | None = None, *, name: str = "programs"
    ) -> None:
        self._request = ContainerRequest(
            container=settings or ContainerSettings(), cwd=cwd, session_id=name
        )
        self._lock = threading.Lock()
        self._container: Container | None = None
        self._opened = contextlib.ExitStack()
        """Undoes what was done for the container."""

    def working_directory(self, path: str | Path | None) -> Path:
        """A path beneath the folder that the container sees, or of the container itself."""
        return self._request.cwd if path is None else Path(path).absolute()

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """These, besides what the container has."""
        return variables_for_programs(variables)

    @contextlib.contextmanager
    def use(self) -> Iterator[ProgramSite]:
        """The container, started if there is none that lives."""
        with self._lock:
            if self._container is None or self._container.is_over:
                self._remove()
                self._container = self._start()
            programs = self._container.programs
        yield programs

    def close(self) -> None:
        """Remove the container."""
        with self._lock:
            self._remove()

    def _start(self) -> Container:
        request, container = self._request, None
        with contextlib.ExitStack() as undo:
            undo.callback(self._remove)
            try:
                prepared = PreparedContainer(request)
                self._opened.callback(prepared.close)
                container = Container(prepared, {"settings": {"has_kernel": False}})
                self._opened.callback(container.stop)
                container.programs.has_file("/")  # its spawner answers
            except EngineGoneError as error:
                raise missing_engine(error) from error
            except (EngineError, OSError, SiteGoneError) as error:
                is_over = container is not None and container.is_over
                reason = f"it ended at once ({error})" if is_over else str(error)
                log = "" if container is None else container.log_tail()
                raise start_failure(request.container, request.session_id, reason, log) from error
            undo.pop_all()
        return container

    def _remove(self) -> None:
        self._container = None
        self._opened.close()
