"""The OpenAPI description of the table of operations, made of their types: it cannot drift."""

from __future__ import annotations

import re
import types
from collections.abc import Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import (
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from taskweaver_ext.server.failures import Refusal
from taskweaver_ext.server.routes import Operation

OPENAPI_VERSION = "3.1.0"
_EVERY_REFUSAL = (400, 401, 403, 429, 503)
_REFUSALS = {
    400: "The request makes no sense.",
    401: "The token is missing or wrong.",
    403: "The request comes by another name, or from another page.",
    404: "There is no such thing.",
    409: "It cannot be done now: something else is under way, or was first.",
    413: "The body is too large.",
    429: "That is too much at once.",
    503: "The server has no room, or ends.",
}
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}
_PARAMETER = re.compile(r"\{(\w+)(:path)?\}")


def describe(operations: Sequence[Operation], prefix: str, version: str) -> dict[str, Any]:
    """Return the description of a table."""
    schemas = _Schemas()
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        path = prefix + _PARAMETER.sub(r"{\1}", one.path)
        paths.setdefault(path, {})[one.method.lower()] = _operation(one, schemas)
    return {
        "openapi": OPENAPI_VERSION,
        "info": {
            "title": "taskweaver-ext serve",
            "version": version,
            "description": "The sessions of a project: run code, talk to an agent, and follow"
            " live what happens. Events are also sent over a WebSocket at the same path.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas.found,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(one: Operation, schemas: _Schemas) -> dict[str, Any]:
    described: dict[str, Any] = {
        "summary": one.summary,
        "operationId": _name_of(one),
        "parameters": [
            *(
                _path_parameter(name, bool(slashes))
                for name, slashes in _PARAMETER.findall(one.path)
            ),
            *_query_parameters(one, schemas),
        ],
        "responses": _responses(one, schemas),
    }
    if one.body is not None:
        schema = schemas.of(one.body)
        described["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    elif one.streams_body:
        media = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        described["requestBody"] = {"content": media}
    if one.is_open_to_all:
        described["security"] = []
    return described


def _responses(one: Operation, schemas: _Schemas) -> dict[str, Any]:
    success: dict[str, Any] = {"description": "Done."}
    if one.returns is not None:
        success["content"] = {one.media_type: {"schema": schemas.of(one.returns)}}
    elif one.media_type != "application/json":
        is_text = one.media_type.startswith("text/")
        success["content"] = {one.media_type: {"schema": {"type": "string"} if is_text else {}}}
    refusal = {
        "type": "object",
        "properties": {"error": schemas.of(Refusal)},
        "required": ["error"],
    }
    large = (413,) if one.body is not None or one.streams_body else ()
    statuses = sorted({*_EVERY_REFUSAL, *one.refusals, *large})
    content = {"application/json": {"schema": refusal}}
    return {
        str(one.status): success,
        **{str(one): {"description": _REFUSALS[one], "content": content} for one in statuses},
    }


def _path_parameter(name: str, may_have_slashes: bool) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "minLength": 1}
    if not may_have_slashes:
        schema["pattern"] = "^[^/]+$"
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _query_parameters(one: Operation, schemas: _Schemas) -> list[dict[str, Any]]:
    if one.query is None:
        return []
    hints = get_type_hints(one.query)
    return [
        {
            "name": entry.name,
            "in": "query",
            "required": _is_needed(entry),
            "schema": {**schemas.of(hints[entry.name]), **_limits(entry)},
        }
        for entry in fields(one.query)
    ]


class _Schemas:
    """JSON schemas of types; each dataclass and typed dictionary once, by its name."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Any]] = {}

    def of(self, hint: Any) -> dict[str, Any]:  # noqa: ANN401 - a type hint
        """Return the schema of a type."""
        hint = getattr(hint, "__supertype__", hint)
        origin, arguments = get_origin(hint), get_args(hint)
        if hint in (Any, object):
            return {}
        if hint in _PLAIN:
            return {"type": _PLAIN[hint]}
        if hint is types.NoneType:
            return {"type": "null"}
        if is_dataclass(hint) or is_typeddict(hint):
            return self._named(hint)
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.of(one) for one in arguments]}
        if origin is NotRequired:
            return self.of(arguments[0])
        if origin in (list, tuple):
            return {"type": "array", "items": self.of(arguments[0])}
        assert origin is dict, hint
        return {"type": "object", "additionalProperties": self.of(arguments[1])}

    def _named(self, kind: Any) -> dict[str, Any]:  # noqa: ANN401 - a type
        name = kind.__name__
        if name not in self.found:
            self.found[name] = {}  # it may refer to itself
            self.found[name] = self._object(kind)
        return {"$ref": f"#/components/schemas/{name}"}

    def _object(self, kind: Any) -> dict[str, Any]:  # noqa: ANN401 - a type
        hints = get_type_hints(kind, include_extras=True)
        properties = {name: self.of(hint) for name, hint in hints.items()}
        if is_dataclass(kind):
            needed = [entry.name for entry in fields(kind) if _is_needed(entry)]
            for entry in fields(kind):
                properties[entry.name] |= _limits(entry)
        else:
            needed = [name for name, hint in hints.items() if get_origin(hint) is not NotRequired]
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        if needed:
            schema["required"] = needed
        if is_dataclass(kind):
            schema["additionalProperties"] = False
        if kind.__doc__:
            schema["description"] = kind.__doc__.strip().partition("\n")[0]
        return schema


def _is_needed(entry: Field[Any]) -> bool:
    return entry.default is MISSING and entry.default_factory is MISSING


def _limits(entry: Field[Any]) -> dict[str, Any]:
    default = {} if entry.default is MISSING else {"default": entry.default}
    return {**default, **entry.metadata}


def _name_of(one: Operation) -> str:
    path = one.path.replace("/sessions/{session_id}", "/session").replace(":path", "")
    return "_".join([one.method.lower(), *re.findall(r"\w+", path)])
