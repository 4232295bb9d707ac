"""Check that a value read from JSON has the shape that a type hint says.

Pure. Knows what our events are made of: texts, numbers, flags, literals, unions, lists, mappings
and typed dictionaries.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints
from typing import is_typeddict as is_typed_dictionary

_UNIONS = (Union, types.UnionType)


def has_shape(value: object, hint: Any) -> bool:  # noqa: ANN401 - a type hint can be anything
    """Say whether `value` is what `hint` says, at whatever depth."""
    return _check_for(hint)(value)


@functools.cache  # a hint is taken apart once, and looked at for every event
def _check_for(hint: Any) -> Callable[[Any], bool]:  # noqa: ANN401 - a type hint
    if hint is Any or hint is object:
        return lambda _value: True
    if hint is None or hint is types.NoneType:
        return lambda value: value is None
    if is_typed_dictionary(hint):
        return lambda value: isinstance(value, Mapping) and _has_fields(value, hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        choices = [(type(one), one) for one in arguments]
        return lambda value: any(type(value) is kind and value == one for kind, one in choices)
    if origin is None:
        return functools.partial(_is_plain, kind=getattr(hint, "__supertype__", hint))
    checks = [_check_for(one) for one in arguments if one is not ...]
    if origin in _UNIONS:
        return lambda value: any(check(value) for check in checks)
    if origin is NotRequired:
        return checks[0]
    if origin in (list, tuple):  # of one kind, any number of them
        return lambda value: isinstance(value, origin) and all(map(checks[0], value))
    assert origin is dict, hint
    return lambda value: (
        isinstance(value, dict)
        and all(checks[0](name) and checks[1](one) for name, one in value.items())
    )


def _is_plain(value: object, kind: type) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def _has_fields(value: Mapping[Any, object], shape: Any) -> bool:  # noqa: ANN401 - a typed dict
    """Say whether all that `shape` names is there as it should be; there may be more."""
    return all(
        check(value[name]) if name in value else is_optional
        for name, check, is_optional in _fields_of(shape)
    )


@functools.cache
def _fields_of(shape: Any) -> list[tuple[str, Callable[[Any], bool], bool]]:  # noqa: ANN401
    hints = get_type_hints(shape, include_extras=True)
    return [
        (name, _check_for(hint), get_origin(hint) is NotRequired) for name, hint in hints.items()
    ]
