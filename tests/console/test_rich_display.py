"""What code displays, as lines that a person can read."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from taskweaver_ext.console.pictures import PictureDrawer
from taskweaver_ext.console.rich_display import DisplayView
from taskweaver_ext.console.rows import Painter, cell_width
from taskweaver_ext.text.terminal import row_text
from tests.support.hostile_text import EVIL, complaints_about

OBJECT = "<__main__.f.<locals>.Thing object at 0x7f00deadbeef>"


def lines_of(bundle: dict[str, Any], width: int = 74, **files: str) -> list[str]:
    view = DisplayView(Painter(has_color=False), PictureDrawer())
    return view.lines(bundle, files, width)


def frame_html(columns: int, rows: int, value: str = "0.25") -> str:
    """A table as pandas writes it."""
    names = "".join(f"<th>column_{n}</th>" for n in range(columns))
    cells = f"<td>{value}</td>" * columns
    body = "".join(f"<tr><th>{n}</th>{cells}</tr>" for n in range(rows))
    return (
        "<div><style scoped>.dataframe {}</style>\n"
        f'<table border="1" class="dataframe"><thead><tr style="text-align: right;"><th></th>'
        f"{names}</tr></thead><tbody>{body}</tbody></table></div>"
    )


@pytest.mark.parametrize("width", [74, 34, 14])
def test_a_table_of_data_fits_the_width_and_says_what_is_missing(width: int) -> None:
    bundle = {"text/html": frame_html(12, 3), "text/plain": "wrapped \\\nby pandas"}

    lines = lines_of(bundle, width)

    assert all(cell_width(line) <= width for line in lines[:-1])
    assert lines[0].split()[0].startswith("col") or "…" in lines[0]
    assert " … " in lines[0] or lines[0].endswith("…")
    assert "of 12 columns are shown" in lines[-1]
    assert len(lines) == 6


def test_a_table_that_fits_is_shown_whole_with_numbers_to_the_right() -> None:
    html = frame_html(2, 2).replace("<td>0.25</td></tr>", "<td>好的</td></tr>")

    assert lines_of({"text/html": html, "text/plain": "x"}) == [
        "   column_0  column_1",
        "─  ────────  ────────",
        "0      0.25  好的",
        "1      0.25  好的",
    ]


def test_the_column_with_which_pandas_says_that_some_are_missing_is_not_shown_twice() -> None:
    html = frame_html(8, 2).replace("column_4", "...")
    parts = html.split("<td>0.25</td>")
    html = "<td>0.25</td>".join(parts[:5]) + "<td>...</td>" + "<td>0.25</td>".join(parts[5:13])
    html += "<td>...</td>" + "<td>0.25</td>".join(parts[13:]) + "<p>2 rows × 30 columns</p>"

    lines = lines_of({"text/html": html}, 40)

    assert lines[0].count("…") == 1
    assert "..." not in "".join(lines)
    assert lines[-1] == "2 rows × 30 columns"


@pytest.mark.parametrize(
    ("bundle", "lines"),
    [
        ({"text/html": "<p>a <b>b</b></p><ul><li>c</li></ul>"}, ["a *b*", "", "• c"]),
        ({"text/markdown": "# T\n\n`x`"}, ["T", "═", "", "`x`"]),
        ({"text/latex": r"$\frac{x^2}{2}$"}, ["x²/2"]),
        ({"application/json": {"a": [1]}}, ["{1 key}", "  a: [1 item]", "    [0]: 1"]),
    ],
)
@pytest.mark.parametrize("plain", [OBJECT, "<IPython.core.display.HTML object>", None])
def test_an_object_is_shown_by_what_says_more_than_where_it_is(
    bundle: dict[str, Any], lines: list[str], plain: str | None
) -> None:
    assert lines_of(bundle | ({"text/plain": plain} if plain else {})) == lines


def test_an_object_with_words_of_its_own_is_shown_by_them() -> None:
    widget = {
        "text/plain": "IntSlider(value=7)",
        "application/vnd.jupyter.widget-view+json": {"model_id": "x"},
    }

    assert lines_of(widget) == ["IntSlider(value=7)"]
    assert lines_of({"text/plain": "x**2", "text/latex": "$x^2$"}) == ["x**2"]
    assert lines_of({"text/plain": OBJECT}) == [OBJECT]


def test_large_parts_are_read_from_the_session_and_from_nowhere_else(tmp_path: Path) -> None:
    session = tmp_path / "session"
    (session / "displays").mkdir(parents=True)
    (session / "displays" / "a.html").write_text("<p>from the <b>file</b></p>")
    (tmp_path / "secret.html").write_text("secret")
    (session / "link.html").symlink_to(tmp_path / "secret.html")
    view = DisplayView(Painter(has_color=False), PictureDrawer())
    view.session_dir = session

    def shown(name: str) -> list[str]:
        return view.lines({"text/plain": OBJECT}, {"text/html": name}, 74)

    assert shown("displays/a.html") == ["from the *file*"]
    assert shown("link.html") == shown("../secret.html") == shown("none.html") == [OBJECT]


@pytest.mark.parametrize("kind", ["text/html", "text/markdown", "text/latex", "text/plain"])
def test_nothing_of_a_display_drives_the_terminal(kind: str) -> None:
    for text in (
        EVIL,
        frame_html(2, 1, EVIL),
        f"| {EVIL} |\n|---|\n| {EVIL} |",
        f"\\frac{{{EVIL}}}",
    ):
        lines = [row_text(line) for line in lines_of({kind: text})]
        assert complaints_about("\n".join(lines).encode()) == []


def test_a_picture_that_cannot_be_shown_has_no_lines() -> None:
    assert lines_of({"image/png": base64.b64encode(b"x").decode(), "text/plain": "<Figure>"}) == []
    assert lines_of({"image/svg+xml": "<svg/>", "text/plain": "<SVG>"}) == []
