"""Names and signatures from a live kernel, for completion."""

from __future__ import annotations

import json
from collections.abc import Callable

from taskweaver_ext.ces.results import ExecutionResult
from taskweaver_ext.chat.console.completion import KernelName

MAX_NAMES = 100

_SOURCE = """
def find(shell, code, limit):
    import itertools, json, warnings
    from IPython.core.completer import provisionalcompleter
    with provisionalcompleter(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = itertools.islice(shell.Completer.completions(code, len(code)), limit)
        return json.dumps([[one.text, len(code) - one.start, one.signature] for one in found])
"""
"""Runs in the kernel, in a namespace of its own."""


def find_names(run_quietly: Callable[[str], ExecutionResult], code: str) -> list[KernelName]:
    """Return what a kernel knows that fits at the end of some code.

    Args:
        run_quietly: Runs code on the kernel without showing it to anybody.
    """
    source = f"{_SOURCE}\nprint(find(get_ipython(), {code!r}, {MAX_NAMES}))"
    result = run_quietly(f"exec({source!r}, {{'get_ipython': get_ipython}})")
    try:
        found = json.loads("".join(result.stdout))
    except ValueError:  # code printed into it, or the kernel is of another kind
        return []
    return [
        KernelName(str(text), int(replaces), str(signature or ""))
        for text, replaces, signature in found
    ]
