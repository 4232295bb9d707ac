"""YAML that a project brings (plugins, roles, prompts, examples), read within bounds.

Only texts, numbers, dates, lists and mappings are made of it, and not before it is known how much
that will be: one line of YAML can refer to the line before it ten times over, and so on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from taskweaver_ext.config.data_files import MOST_DEPTH, DataFileError, read_text, too_deep

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML without libyaml: slower, and the same otherwise
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

MOST_VALUES = 100_000
"""Counted as often as they are referred to."""

_LONGEST_NUMBER = 400
_NUMBER = re.compile(r"[-+0-9][-+0-9_.:eE]*")

_CONSTRUCTION_ERRORS = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError)
"""What PyYAML raises, beside errors of its own, for a scalar that is not what its tag says."""


def read_yaml(path: Path) -> Any:  # noqa: ANN401  what the file holds
    """Return what a YAML file holds.

    Raises:
        OSError: It cannot be read.
        DataFileError: It is not YAML, too much of it, or asks for other objects.
    """
    text = read_text(path)
    try:
        _check(yaml.parse(text, _Loader))
        return yaml.load(text, _Loader)
    except DataFileError:
        raise
    except (yaml.YAMLError, RecursionError, *_CONSTRUCTION_ERRORS) as error:
        raise DataFileError(str(error) or type(error).__name__) from error


def _check(events: Iterable[Any]) -> None:
    """Refuse what would become too much, before any of it is made."""
    count = 0
    open_anchors: list[tuple[str | None, int]] = []
    """Of the lists and mappings under way: their name, and the count where they began."""
    sizes: dict[str, int] = {}
    for event in events:
        match event:
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                open_anchors.append((event.anchor, count))
                count += 1
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                anchor, began = open_anchors.pop()
                if anchor:
                    sizes[anchor] = count - began
            case yaml.ScalarEvent():
                count += 1
                if event.anchor:
                    sizes[event.anchor] = 1
                if len(event.value) > _LONGEST_NUMBER and _NUMBER.fullmatch(event.value):
                    raise DataFileError(f"a number has more than {_LONGEST_NUMBER} digits")
            case yaml.AliasEvent():
                if any(anchor == event.anchor for anchor, _ in open_anchors):
                    raise DataFileError(f"what &{event.anchor} names refers to itself")
                count += sizes.get(event.anchor or "", 1)
        if len(open_anchors) > MOST_DEPTH:
            raise too_deep()
        if count > MOST_VALUES:
            raise DataFileError(f"it stands for more than {MOST_VALUES:,} values")
