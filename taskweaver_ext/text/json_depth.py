"""How deeply a value read from JSON is nested. Pure, and without calling itself."""

from __future__ import annotations


def is_nested_deeper(value: object, most_levels: int) -> bool:
    """Say whether there are lists or objects within each other on more than so many levels."""
    level = [value]
    for _ in range(most_levels + 1):
        containers = [one for one in level if isinstance(one, dict | list)]
        if not containers:
            return False
        level = [
            item for one in containers for item in (one.values() if isinstance(one, dict) else one)
        ]
    return True
