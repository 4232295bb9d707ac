"""Run as a script: restrict this process, then become a program.

    python -I -S restricted_start.py RULES PATH NAME ARGUMENT...

The rules are JSON (`sandbox/rules.py`), or "guard" to protect other processes only.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    """Do it; a failure ends with 126, as of a program that may not be run."""
    from cold_start import load_runtime_package  # type: ignore[import-not-found]

    load_runtime_package()
    from taskweaver_inside.sandbox.restrict import (  # type: ignore[import-not-found]
        guard,
        restrict,
    )
    from taskweaver_inside.sandbox.rules import Rules  # type: ignore[import-not-found]

    path, command = sys.argv[2], sys.argv[3:]
    try:
        if sys.argv[1] == "guard":
            guard()
        else:
            restrict(Rules.from_json(json.loads(sys.argv[1])))
        os.execvp(path, command)
    except OSError as error:
        os.write(2, f"cannot start {path}: {error}\n".encode())
        os._exit(126)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # -I leaves it out
    main()
