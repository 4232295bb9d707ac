"""What is refused, as an answer that a program and a person understand."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.responses import JSONResponse

from taskweaver_ext.errors import ConfigError, SessionError, TaskWeaverError


@dataclass(frozen=True, slots=True)
class Refusal:
    """The body of every answer that is no success: `{"error": {"code": …, "message": …}}`."""

    code: str
    """For programs: one word that does not change."""
    message: str
    """For people: what happened, and what to do."""


class RefusedError(TaskWeaverError):
    """A request cannot be done; the server answers with its status."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def refused(error: TaskWeaverError) -> RefusedError:
    """Return what a failure of ours is in HTTP."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, SessionError):  # busy, stopped, answered, open elsewhere
        return RefusedError(409, "conflict", str(error))
    if isinstance(error, ConfigError):
        return RefusedError(400, "unusable", str(error))
    return RefusedError(500, "failed", str(error))


def answer_to(error: RefusedError) -> JSONResponse:
    """Return a refusal as an answer."""
    headers = {"retry-after": "1"} if error.status in (429, 503) else None
    return JSONResponse(
        {"error": {"code": error.code, "message": str(error)}}, error.status, headers=headers
    )
