"""Run as a script in a fresh interpreter: become a kernel, or what starts programs, or both.

python cold_start.py SETTINGS.json
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from typing import Any


def load_runtime_package() -> Any:
    """Load this folder as the package `taskweaver_inside`, wherever it lies."""
    folder = os.path.dirname(os.path.abspath(__file__))
    spec = importlib.util.spec_from_file_location(
        "taskweaver_inside",
        os.path.join(folder, "__init__.py"),
        submodule_search_locations=[folder],
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = package
    spec.loader.exec_module(package)
    return package


def main() -> None:
    """Load the runtime and hand over to it."""
    sys.path.pop(0)  # this folder, put there because it holds the script
    load_runtime_package()
    with open(sys.argv[1], encoding="utf-8") as file:
        settings = json.load(file)
    if settings.get("umask") is not None:
        os.umask(settings["umask"])
    if "programs" in settings:
        from taskweaver_inside.spawner.spawner import (  # type: ignore[import-not-found]
            fork_spawner,
            serve,
        )

        if not settings.get("has_kernel", True):
            serve(settings)
            return
        fork_spawner(settings)  # before anything is imported that starts threads
    if "restriction" in settings:
        from taskweaver_inside.sandbox.restricted_kernel import (  # type: ignore[import-not-found]
            restrict_kernel,
        )

        restrict_kernel(settings)  # before anything is imported that starts threads
    from taskweaver_inside.kernel.launch import launch  # type: ignore[import-not-found]

    launch(settings)


if __name__ == "__main__":
    main()
