"""Names and signatures from a live kernel, for completion."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from taskweaver_ext.ces.execution.results import ExecutionResult

MAX_NAMES = 100

_SOURCE = r"""
import builtins, inspect, itertools, json, re, types, warnings
from IPython.core.completer import provisionalcompleter

def find(shell, code, limit):
    completer = shell.Completer
    # Reading sources may take seconds; what is alive in the kernel can be asked at once.
    used_jedi, completer.use_jedi = completer.use_jedi, False
    try:
        with provisionalcompleter(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = list(itertools.islice(completer.completions(code, len(code)), limit))
    finally:
        completer.use_jedi = used_jedi
    return json.dumps(
        [[one.text, len(code) - one.start, signature(shell, code[:one.start] + one.text)]
         for one in found]
    )

def signature(shell, code):
    match = re.search(r"[^\W\d][\w.]*$", code)
    first, *others = match[0].split(".") if match else [""]
    value = shell.user_ns.get(first, getattr(builtins, first, None))
    for name in others:
        # Attributes of anything else may run code when they are looked at.
        is_plain = isinstance(value, (types.ModuleType, type))
        look_up = getattr if is_plain else inspect.getattr_static
        value = look_up(value, name, None)
    try:
        return str(inspect.signature(value)) if callable(value) else ""
    except (TypeError, ValueError):
        return ""
"""
"""Runs in the kernel, in a namespace of its own."""


@dataclass(frozen=True, slots=True)
class KernelName:
    """Something the kernel knows that would fit where the cursor is."""

    text: str
    replaces: int
    """How many characters before the cursor it stands for."""
    signature: str = ""


def find_names(run_quietly: Callable[[str], ExecutionResult], code: str) -> list[KernelName]:
    """Return what a kernel knows that fits at the end of some code.

    Args:
        run_quietly: Runs code on the kernel without showing it.
    """
    source = f"{_SOURCE}\nprint(find(shell, {code!r}, {MAX_NAMES}))"
    result = run_quietly(f"exec({source!r}, {{'shell': get_ipython()}})")
    try:
        found = json.loads("".join(result.stdout))
    except ValueError:  # code printed into it, or the kernel is of another kind
        return []
    return [
        KernelName(str(text), int(replaces), str(signature or ""))
        for text, replaces, signature in found
    ]
