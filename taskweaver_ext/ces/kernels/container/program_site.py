"""A container for programs alone: without a kernel, so any image that has Python will do."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from taskweaver_ext.ces.kernels.container.container import BoxSettings, ContainerBox
from taskweaver_ext.ces.kernels.container.description import ContainerSettings
from taskweaver_ext.ces.kernels.container.engine import EngineError, EngineGoneError
from taskweaver_ext.ces.kernels.container.failures import missing_engine, start_failure
from taskweaver_ext.ces.programs.site import ProgramSite, SiteGoneError
from taskweaver_ext.machine.child_environment import variables_for_programs


class ProgramContainer:
    """`ProgramSites` that start their own container with the first program, and again if need be.

    Threads:
        Any thread may call any method; `_lock` is held while a container starts.
    """

    def __init__(
        self, cwd: Path, settings: ContainerSettings | None = None, *, name: str = "programs"
    ) -> None:
        self._settings = BoxSettings(
            container=settings or ContainerSettings(), cwd=cwd, session_id=name
        )
        self._lock = threading.Lock()
        self._box: ContainerBox | None = None

    def working_directory(self, path: str | Path | None) -> Path:
        """A path beneath the folder that the container sees, or of the container itself."""
        return self._settings.cwd if path is None else Path(path).absolute()

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """These, besides what the container has."""
        return variables_for_programs(variables)

    @contextlib.contextmanager
    def use(self) -> Iterator[ProgramSite]:
        """The container, started if there is none that lives."""
        with self._lock:
            if self._box is not None and self._box.life.is_over:
                self._box.stop()
                self._box = None
            if self._box is None:
                self._box = self._start()
            programs = self._box.programs
        yield programs

    def close(self) -> None:
        """Remove the container."""
        with self._lock:
            box, self._box = self._box, None
        if box is not None:
            box.stop()

    def _start(self) -> ContainerBox:
        settings = self._settings
        box = ContainerBox(settings, on_notice=lambda notice: box.programs.tell(notice))
        with contextlib.ExitStack() as stack:
            stack.callback(box.stop)
            try:
                box.open()
                box.start({"settings": {"has_kernel": False}})
                box.programs.has_file("/")  # somebody answers
            except EngineGoneError as error:
                raise missing_engine(error) from error
            except (EngineError, OSError, SiteGoneError) as error:
                reason = f"it ended at once ({error})" if box.life.is_over else str(error)
                log = box.log_tail()
                raise start_failure(settings.container, settings.session_id, reason, log) from error
            stack.pop_all()
        return box
