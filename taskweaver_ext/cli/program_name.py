"""What a person types to run us, for hints that can be typed as they are."""

from __future__ import annotations

import os
import shlex
import shutil
import sys

from taskweaver_ext.config import variables


def program_name() -> str:
    """Return the command with which this program was started, fit for a shell."""
    if started_as := variables.started_as():
        return shlex.quote(started_as)
    typed = sys.argv[0]
    name = os.path.basename(typed)
    if name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m taskweaver_ext.cli"
    found = shutil.which(name)
    if found and os.path.exists(typed) and os.path.samefile(found, typed):
        return name
    return shlex.quote(typed)
