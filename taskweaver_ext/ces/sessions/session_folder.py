"""Where a session keeps its files, and what may name it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from taskweaver_ext.ces.execution.executor import NAME
from taskweaver_ext.errors import SessionError
from taskweaver_ext.machine.private_files import claim_private_folder


@dataclass(frozen=True, slots=True)
class SessionFolder:
    """Where a session keeps its files; only its owner may look."""

    path: Path
    cwd: Path

    @classmethod
    def prepare(
        cls,
        env_dir: Path,
        session_id: str,
        session_dir: str | Path | None,
        cwd: str | Path | None,
        *,
        prepare_own_cwd: Callable[[Path], None] = lambda _cwd: None,
    ) -> SessionFolder:
        """Check the names and make what is missing; raises SessionError.

        Args:
            prepare_own_cwd: Called with a working directory that is the session's own, because
                it lies in its folder; may raise OSError.
        """
        if not NAME.fullmatch(session_id):
            raise SessionError(
                f"{session_id!r} cannot name a session: use up to 128 letters, digits,"
                " '-', '_' and '.', not starting with a '.'."
            )
        path = Path(session_dir) if session_dir is not None else env_dir / "sessions" / session_id
        path = path.absolute()
        try:
            if session_dir is None:
                claim_private_folder(path.parent)  # there others could put folders in our place
            claim_private_folder(path)
            claim_private_folder(path / "ces")
            if cwd is None:
                claim_private_folder(path / "cwd")
            if cwd is None or Path(cwd).absolute() == path / "cwd":
                prepare_own_cwd(path / "cwd")
        except OSError as error:
            raise SessionError(
                f"The folder of session {session_id!r} cannot be made: {error}."
                " Choose another session_dir or env_dir."
            ) from error
        working_directory = Path(cwd).absolute() if cwd is not None else path / "cwd"
        _check_working_directory(session_id, working_directory)
        return cls(path, working_directory)

    @property
    def outputs(self) -> Path:
        """Where the whole output of executions is kept."""
        return self.path / "ces" / "output"

    @property
    def artifacts(self) -> Path:
        """Where images and other artifacts are saved."""
        return self.path / "ces" / "artifacts"


def refuse_to_share(kept: Path, cwd: Path) -> None:
    """Raise SessionError if confined code, which is given `cwd`, could reach what we keep.

    Whatever it put in the place of a folder of ours, such as a link to another one, would
    be written to by us.
    """
    if kept.resolve().is_relative_to(cwd.resolve()):
        raise SessionError(
            f"The working directory {cwd} cannot be given to code alone: it holds {kept}, where"
            " outputs are kept out of reach of its code. Choose a session_dir, env_dir or folder"
            " outside of the working directory."
        )


def _check_working_directory(session_id: str, path: Path) -> None:
    try:
        is_folder = path.is_dir()
    except (OSError, ValueError) as error:
        raise SessionError(
            f"The working directory of session {session_id!r} is not a path: {error}."
            " Choose another cwd."
        ) from error
    if not is_folder:
        reason = "is not a folder" if path.exists() else "does not exist"
        raise SessionError(
            f"The working directory {path} of session {session_id!r} {reason}."
            " Make it, or choose another cwd."
        )
    if not os.access(path, os.R_OK | os.X_OK):
        raise SessionError(
            f"The working directory {path} of session {session_id!r} may not be entered by this"
            " user. Change its permissions, or choose another cwd."
        )
