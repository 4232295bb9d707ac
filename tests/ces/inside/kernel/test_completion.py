"""What fits in code that is being typed, by what a namespace holds."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path

import numpy
import pandas  # type: ignore[import-untyped]  # it brings no types
import pytest

from taskweaver_ext.ces.inside.kernel.completion import Completer
from taskweaver_ext.ces.inside.kernel.inspection import describe
from taskweaver_ext.ces.inside.kernel.short_values import short_value, size_of
from taskweaver_ext.ces.inside.kernel.static_look import Known


class Point:
    """A place."""

    __slots__ = ("x",)

    def __init__(self, x: int = 1) -> None:
        self.x = x

    @property
    def moved(self) -> Point:
        raise AssertionError("looked at")

    def copy(self, *, deep: bool = False) -> Point:
        raise AssertionError("called")

    @classmethod
    def origin(cls) -> Point:
        raise AssertionError("called")


@functools.lru_cache
def cached(left: int, right: int = 2) -> int:
    """Add them."""
    return left + right


NAMESPACE = {
    "point": Point(),
    "points": [Point()],
    "Point": Point,
    "cached": cached,
    "json": json,
    "os": os,
    "prices": {"apple": 1, 'a "b"': 2, 3: 4},
    "table": pandas.DataFrame({"city": ["Oslo"], "people": [1]}),
    "array": numpy.zeros((3, 2)),
    "hidden_name": 1,
}


def complete(code: str, cursor: int | None = None) -> list[str]:
    completer = Completer(NAMESPACE, {"hidden_name"}, lambda: ["%time", "%%time", "%cd"])
    found = completer.complete(code, len(code) if cursor is None else cursor)
    assert code[found["start"] : found["end"]] == code[found["start"] : cursor]
    return [text for text, _, _ in found["matches"]]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("poi", ["point", "points"]),
        ("point.", ["copy", "moved", "origin", "x"]),
        ("point.moved.co", ["copy"]),
        ("Point.ori", ["origin"]),
        ("Point().co", ["copy"]),
        ("Point.origin().copy(deep=True).co", ["copy"]),
        ("points[0].co", ["copy"]),
        ("points[-1].co", ["copy"]),
        ("points[5].", []),
        ("nothing.", []),
        ("x = [point.co", ["copy"]),
        ("cached(le", ["left=", "len"]),
        ("cached(left=1, r", ["right=", "raise", "return", "range", "repr", "reversed", "round"]),
        ("prices['", ["apple", 'a "b"']),
        ('prices["a \\"', ['a \\"b\\"']),
        ("table['c", ["city"]),
        ("table.peo", ["people"]),
        ("json.dum", ["dump", "dumps"]),
        ("from json import dum", ["dump", "dumps"]),
        ("from json import loads, dum", ["dump", "dumps"]),
        ("import json, o", None),
        ("import importlib.met", ["metadata"]),
        ("%ti", ["%time", "%%time"]),
        ("'abc'.isal", ["isalnum", "isalpha"]),
        ("'abc'.upper().isal", ["isalnum", "isalpha"]),
        ("fresh = 'a'\nfresh.isal", ["isalnum", "isalpha"]),
        ("import os as system\nsystem.getpi", ["getpid"]),
        ("def area(width):\n    return wid", ["width"]),
        ("f'{point.co", ["copy"]),
        ("# point.", []),
        ("'point.", []),
        ("3.", []),
        ("hidden_n", ["hidden_name"]),
        ("point.__sl", ["__slots__"]),
    ],
)
def test_what_fits_is_found(code: str, expected: list[str] | None) -> None:
    found = complete(code)

    assert found == expected if expected is not None else "os" in found


def test_the_code_after_the_cursor_stays(tmp_path: Path) -> None:
    assert complete("point.co + 1", 8) == ["copy"]


def test_paths_are_completed_in_strings(tmp_path: Path) -> None:
    (tmp_path / "sales.csv").touch()
    (tmp_path / "samples").mkdir()

    assert complete(f"open('{tmp_path}/sa") == ["sales.csv", "samples/"]


@pytest.mark.parametrize("code", ["'" * 50_000, "(" * 50_000, "a." * 50_000, "f'{" * 20_000, "\\"])
def test_strange_code_offers_something_or_nothing(code: str) -> None:
    assert isinstance(complete(code), list)


def test_decorated_functions_and_those_of_packages_are_explained() -> None:
    told = describe(Known(cached), with_source=True)
    mean = describe(Known(numpy.mean), with_source=False)

    assert (told["kind"], told["signature"]) == ("function", "(left, right=2)")
    assert told["documentation"] == "Add them."
    assert told["source"].startswith("@functools.lru_cache\ndef cached")
    assert mean["signature"].startswith("(a, axis=None")
    assert mean["file"].endswith("fromnumeric.py")


def test_tables_and_arrays_are_shown_by_shape_and_first_values() -> None:
    table, array = NAMESPACE["table"], NAMESPACE["array"]

    assert (size_of(table), size_of(array)) == ("1 x 2", "3 x 2")
    assert short_value(table) == "DataFrame 1 x 2 ['city', 'people'] [['Oslo', 1]]"
    assert short_value(array) == "ndarray 3 x 2 float64 [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]"
