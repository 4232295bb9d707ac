"""One table of what can be asked: it answers, and the OpenAPI description is made of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from typing import Any, Literal, TypeAlias, get_args, get_type_hints

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from taskweaver_ext.config.data_files import DataFileError, parse_json
from taskweaver_ext.errors import TaskWeaverError
from taskweaver_ext.server.failures import RefusedError, answer_to, refused
from taskweaver_ext.server.limits import read_body
from taskweaver_ext.text.json_lines import json_line
from taskweaver_ext.text.json_shapes import has_shape

Method: TypeAlias = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Call:
    """One request, read and checked."""

    path: Mapping[str, str]
    """What stands in the braces of the path."""
    query: Any = None
    """An instance of the operation's `query`."""
    body: Any = None
    """An instance of the operation's `body`."""
    request: Request | None = None
    """For operations that read a stream by themselves."""

    @property
    def session_id(self) -> str:
        """The session that the path names."""
        return self.path["session_id"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Something that a client can ask for."""

    method: Method
    path: str
    """Below `/api/v1`, with names in braces; one that ends in `:path` may have slashes."""
    summary: str
    """One sentence for the description."""
    answer: Callable[[Call], object]
    """Called on a thread that may wait; returns an instance of `returns`, or a response."""
    query: type | None = None
    """A dataclass: each field is a parameter."""
    body: type | None = None
    """A dataclass: the fields of a JSON object."""
    streams_body: bool = False
    """Whether the body is bytes, which `answer`, then a coroutine, reads by itself."""
    returns: Any = None
    """A dataclass, or what else JSON can hold; None: nothing."""
    status: int = 200
    media_type: str = "application/json"
    refusals: tuple[int, ...] = field(default=())
    """Which statuses it can be refused with, besides those that everything can be."""
    is_open_to_all: bool = False
    """Whether it needs no token."""


def starlette_routes(operations: Sequence[Operation], prefix: str, max_body: int) -> list[Route]:
    """Return the routes of a table; a path with several methods is one route for each."""
    return [
        Route(prefix + one.path, _endpoint(one, max_body), methods=[one.method])
        for one in operations
    ]


def _endpoint(operation: Operation, max_body: int) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        try:
            query = read_query(operation.query, request.query_params.multi_items())
            body = None
            if operation.body is not None:
                body = read_json(operation.body, await read_body(request, max_body))
            call = Call(request.path_params, query, body, request)
            if operation.streams_body:
                result = await operation.answer(call)  # type: ignore[misc]  # as the table says
            else:
                result = await run_in_threadpool(operation.answer, call)
            return _response(operation, result)
        except TaskWeaverError as error:
            return answer_to(refused(error))
        except Exception:  # whatever it is, the client hears that it is ours
            _logger.exception("%s %s failed", operation.method, operation.path)
            return answer_to(RefusedError(500, "failed", "The server failed; its log says why."))

    return answer


def _response(operation: Operation, result: object) -> Response:
    if isinstance(result, Response):
        return result
    if result is None:
        return Response(status_code=204 if operation.status == 200 else operation.status)
    content = asdict(result) if is_dataclass(result) and not isinstance(result, type) else result
    return Response(json_line(content), operation.status, media_type="application/json")


def read_query(kind: type | None, items: Sequence[tuple[str, str]]) -> Any:  # noqa: ANN401
    """Make a dataclass of the parameters of an address.

    Raises:
        RefusedError: One is unknown, there twice, or makes no sense.
    """
    hints = {} if kind is None else get_type_hints(kind)
    values: dict[str, object] = {}
    for name, text in items:
        if name not in hints or name in values:
            known = ", ".join(hints) or "none"
            problem = "stands there twice" if name in values else f"is unknown; there are: {known}"
            raise RefusedError(400, "bad_parameter", f"The parameter {name[:40]!r} {problem}.")
        values[name] = _parameter(name, text, hints[name])
    return None if kind is None else _made(kind, values, "parameter")


def read_json(kind: type, data: bytes) -> Any:  # noqa: ANN401 - an instance of `kind`
    """Make a dataclass of the JSON object of a body.

    Raises:
        RefusedError: It is none, or its fields make no sense.
    """
    try:
        values = parse_json((data or b"{}").decode("utf-8"))
        json.dumps(values, ensure_ascii=False).encode()  # refuses half surrogate pairs
    except (UnicodeError, DataFileError, RecursionError) as error:
        raise RefusedError(400, "bad_json", f"The body is no JSON: {error}.") from None
    if not isinstance(values, dict):
        raise RefusedError(400, "bad_json", "The body is to be a JSON object.")
    hints = get_type_hints(kind)
    for name in values:
        if name not in hints:
            known = ", ".join(hints) or "none"
            problem = f"There is no field {name[:40]!r}; there are: {known}."
            raise RefusedError(400, "bad_field", problem)
        if not has_shape(values[name], hints[name]):
            problem = f"{name} cannot be {json.dumps(values[name])[:100]}."
            raise RefusedError(400, "bad_field", problem)
    return _made(kind, values, "field")


def _made(kind: type, values: Mapping[str, object], what: str) -> object:
    for one in fields(kind):
        is_needed = one.default is MISSING and one.default_factory is MISSING
        if is_needed and one.name not in values:
            raise RefusedError(400, f"bad_{what}", f"The {what} {one.name} is missing.")
        limits = one.metadata
        value = values.get(one.name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            low, high = limits.get("minimum", value), limits.get("maximum", value)
            if not low <= value <= high:
                problem = f"{one.name} is to be a number from {low} to {high}."
                raise RefusedError(400, f"bad_{what}", problem)
        if isinstance(value, str) and len(value) > limits.get("maxLength", len(value)):
            problem = f"{one.name} may have at most {limits['maxLength']:,} characters."
            raise RefusedError(400, f"bad_{what}", problem)
    return kind(**values)


def _parameter(name: str, text: str, hint: Any) -> object:  # noqa: ANN401 - a type hint
    problem = RefusedError(400, "bad_parameter", f"{name} cannot be {text[:100]!r}.")
    if hint is bool:
        if text not in ("true", "false"):
            raise problem
        return text == "true"
    if hint is int:
        if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) < 19):
            raise problem
        return int(text)
    if get_args(hint) and text not in get_args(hint):
        raise problem
    return text
