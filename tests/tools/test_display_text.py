"""A JSON value reads as a tree, and a large one stays small."""

from __future__ import annotations

from taskweaver_ext.tools.display_text import MAX_TREE_DEPTH, json_tree, plain_display


def test_each_key_and_item_has_a_line() -> None:
    value = {"name": "ünï", "sizes": [1, 2.5], "none": None, "empty": {}, "one": {"k": True}}

    assert json_tree(value).splitlines() == [
        "{5 keys}",
        '  name: "ünï"',
        "  sizes: [2 items]",
        "    [0]: 1",
        "    [1]: 2.5",
        "  none: null",
        "  empty: {}",
        "  one: {1 key}",
        "    k: true",
    ]


def test_a_plain_value_is_its_own_tree() -> None:
    assert json_tree("a") == '"a"'


def test_what_is_too_much_is_cut_and_says_so() -> None:
    deep: object = 1
    for _ in range(10_000):
        deep = [deep]

    assert json_tree(list(range(1000)), max_lines=3).splitlines() == [
        "[1000 items]",
        "  [0]: 0",
        "  [1]: 1",
        "…",
    ]
    assert len(json_tree(deep).splitlines()) == MAX_TREE_DEPTH + 1
    assert json_tree("x" * 10_000).endswith("… (10,002 characters)")


def test_an_object_known_by_its_address_alone_is_told_by_its_other_forms() -> None:
    plain = "<__main__.Thing object at 0x7f00deadbeef>"

    assert plain_display({"text/plain": plain, "text/html": "<b>x</b>"}) == "**x**\n"
    assert plain_display({"text/plain": plain, "text/latex": r"$\alpha^2$"}) == "α²\n"
    assert plain_display({"text/plain": plain}) == f"{plain}\n"
