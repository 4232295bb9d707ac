"""What a model is told about where its code will run, and what it will find there."""

from __future__ import annotations

from collections.abc import Sequence

from taskweaver_ext.approval import Approval, ShellOutlook
from taskweaver_ext.ces.execution.results import KernelContents

_SYSTEMS = {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}


_SHELL_OUTLOOKS: dict[ShellOutlook, str] = {
    "asks": "A person has to approve code in other languages than Python before it runs.",
    "refused": "Code in other languages than Python, and programs started from it, are refused.",
}


def describe_place(
    languages: Sequence[str],
    contents: KernelContents | None,
    *,
    is_contained: bool,
    approval: Approval,
) -> str:
    """Return what stays the same from one reply to the next, as the lines of a list."""
    lines = [f"- Languages: {', '.join(languages)}."]
    if contents is not None:
        system = _SYSTEMS.get(contents.system, contents.system)
        packages = ", ".join(contents.packages) or "none"
        lines.append(f"- Python {contents.python} on {system}.")
        lines.append(f"- Of the well-known packages these are installed: {packages}.")
    if is_contained:
        lines.append("- It is a container without a network.")
    shell = approval.outlook(is_contained=is_contained)
    if shell in _SHELL_OUTLOOKS:
        lines.append(f"- {_SHELL_OUTLOOKS[shell]}")
        if approval.always_allowed:
            lines.append(f"- These bash commands run: {', '.join(approval.always_allowed)}.")
    return "\n".join(lines)


def list_variables(contents: KernelContents | None) -> str:
    """Return in a sentence which variables there are; without a kernel there are none."""
    if contents is None:
        return "Python variables: (none)."
    listed = ", ".join(f"{name}: {kind}" for name, kind in contents.variables) or "(none)"
    hidden = contents.variable_count - len(contents.variables)
    return f"Python variables: {listed}{f' and {hidden} older ones' if hidden > 0 else ''}."
