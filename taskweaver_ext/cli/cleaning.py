"""What `taskweaver-ext doctor --clean` removes: what crashed processes have left."""

from __future__ import annotations

from dataclasses import dataclass, field

from taskweaver_ext import config
from taskweaver_ext.ces.kernels.containers.engine import EngineError, shared_engine
from taskweaver_ext.ces.kernels.containers.leftovers import remove_leftovers
from taskweaver_ext.ces.owned_folders import remove_abandoned_folders


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
        done.containers = remove_leftovers(shared_engine(config.docker_host()))
    except EngineError as error:
        done.problem = str(error)
    done.folders = sorted(map(str, remove_abandoned_folders()))
    return done
