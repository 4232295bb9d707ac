"""What can be said of an object to help a reader: signature, documentation, source and its place.

None of it runs code of the user; see `static_look.py`.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import re
import sys
import types
from typing import Any

from .short_values import MAX_VALUE_CHARACTERS, short_value, size_of
from .static_look import (
    MISSING,
    Known,
    class_attribute,
    class_dict,
    class_name,
    is_class,
    is_module,
    kind_of,
    module_name,
    mro_of,
    own_dict,
    wrapped_by,
)

MAX_DOCUMENTATION = 20_000
MAX_SOURCE = 100_000

_MAX_WRAPPED = 10
_MAX_DEFAULT = 60
_TAKES_THE_REST = inspect.CO_VARARGS
_TAKES_OTHER_NAMES = inspect.CO_VARKEYWORDS
_CODE = types.CodeType
_FROZEN = re.compile(r"<frozen ([\w.]+)>")


class Parameter:
    """A parameter of a function, and how it is written."""

    def __init__(self, name: str, text: str, *, can_be_named: bool) -> None:
        self.name = name
        self.text = text
        self.can_be_named = can_be_named


def describe(found: Known, *, with_source: bool) -> dict[str, Any]:
    """Return what is known of an object, fit for JSON."""
    value = found.value if found.has_value else found.kind
    file, line = place_of(found.kind if kind_of(found) == "instance" else value)
    parameters = parameters_of(value) if found.has_value else None
    told = {
        "kind": kind_of(found),
        "type": class_name(found.kind),
        "module": _module_of(found),
        "signature": _signature(parameters),
        "parameters": None if parameters is None else [one.text for one in parameters],
        "documentation": documentation_of(found)[:MAX_DOCUMENTATION],
        "file": file,
        "line": line,
        "value": "",
        "size": size_of(found.value) if found.has_value else "",
        "source": "",
    }
    if found.has_value and told["kind"] == "instance":
        told["value"] = short_value(found.value)[:MAX_VALUE_CHARACTERS]
    if with_source:
        told["source"] = source_of(value)[:MAX_SOURCE]
    return told


def signature_of(value: Any) -> str:
    """How something is called, such as "(a, b=1)"; empty where that is not known."""
    return _signature(parameters_of(value))


def _signature(parameters: list[Parameter] | None) -> str:
    return "" if parameters is None else f"({', '.join(one.text for one in parameters)})"


def parameters_of(value: Any) -> list[Parameter] | None:
    """The parameters of what can be called; None where they are not known."""
    function, bound = _function_behind(value)
    if function is None:
        return None
    if type(function) is types.FunctionType:
        return _python_parameters(function)[bound:]
    return _built_in_parameters(function, bound)


def _function_behind(value: Any) -> tuple[Any, int]:
    """The function that a call ends in, and how many of its parameters are given already."""
    bound = 0
    for _ in range(_MAX_WRAPPED):
        kind = type(value)
        if kind is types.MethodType:
            value, bound = value.__func__, bound + 1
        elif kind is functools.partial:
            value, bound = value.func, bound + len(value.args)
        elif is_class(value):
            return _constructor_of(value)
        elif (wrapped := wrapped_by(value)) is not None:
            value = wrapped
        elif kind is types.FunctionType or kind in (
            types.BuiltinFunctionType,
            types.MethodDescriptorType,
        ):
            return value, bound
        else:
            call = class_attribute(kind, "__call__")
            if type(call) is not types.FunctionType:
                return None, 0
            value, bound = call, bound + 1
    return None, 0


def _constructor_of(kind: Any) -> tuple[Any, int]:
    for base in mro_of(kind):
        for name in ("__init__", "__new__"):
            found = class_attribute(base, name) if base is not object else MISSING
            if type(found) is staticmethod:
                found = found.__func__
            if type(found) is types.FunctionType:
                return found, 1
    if module_name(kind) == "builtins" or kind is type:
        return kind, 0
    return None, 0


def _python_parameters(function: types.FunctionType) -> list[Parameter]:
    code = function.__code__
    names = code.co_varnames
    positional = names[: code.co_argcount]
    defaults = function.__defaults__ or ()
    named_defaults = function.__kwdefaults__ or {}
    first_default = len(positional) - len(defaults)
    found: list[Parameter] = []
    for index, name in enumerate(positional):
        default = defaults[index - first_default] if index >= first_default else MISSING
        can_be_named = index >= code.co_posonlyargcount
        found.append(Parameter(name, _written(name, default), can_be_named=can_be_named))
        if index + 1 == code.co_posonlyargcount:
            found.append(Parameter("", "/", can_be_named=False))
    last = code.co_argcount + code.co_kwonlyargcount
    if code.co_flags & _TAKES_THE_REST:
        found.append(Parameter("", f"*{names[last]}", can_be_named=False))
        last += 1
    elif code.co_kwonlyargcount:
        found.append(Parameter("", "*", can_be_named=False))
    for name in names[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]:
        written = _written(name, named_defaults.get(name, MISSING))
        found.append(Parameter(name, written, can_be_named=True))
    if code.co_flags & _TAKES_OTHER_NAMES:
        found.append(Parameter("", f"**{names[last]}", can_be_named=False))
    return found


def _written(name: str, default: Any) -> str:
    if default is MISSING:
        return name
    text = short_value(default)
    return f"{name}={text if len(text) <= _MAX_DEFAULT else '…'}"


def _built_in_parameters(function: Any, bound: int) -> list[Parameter] | None:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        return None
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [
        Parameter(one.name, str(one), can_be_named=one.kind in named) for one in parameters[bound:]
    ]


def documentation_of(found: Known) -> str:
    """The docstring of an object, or of its class; empty where there is none."""
    value = found.value if found.has_value else found.kind
    if type(value) is types.MethodType:
        value = value.__func__
    if not is_class(value) and type(value) is not types.FunctionType:
        value = wrapped_by(value) or value
    text: Any = None
    if is_module(value):
        text = own_dict(value).get("__doc__")
    elif is_class(value):
        text = _documentation_of_class(value)
    elif kind_of(found) in ("function", "method", "property"):
        text = value.__doc__
    else:
        text = class_attribute(type(value), "__doc__")
    return inspect.cleandoc(text) if type(text) is str else ""


def _documentation_of_class(kind: Any) -> Any:
    text = class_attribute(kind, "__doc__")
    if type(text) is str:
        return text
    return kind.__doc__ if module_name(kind) == "builtins" else None


def _module_of(found: Known) -> str:
    value = found.value if found.has_value else found.kind
    if is_class(value):
        return module_name(value)
    function, _ = _function_behind(value) if kind_of(found) != "instance" else (None, 0)
    name = function.__module__ if type(function) is types.FunctionType else None
    return name if type(name) is str else module_name(found.kind)


def place_of(value: Any) -> tuple[str, int | None]:
    """The file where something is defined, and the line; empty where there is none."""
    if is_module(value):
        file = own_dict(value).get("__file__")
        return (file, None) if type(file) is str else ("", None)
    if is_class(value):
        file, lines = _file_of_class(value)
        found = _class_in(lines, class_name(value))
        return file, found.lineno if found is not None else None
    code = _code_of(value)
    return ("", None) if code is None else (_file_of(code), code.co_firstlineno)


def source_of(value: Any) -> str:
    """The lines that define something; empty where they are not known."""
    if is_module(value):
        return "".join(_lines(place_of(value)[0]))
    if is_class(value):
        _, lines = _file_of_class(value)
        found = _class_in(lines, class_name(value))
        if found is None:
            return ""
        first = min([found.lineno, *(one.lineno for one in found.decorator_list)])
        return "".join(lines[first - 1 : found.end_lineno])
    code = _code_of(value)
    if code is None:
        return ""
    lines = _lines(_file_of(code))[code.co_firstlineno - 1 :]
    try:
        return "".join(inspect.getblock(lines))
    except Exception:  # noqa: BLE001 - the file may have changed, to anything
        return ""


def _code_of(value: Any) -> types.CodeType | None:
    function, _ = (None, 0) if is_class(value) else _function_behind(value)
    if type(value) is property:
        function = value.fget
    code = function.__code__ if type(function) is types.FunctionType else None
    return code if type(code) is _CODE else None


def _file_of(code: types.CodeType) -> str:
    """The file that code is from; of a module that is built into Python, that in its library."""
    frozen = _FROZEN.fullmatch(code.co_filename)
    module = own_dict(sys.modules.get(frozen[1])) if frozen else {}
    file = module.get("__file__")
    return file if type(file) is str else code.co_filename


def _file_of_class(kind: Any) -> tuple[str, list[str]]:
    for member in list(class_dict(kind).values()):
        function = member.__func__ if type(member) in (staticmethod, classmethod) else member
        if type(function) is types.FunctionType and _is_of(function, kind):
            file = function.__code__.co_filename
            if lines := _lines(file):
                return file, lines
    place: Any = own_dict(sys.modules.get(module_name(kind))).get("__file__")
    return (place, _lines(place)) if type(place) is str else ("", [])


def _is_of(function: types.FunctionType, kind: Any) -> bool:
    """Whether a function was written in the body of a class, and not put there from elsewhere."""
    return function.__qualname__.startswith(f"{class_name(kind)}.")


def _class_in(lines: list[str], qualified_name: str) -> ast.ClassDef | None:
    name = qualified_name.rpartition(".")[2]
    if not any(re.match(rf"\s*class\s+{re.escape(name)}\b", line) for line in lines):
        return None
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found = [one for one in ast.walk(tree) if isinstance(one, ast.ClassDef) and one.name == name]
    return found[-1] if found else None


def _lines(file: str) -> list[str]:
    try:
        return linecache.getlines(file)
    except Exception:  # noqa: BLE001 - a loader of the user's may have made the module
        return []
