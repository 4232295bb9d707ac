"""Where code runs when no setting chooses the place, and how it is guarded."""

from __future__ import annotations

from taskweaver_ext.cli.screen import Screen
from taskweaver_ext.config.settings import Config

LOCAL_BY_DEFAULT = (
    "Code runs on this machine, with your rights: no setting names a kernel mode. Checks and"
    " questions prevent accidents, not intent; --kernel sandbox and container do."
)


HERE = {"session.cwd": "here"}
"""Settings by default where a person has started us in a folder."""

UNWATCHED = {"execution_service.guard": True}
"""Settings by default where no person watches what a model's code does."""


def say_where_code_runs(config: Config) -> None:
    """Tell a person, on standard error, if the project leaves it to us."""
    if not config.names_kernel_mode:
        Screen().say(LOCAL_BY_DEFAULT)
