"""Check that a value read from JSON has the shape that a type hint says.

Pure. Knows what our events are made of: texts, numbers, flags, literals, unions, lists, mappings
and typed dictionaries.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints
from typing import is_typeddict as is_typed_dictionary

_UNIONS = (Union, types.UnionType)


def has_shape(value: object, hint: Any) -> bool:  # noqa: ANN401 - a type hint can be anything
    """Say whether `value` is what `hint` says, at whatever depth."""
    if hint is Any or hint is object:
        return True
    if hint is None or hint is types.NoneType:
        return value is None
    if is_typed_dictionary(hint):
        return isinstance(value, Mapping) and _has_fields(value, hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in _UNIONS:
        return any(has_shape(value, one) for one in arguments)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in arguments)
    if origin is NotRequired:
        return has_shape(value, arguments[0])
    if origin in (list, tuple):  # of one kind, any number of them
        return isinstance(value, origin) and all(has_shape(one, arguments[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(
            has_shape(name, arguments[0]) and has_shape(one, arguments[1])
            for name, one in value.items()
        )
    return _is_plain(value, getattr(hint, "__supertype__", hint))


def _is_plain(value: object, kind: type) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def _has_fields(value: Mapping[Any, object], shape: Any) -> bool:  # noqa: ANN401 - a typed dict
    """Say whether all that `shape` names is there as it should be; there may be more."""
    return all(
        has_shape(value[name], hint) if name in value else get_origin(hint) is NotRequired
        for name, hint in _hints_of(shape).items()
    )


@functools.cache
def _hints_of(shape: Any) -> dict[str, Any]:  # noqa: ANN401 - a typed dict
    return get_type_hints(shape, include_extras=True)
