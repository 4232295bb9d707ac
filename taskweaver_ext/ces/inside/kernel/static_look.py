"""Look at objects without running any of their code.

Properties, `__getattr__`, `__dir__`, `__repr__` and the like belong to the user: called from
another thread, in the middle of what runs, they could block it, change it or break it. What can
be known without them is read from the dictionaries that Python itself keeps. Only objects of a
few well-known packages, whose own code is known to be harmless, are asked.
"""

from __future__ import annotations

import ast
import builtins
import sys
import types
from typing import Any

MISSING: Any = object()
"""Stands for what is not there, or cannot be known."""

WELL_KNOWN = frozenset(("numpy", "pandas", "polars", "pyarrow", "scipy", "torch", "xarray"))
"""Packages whose objects may be asked: for attributes, names and shapes."""

_MAX_NAMES = 20_000

_mro_of = type.__dict__["__mro__"].__get__
class_dict = type.__dict__["__dict__"].__get__
"""Returns what a class itself defines."""
_module_of_class = type.__dict__["__module__"].__get__
_name_of_class = type.__dict__["__qualname__"].__get__

_PLAIN_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType)
"""Of slots and of types written in C: reading them runs no Python code."""
_BUILT_IN_CALLABLES = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.MethodWrapperType,
)


class Known:
    """What is known of the result of an expression: the object itself, or only its class."""

    __slots__ = ("has_value", "kind", "value")

    def __init__(self, value: Any = MISSING, kind: Any = None) -> None:
        self.has_value = value is not MISSING
        self.value = value
        self.kind = type(value) if self.has_value else kind
        """Its class."""


def is_class(value: object) -> bool:
    """Whether an object is a class; what it says of its own class is not asked."""
    return issubclass(type(value), type)


def is_module(value: object) -> bool:
    """Whether an object is a module."""
    return issubclass(type(value), types.ModuleType)


def class_name(kind: Any) -> str:
    """The name of a class, as it was defined."""
    name = _name_of_class(kind)
    return name if type(name) is str else "?"


def module_name(kind: Any) -> str:
    """The module that a class says it is from."""
    module = _module_of_class(kind)
    return module if type(module) is str else ""


def mro_of(kind: Any) -> tuple[Any, ...]:
    """A class and its bases, in the order in which they are searched."""
    bases: tuple[Any, ...] = _mro_of(kind)
    return bases


def class_attribute(kind: Any, name: str) -> Any:
    """What a class or its bases define under a name, as it stands there."""
    for base in mro_of(kind):
        found = class_dict(base).get(name, MISSING)
        if found is not MISSING:
            return found
    return MISSING


def own_dict(value: object) -> dict[Any, Any]:
    """The attributes that an object itself has, without those of its class."""
    descriptor = class_attribute(type(value), "__dict__")
    if type(descriptor) not in _PLAIN_DESCRIPTORS:
        return {}
    try:
        found = descriptor.__get__(value)
    except AttributeError:
        return {}
    return found if type(found) is dict else {}


def is_well_known(kind: Any) -> bool:
    """Whether a class is one of a well-known package, and not only called so."""
    module = module_name(kind)
    if module.partition(".")[0] not in WELL_KNOWN:
        return False
    found = own_dict(sys.modules.get(module)).get(class_name(kind))
    return found is kind


def attribute(owner: Known, name: str) -> Known | None:
    """What an attribute is, as far as that is known without running code of the user."""
    if not owner.has_value:
        return _through_instance(owner, class_attribute(owner.kind, name))
    value = owner.value
    if is_class(value):
        entry = class_attribute(value, name)
        if entry is MISSING:
            return _through_instance(owner, class_attribute(type(value), name))
        return _through_class(value, entry)
    entry = class_attribute(owner.kind, name)
    if not _is_data_descriptor(entry):
        own = own_dict(value).get(name, MISSING)
        if own is not MISSING:
            return Known(own)
    if is_well_known(owner.kind):
        return _asked(value, name)
    return _through_instance(owner, entry)


def names_of(owner: Known) -> list[str]:
    """The names of attributes, in no order."""
    kind = owner.value if owner.has_value and is_class(owner.value) else owner.kind
    names: set[Any] = set()
    for base in mro_of(kind):
        names.update(list(class_dict(base)))
    if owner.has_value and not is_class(owner.value):
        own = own_dict(owner.value)
        names.update(list(own))
        if is_module(owner.value) and type(own.get("__all__")) in (list, tuple):
            names.update([name for name in list(own["__all__"]) if type(name) is str])
        if is_well_known(owner.kind):
            names.update(_asked_names(owner.value))
    return [name for name in names if type(name) is str and name.isidentifier()]


def wrapped_by(value: object) -> types.FunctionType | None:
    """The function that a decorator has put into an object, such as a cache or a dispatcher."""
    wrapped = own_dict(value).get("__wrapped__")
    return wrapped if type(wrapped) is types.FunctionType else None


def kind_of(found: Known | None) -> str:
    """What sort of thing it is, in Jupyter's words."""
    if found is None:
        return "property"
    if not found.has_value:
        return "instance"
    value = found.value
    if is_module(value):
        return "module"
    if is_class(value):
        return "class"
    if type(value) is types.MethodType:
        return "method"
    if type(value) is property:
        return "property"
    is_function = type(value) is types.FunctionType or type(value) in _BUILT_IN_CALLABLES
    if is_function or wrapped_by(value) is not None:
        return "function"
    return "instance"


def result_of(function: Any) -> Known | None:
    """What a call gives, by what is called: an object of a class, or what is annotated."""
    if is_class(function):
        return Known(kind=function)
    if type(function) is types.MethodType:
        function = function.__func__
    if type(function) is not types.FunctionType:
        return None
    note = function.__annotations__.get("return") if _has_plain_notes(function) else None
    return _annotated(note, function.__globals__)


def _has_plain_notes(function: types.FunctionType) -> bool:
    """Whether reading the annotations runs nothing: newer versions of Python compute them."""
    return getattr(function, "__annotate__", None) is None


def _annotated(note: Any, namespace: dict[str, Any]) -> Known | None:
    if type(note) is str:
        try:
            first = ast.parse(note, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        while isinstance(first, ast.BinOp):
            first = first.left  # of several possibilities
        if isinstance(first, ast.Subscript):
            first = first.value
        if not isinstance(first, ast.Name):
            return None
        note = namespace.get(first.id, own_dict(builtins).get(first.id))
    return Known(kind=note) if is_class(note) else None


def _through_class(owner: Any, entry: Any) -> Known | None:
    if type(entry) is staticmethod:
        return Known(entry.__func__)
    if type(entry) is classmethod:
        return Known(types.MethodType(entry.__func__, owner))
    return Known(entry)


def _through_instance(owner: Known, entry: Any) -> Known | None:
    if entry is MISSING:
        return None
    if type(entry) is types.FunctionType:
        return Known(types.MethodType(entry, owner.value if owner.has_value else owner.kind))
    if type(entry) is classmethod:
        return Known(types.MethodType(entry.__func__, owner.kind))
    if type(entry) is staticmethod:
        return Known(entry.__func__)
    if type(entry) is property:
        return result_of(entry.fget)
    if type(entry) in (*_PLAIN_DESCRIPTORS, types.MethodDescriptorType) and owner.has_value:
        return _read_plainly(owner, entry)
    if type(entry) in _BUILT_IN_CALLABLES or class_attribute(type(entry), "__get__") is MISSING:
        return Known(entry)
    return None


def _read_plainly(owner: Known, descriptor: Any) -> Known | None:
    try:
        return Known(descriptor.__get__(owner.value))
    except Exception:  # noqa: BLE001 - it has no value yet, or is not for this object
        return None


def _is_data_descriptor(entry: Any) -> bool:
    return entry is not MISSING and class_attribute(type(entry), "__set__") is not MISSING


def _asked(value: Any, name: str) -> Known | None:
    try:
        return Known(getattr(value, name))
    except Exception:  # noqa: BLE001 - it is the code of other packages
        return None


def _asked_names(value: Any) -> list[Any]:
    try:
        return dir(value)[:_MAX_NAMES]
    except Exception:  # noqa: BLE001 - see above
        return []
