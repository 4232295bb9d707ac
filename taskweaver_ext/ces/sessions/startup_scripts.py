"""What runs in every kernel before the first execution: a prelude, and extension modules.

The prelude runs among the user's variables. A module is a file of a folder;
its public names become the user's. They are read when a kernel starts, so that
a change takes effect with the next one.
"""

from __future__ import annotations

import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPT_SECONDS = 60.0
"""How long one script may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupScript:
    """One piece of source that runs when a kernel starts."""

    label: str
    """What it is called in messages: "the prelude", or "the module <path>"."""
    name: str = ""
    """The module's name; empty for the prelude."""
    path: str = ""
    source: str = ""
    problem: str = ""
    """Why it cannot be read; then there is no source."""

    def arguments(self) -> dict[str, Any]:
        """What the kernel's runtime is told."""
        return {"name": self.name, "path": self.path, "source": self.source}


class StartupScripts:
    """The scripts of an environment."""

    def __init__(self, prelude: str | None, module_folders: Sequence[str | Path]) -> None:
        """Of modules with the same name, the one in the later folder is taken."""
        self._prelude = prelude
        self._folders = [Path(folder).expanduser().absolute() for folder in module_folders]

    def read(self) -> list[StartupScript]:
        """All scripts in the order they run: the prelude, then the modules by name."""
        scripts = []
        if self._prelude:
            scripts.append(StartupScript(label="the prelude", source=self._prelude))
        paths = {path.stem: path for folder in self._folders for path in folder.glob("*.py")}
        return scripts + [_read_module(paths[name]) for name in sorted(paths)]


def _read_module(path: Path) -> StartupScript:
    label = f"the module {path}"
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for without end
            raise OSError("it is not a file")
        with tokenize.open(path) as file:  # it may say how it is encoded, as any module
            source = file.read()
    except (OSError, UnicodeDecodeError, SyntaxError) as error:
        return StartupScript(label=label, name=path.stem, problem=f"it cannot be read: {error}")
    return StartupScript(label=label, name=path.stem, path=str(path), source=source)
