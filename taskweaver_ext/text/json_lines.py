"""Values as lines of JSON that every reader of JSON understands. Pure."""

from __future__ import annotations

import json
from typing import Any


def json_line(values: Any, separators: tuple[str, str] | None = None) -> str:  # noqa: ANN401 - JSON
    """Return one line, plain ASCII; what JSON has no word for, such as NaN, becomes text."""
    try:
        text = json.dumps(values, default=str, separators=separators, allow_nan=False)
    except ValueError:  # Python alone would write, and read, NaN and Infinity
        plain = json.loads(json.dumps(values, default=str), parse_constant=str)
        text = json.dumps(plain, separators=separators)
    return text + "\n"
