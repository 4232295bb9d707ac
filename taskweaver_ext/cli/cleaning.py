"""What `taskweaver-ext doctor --clean` removes: what crashed processes have left."""

from __future__ import annotations

from dataclasses import dataclass, field

from taskweaver_ext.ces.kernels.container.engine import EngineError, shared_engine
from taskweaver_ext.ces.kernels.container.leftovers import remove_leftovers
from taskweaver_ext.config import variables
from taskweaver_ext.machine.owned_folders import remove_abandoned_folders


@dataclass(slots=True, kw_only=True)
class Cleaning:
    """What was removed."""

    containers: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    problem: str = ""
    """Why containers could not be looked for; empty when they could."""


def clean() -> Cleaning:
    """Remove containers and temporary folders whose processes are gone, and nothing else."""
    done = Cleaning()
    try:
        done.containers = remove_leftovers(shared_engine(variables.docker_host()))
    except EngineError as error:
        done.problem = str(error)
    done.folders = sorted(map(str, remove_abandoned_folders()))
    return done
