"""Read JSON whose sender may lie: no constants that are no numbers, no halves of characters."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from taskweaver_ext.errors import ProtocolError

MAX_DEPTH = 200
"""Of what a message holds: whatever passes it on calls itself for every level."""

_HALF_CHARACTER = re.compile(rb"\\u[dD]")


def parse_json(content: bytes) -> Any:  # noqa: ANN401 - whatever JSON it is
    """Return what JSON says; how much memory that takes is the caller's affair.

    Raises:
        ProtocolError: It is none.
    """
    try:
        message = json.loads(content.decode(), parse_constant=_refuse, parse_float=_finite)
        if _HALF_CHARACTER.search(content):
            message = _with_whole_characters(message)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"A kernel sent a message that is no JSON: {error}.") from error
    return message


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return number


def _with_whole_characters(value: Any) -> Any:  # noqa: ANN401 - whatever JSON it is
    """Write out halves of characters, which cannot be encoded by those who pass a text on."""
    if isinstance(value, dict):
        return {_with_whole_characters(k): _with_whole_characters(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_with_whole_characters(part) for part in value]
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
