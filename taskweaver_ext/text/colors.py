"""Plain terminal colours in one normal form: what is in force, and how it is opened and closed.

A style is what stands between `ESC [` and `m`; empty for none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

RESET = "\x1b[0m"

_ATTRIBUTES = ((1, 22), (2, 22), (3, 23), (4, 24), (21, 24), (7, 27), (9, 29), (53, 55))
# What a colour code sets, named by the code that takes it back.
_SLOTS = {
    **dict(_ATTRIBUTES),
    **dict.fromkeys([*range(30, 39), *range(90, 98)], 39),
    **dict.fromkeys([*range(40, 49), *range(100, 108)], 49),
    58: 59,
}
_SUBPARAMETERS = re.compile(r"(4|38|48|58)(?::[0-9]{0,3}){1,6}")


def style_change(before: str, after: str) -> str:
    """The sequence that leads from one style to another."""
    if not after:
        return RESET
    return f"\x1b[0;{after}m" if before else f"\x1b[{after}m"


def paint(runs: Iterable[tuple[str, str]]) -> str:
    """Join runs of (style, text) to one text that closes what it opens."""
    painted: list[str] = []
    shown = ""
    for style, text in runs:
        if style != shown:
            painted.append(style_change(shown, style))
            shown = style
        painted.append(text)
    if shown:
        painted.append(RESET)
    return "".join(painted)


@lru_cache(maxsize=1024)
def restyle(style: str, parameters: str) -> str:
    """The colours in force once `parameters` (as in `ESC [ parameters m`) follow on `style`.

    Only what has a meaning is kept, once, so that a style stays small however it came about.
    """
    in_force: dict[int, str] = {}
    codes = iter(f"{style};{parameters}".split(";"))
    for code in codes:
        if ":" in code:
            if known := _SUBPARAMETERS.fullmatch(code):
                in_force[_SLOTS[int(known[1])]] = code
            continue
        number = int(code or "0")
        if number == 0:
            in_force.clear()
        elif number in (38, 48, 58):
            mode = next(codes, "").lstrip("0")
            values = [next(codes, "") or "0" for _ in range({"5": 1, "2": 3}.get(mode, 0))]
            if not values or not all(value.isdigit() and int(value) < 256 for value in values):
                break  # what the rest was meant to be cannot be known
            color = (number, mode, *map(int, values))
            in_force[_SLOTS[number]] = ";".join(map(str, color))
        elif number in _SLOTS:
            in_force[_SLOTS[number]] = str(number)
        else:
            in_force.pop(number, None)
    return ";".join(in_force.values())
