"""Values in few words, without running any code of the user: no `__repr__`, no `__len__`."""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import fractions
import pathlib
import re
import types
import uuid
from collections.abc import Iterable
from itertools import islice
from typing import Any

from .static_look import (
    class_attribute,
    class_name,
    is_class,
    is_module,
    is_well_known,
    module_name,
    own_dict,
)

MAX_VALUE_CHARACTERS = 1000
"""More than is shown: what reads it masks secrets first, which must not be cut in two."""

_MAX_TEXT = 400
_MAX_ITEMS = 8
_MAX_DEPTH = 3
_MAX_BITS = 2000
_HEAD_ROWS = 5

_PLAIN = frozenset(
    (
        type(None),
        bool,
        float,
        complex,
        range,
        type(Ellipsis),
        type(NotImplemented),
        datetime.date,
        datetime.datetime,
        datetime.time,
        datetime.timedelta,
        decimal.Decimal,
        fractions.Fraction,
        pathlib.PosixPath,
        pathlib.PurePosixPath,
        uuid.UUID,
        re.Pattern,
    )
)
"""What these say of themselves is short, and nobody else's code; a time zone's may be."""
_BRACKETS = {list: "[]", tuple: "()", set: "{}", frozenset: ("frozenset({", "})")}


def short_value(value: Any, depth: int = 0) -> str:
    """Return a value as a reader knows it, cut where it is long."""
    kind = type(value)
    if kind is str or kind is bytes or kind is bytearray:
        return _text(value)
    if kind is int:
        bits = value.bit_length()
        return repr(value) if bits <= _MAX_BITS else f"<int of {bits:,} bits>"
    if kind in _PLAIN and not _has_strange_zone(value):
        return repr(value)[:_MAX_TEXT]
    if kind in _BRACKETS:
        return _items(value, kind, depth)
    if kind is dict or kind is collections.OrderedDict or kind is collections.Counter:
        return _mapping(value, depth)
    if kind is collections.defaultdict or kind is collections.deque:
        return f"{kind.__name__}({_inner(value, depth)})"
    return _of_other_kind(value, kind, depth)


def size_of(value: Any) -> str:
    """How large a value is, where that is plain: "3 x 2", "1,000"; empty for others."""
    kind = type(value)
    if kind in (str, bytes, bytearray, list, tuple, set, frozenset, dict, collections.deque):
        return f"{len(value):,}"
    if issubclass(kind, dict):
        return f"{dict.__len__(value):,}"
    if issubclass(kind, (list, tuple)):
        return f"{(list if issubclass(kind, list) else tuple).__len__(value):,}"
    if is_well_known(kind):
        shape = _shape(value)
        return " x ".join(f"{one:,}" for one in shape)
    return ""


def type_name(value: Any) -> str:
    """What its class is called."""
    return class_name(type(value))[:_MAX_TEXT]


def _has_strange_zone(value: Any) -> bool:
    zone = getattr(value, "tzinfo", None) if type(value) in _WITH_ZONE else None
    return zone is not None and type(zone) is not datetime.timezone


_WITH_ZONE = (datetime.datetime, datetime.time)


def _text(value: Any) -> str:
    if len(value) <= _MAX_TEXT:
        return repr(value)
    return f"{value[:_MAX_TEXT]!r}… ({len(value):,})"


def _items(value: Any, kind: Any, depth: int) -> str:
    opening, closing = _BRACKETS[kind]
    if not value:
        return repr(value)
    if depth >= _MAX_DEPTH:
        return f"{opening}…{closing}"
    comma = "," if kind is tuple and len(value) == 1 else ""
    return f"{opening}{_listed(value, len(value), depth)}{comma}{closing}"


def _listed(value: Iterable[Any], count: int, depth: int) -> str:
    shown = [short_value(item, depth + 1) for item in _first(value)]
    rest = ", …" if count > len(shown) else ""
    return ", ".join(shown) + rest


def _first(value: Iterable[Any]) -> list[Any]:
    try:
        return list(islice(value, _MAX_ITEMS))
    except RuntimeError:  # it is being changed at this moment
        return []


def _mapping(value: Any, depth: int) -> str:
    kind, inner = type(value), _inner(value, depth)
    return inner if kind is dict else f"{kind.__name__}({inner})"


def _inner(value: Any, depth: int) -> str:
    if type(value) is collections.deque:
        return f"[{_listed(value, len(value), depth)}]"
    if not value:
        return "{}"
    if depth >= _MAX_DEPTH:
        return "{…}"
    shown = [
        f"{short_value(key, depth + 1)}: {short_value(one, depth + 1)}"
        for key, one in _first(dict.items(value))
    ]
    return "{" + ", ".join(shown) + (", …" if dict.__len__(value) > len(shown) else "") + "}"


def _of_other_kind(value: Any, kind: Any, depth: int) -> str:
    name = class_name(kind)
    if is_module(value):
        return f"<module {_own_text(value, '__name__')}>"
    if is_class(value):
        return f"<class {module_name(value)}.{class_name(value)}>"
    if kind is types.FunctionType or kind is types.BuiltinFunctionType:
        return f"<function {value.__qualname__}>"
    if kind is types.MethodType:
        return f"<method {short_value(value.__func__, depth + 1)}>"
    if is_well_known(kind):
        return _well_known(value, name)
    if issubclass(kind, enum.Enum):
        return f"{name}.{_own_text(value, '_name_')}"
    if issubclass(kind, tuple) and type(class_attribute(kind, "_fields")) is tuple:
        fields = class_attribute(kind, "_fields")
        return _with_fields(name, list(zip(fields, tuple.__iter__(value))), depth)  # noqa: B905
    if type(class_attribute(kind, "__dataclass_fields__")) is dict:
        own = own_dict(value)
        fields = list(class_attribute(kind, "__dataclass_fields__"))
        return _with_fields(name, [(one, own[one]) for one in fields if one in own], depth)
    return f"<{name} object>"


def _with_fields(name: str, fields: list[tuple[Any, Any]], depth: int) -> str:
    if depth >= _MAX_DEPTH:
        return f"{name}(…)"
    shown = [f"{field}={short_value(one, depth + 1)}" for field, one in fields[:_MAX_ITEMS]]
    return f"{name}({', '.join(shown)}{', …' if len(fields) > _MAX_ITEMS else ''})"


def _own_text(value: Any, name: str) -> str:
    found = own_dict(value).get(name)
    return found[:_MAX_TEXT] if type(found) is str else "?"


def _well_known(value: Any, name: str) -> str:
    """Shape, type and the first values of an array or a table."""
    shape = " x ".join(f"{one:,}" for one in _shape(value))
    what = f"{name} {shape}".rstrip()
    try:
        head = _head(value)
    except Exception:  # noqa: BLE001 - it is the code of other packages
        return what
    return f"{what} {head}".rstrip()


def _shape(value: Any) -> tuple[int, ...]:
    try:
        shape = getattr(value, "shape", ())
        return tuple(int(one) for one in islice(shape, _MAX_ITEMS))
    except Exception:  # noqa: BLE001 - see above
        return ()


def _head(value: Any) -> str:
    package = module_name(type(value)).partition(".")[0]
    if package == "pandas":
        return _pandas_head(value)
    if package == "polars" and hasattr(value, "columns"):
        rows = value.head(_HEAD_ROWS).rows()
        return f"{short_value(list(value.columns))} {short_value(rows)}"
    if package == "numpy" and hasattr(value, "dtype"):
        first = value.reshape(-1)[:_MAX_ITEMS].tolist() if value.ndim else value.item()
        return f"{value.dtype} {short_value(first)}"
    if package == "torch" and hasattr(value, "dtype"):
        return f"{value.dtype} {value.device}"
    return ""


def _pandas_head(value: Any) -> str:
    if hasattr(value, "columns"):
        columns = value.columns[:_MAX_ITEMS].tolist()
        rows = value.iloc[:_HEAD_ROWS, :_MAX_ITEMS].to_numpy().tolist()
        return f"{short_value(columns)} {short_value(rows)}"
    if hasattr(value, "iloc"):
        return f"{value.dtype} {short_value(value.iloc[:_MAX_ITEMS].tolist())}"
    if hasattr(value, "tolist"):
        return short_value(value[:_MAX_ITEMS].tolist())
    return repr(value)[:_MAX_TEXT] if package_scalar(value) else ""


def package_scalar(value: Any) -> bool:
    """Whether it is one value of pandas, such as a point in time."""
    return class_name(type(value)) in ("Timestamp", "Timedelta", "NaTType", "Period", "NAType")
