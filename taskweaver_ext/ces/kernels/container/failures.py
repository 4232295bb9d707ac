"""Why a container did not start, and how it ended, in words. No I/O."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from typing import Any

from taskweaver_ext.ces.execution.results import KernelDeath, signal_name
from taskweaver_ext.ces.kernels.container.description import ContainerSettings
from taskweaver_ext.ces.kernels.container.engine import EngineGoneError
from taskweaver_ext.ces.kernels.container.image import DEFAULT_IMAGE
from taskweaver_ext.ces.kernels.container.limits import size_text
from taskweaver_ext.errors import KernelStartError

_UNKNOWN_RUNTIME = r"unknown (or invalid )?runtime|runtime .*not (available|found)"
_KILLED = 128 + signal.SIGKILL
"""What the init process exits with when its child was killed, as a shell does."""


def missing_engine(error: EngineGoneError) -> KernelStartError:
    """The error for an engine that does not answer."""
    reason = str(error)
    return KernelStartError(
        f"{reason[0].upper()}{reason[1:]}. {error.advice}, or use local kernels (--kernel local)."
    )


def missing_image(image: str) -> KernelStartError:
    """The error for an image that the engine does not have."""
    command = "taskweaver-ext image build" if image == DEFAULT_IMAGE else f"docker pull {image}"
    return KernelStartError(f"The Docker engine has no image {image!r}. Get it with: {command}")


def start_failure(
    settings: ContainerSettings, session_id: str, reason: str, log: str
) -> KernelStartError:
    """The error for a container that did not start, with what to do about it.

    Args:
        reason: What the engine said, or what happened.
        log: What the container's first process wrote.
    """
    image, python = settings.image, settings.python
    if "No module named 'ipykernel'" in log:
        return KernelStartError(
            f"The image {image!r} has no ipykernel, so it cannot run a kernel. Build one that"
            f" has: taskweaver-ext image build --base {image} --tag NEW-NAME"
        )
    if "executable file not found" in reason or f"exec {python} failed" in log:
        return KernelStartError(
            f"The image {image!r} has no {python!r}. Choose an image with Python and"
            " ipykernel, or set the name of its interpreter."
        )
    if settings.runtime and re.search(_UNKNOWN_RUNTIME, reason, re.IGNORECASE):
        return KernelStartError(
            f"The Docker engine has no runtime {settings.runtime!r} (it says: {reason}). Install it"
            " and name it in the engine's settings, or choose one that `docker info` lists."
        )
    if "bind source path does not exist" in reason:
        return KernelStartError(
            f"The Docker engine does not see the folders of this machine ({reason}). It must"
            " run on this machine, not in another one or behind another container."
        )
    return KernelStartError(
        f"The container of session {session_id!r} did not start: {reason}."
        + (f" Its log ends with:\n{log}" if log else "")
    )


def death_of_container(
    state: Mapping[str, Any], memory_bytes: int | None, *, was_out_of_memory: bool
) -> KernelDeath | None:
    """How a container in this state ended; None when it has not."""
    if state["Status"] == "removing":
        return KernelDeath(cause="container_gone", detail="its container was removed")
    if state["Status"] in ("created", "running", "paused", "restarting"):
        return None
    code = int(state["ExitCode"])
    if code == _KILLED and was_out_of_memory:
        limit = f": its container may use {size_text(memory_bytes)}" if memory_bytes else ""
        return KernelDeath(
            cause="out_of_memory",
            exit_code=code,
            signal=signal.SIGKILL,
            detail=f"killed for lack of memory{limit}",
        )
    number = code - 128
    if number in signal.valid_signals():
        detail = f"killed by {signal_name(number)}"
        return KernelDeath(cause="signal", exit_code=code, signal=number, detail=detail)
    return KernelDeath(cause="exited", exit_code=code, detail=f"exited with code {code}")
