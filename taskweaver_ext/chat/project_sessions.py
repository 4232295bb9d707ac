"""Sessions of a project for frontends, and what a person may know of them."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.chat.introduction import CODE_RUNS_IN_FULL, introduction
from taskweaver_ext.config.folders import find_app_dir
from taskweaver_ext.demo import make_demo_app
from taskweaver_ext.session.saved import find_session
from taskweaver_ext.session.session import Session


class ProjectSessions:
    """Makes the sessions of an application, and describes them."""

    def __init__(
        self,
        app: TaskWeaverApp,
        find_template: Callable[[], Path],
        *,
        cwd: Path | None = None,
        program: str = "taskweaver-ext",
    ) -> None:
        """Make sessions of an application.

        Args:
            find_template: Finds the project whose plugins the demonstration uses.
            cwd: Where code of new sessions works, and of the first one that is opened; None: as
                the settings say.
            program: What a person types to run us.
        """
        self._app = app
        self._find_template = find_template
        self._cwd = cwd
        self._program = program

    def open_first(self, resume: str | None = None) -> Session:
        """Open the session that a frontend begins with: a new one, or one to be continued.

        Raises:
            SessionError: It cannot be continued.
            ConfigError: Code cannot work in the folder.
        """
        return self.create() if resume is None else self.resume(resume, self._cwd)

    def create(self) -> Session:
        """Make a new session; raises ConfigError if code cannot work in its folder."""
        return self._app.get_session(cwd=self._cwd)

    @property
    def workspace(self) -> Path:
        """Where the sessions of the project are."""
        return self._app.config.workspace.workspace_path

    def resume(self, id_or_prefix: str, cwd: Path | None = None) -> Session:
        """Continue a session that is on the disk, in another folder if one is named.

        Raises:
            SessionError: There is none of that id, it cannot be read, or another process has it.
        """
        session_id = find_session(self.workspace, id_or_prefix).session_id
        return self._app.get_session(session_id, cwd=cwd)

    def how_to_resume(self, session: Session) -> str:
        """Return the command that continues a session another time, from the same folder."""
        return f"{self._program} chat{self._project_option} --resume {session.session_id}"

    def how_to_show(self, session: Session) -> str:
        """Return the command that shows all of a session, from the same folder."""
        return f"{self._program} sessions show{self._project_option} {session.session_id}"

    def how_to_get_variables(self, session: Session, has_snapshot: bool) -> str:
        """Return in a line how the variables of a continued session can be had again."""
        replay = f"{self._program} sessions replay{self._project_option} {session.session_id}"
        again = f"`{replay} --snapshot` runs its code again and saves them"
        if has_snapshot:
            return f"/restore (or --with-variables) brings back what /snapshot saved; {again}."
        return f"To have the variables again: {again}, for /restore (or --with-variables)."

    @property
    def _project_option(self) -> str:
        project = self._app.config.app_base_dir
        return "" if project == find_app_dir() else f" -p {shlex.quote(str(project))}"

    def create_demo(self) -> tuple[Session, Callable[[], None]]:
        """Return a session with a scripted model, and how to end all that belongs to it."""
        demo = make_demo_app(self._find_template() / "plugins", self._app.config.app_base_dir)
        return demo.get_session(), demo.close

    def introduce(self, session: Session, columns: int) -> str:
        """Return what a person reads first: folder, model, and where code runs."""
        mode = self._app.config.execution_service.kernel_mode
        return introduction(session.cwd, self._app.name_model(), mode, columns)

    def describe(self, session: Session) -> list[tuple[str, str]]:
        """Return what `/info` shows: names and values."""
        config = self._app.config
        return [
            ("project", str(config.app_base_dir)),
            ("folder", str(session.cwd)),
            ("records", str(session.session_dir)),
            ("model", self._app.describe_model()),
            ("kernel", config.execution_service.kernel_mode),
            ("code", CODE_RUNS_IN_FULL[config.execution_service.kernel_mode]),
            ("plugins", ", ".join(plugin.name for plugin in session.plugins) or "none"),
            ("used", session.usage.describe()),
        ]
