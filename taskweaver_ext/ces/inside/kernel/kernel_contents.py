"""What a kernel holds for code to use: well-known packages, and variables of earlier code.

Looking must neither run the user's code nor take long: of a variable only its type is
told, and the size where that is plain.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Collection
from typing import Any

MAX_VARIABLES = 40
MAX_COLUMNS = 20
MAX_NAME_CHARACTERS = 40

_PACKAGES = (
    "numpy pandas polars pyarrow scipy sklearn statsmodels matplotlib seaborn plotly PIL sympy"
    " networkx torch requests httpx bs4 lxml openpyxl sqlalchemy"
)
_SIZED = (str, bytes, list, tuple, dict, set, frozenset)
_WITH_SHAPE = frozenset(("numpy", "pandas", "polars", "scipy", "torch"))


def describe(namespace: dict[Any, Any], known: Collection[str]) -> dict[str, Any]:
    """Return what is there, fit for JSON.

    Args:
        namespace: The variables of the user.
        known: Names in it that need not be told.
    """
    names = [
        name
        for name in list(namespace)
        if isinstance(name, str) and name not in known and not name.startswith("_")
    ]
    return {
        "python": ".".join(map(str, sys.version_info[:2])),
        "system": sys.platform,
        "packages": [name for name in _PACKAGES.split() if _is_installed(name)],
        "variables": [
            [name[:MAX_NAME_CHARACTERS], _kind(namespace.get(name))]
            for name in names[-MAX_VARIABLES:]
        ],
        "variable_count": len(names),
    }


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _kind(value: object) -> str:
    kind = type(value)
    if issubclass(kind, types.ModuleType):
        return "module"
    if kind is types.FunctionType:
        code = value.__code__  # type: ignore[attr-defined]  # it is a function
        return f"function({', '.join(code.co_varnames[: code.co_argcount])})"
    if kind in _SIZED:
        return f"{kind.__name__} of {len(value)}"  # type: ignore[arg-type]  # all have a length
    if str(kind.__module__).partition(".")[0] in _WITH_SHAPE:
        return _kind_with_shape(value)
    return kind.__name__


def _kind_with_shape(value: Any) -> str:
    name = type(value).__name__
    try:
        shape = "x".join(map(str, getattr(value, "shape", ())))
        columns = list(getattr(value, "columns", ()))[:MAX_COLUMNS]
        listed = ", ".join(str(column)[:MAX_NAME_CHARACTERS] for column in columns)
    except Exception:  # noqa: BLE001 - it is the code of other packages
        return name
    return f"{name} {shape}".strip() + (f" ({listed})" if listed else "")
