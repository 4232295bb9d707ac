"""A session as Markdown: readable, and nothing in it changes what comes after it."""

from __future__ import annotations

from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from taskweaver_ext.session.export.export import export_session
from taskweaver_ext.session.export.markdown_text import fenced, inline_code, quoted
from tests.support.exported import PICTURE, exported, real_session, session_saying, source_of
from tests.support.markup_texts import MARKUP_TEXTS


def tokens_of(text: str) -> list[Token]:
    return MarkdownIt("commonmark").parse(text)


def all_tokens(text: str) -> list[Token]:
    return [one for token in tokens_of(text) for one in (token, *(token.children or ()))]


def test_a_session_reads_well_and_its_pictures_are_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "session.md"
    with real_session(tmp_path) as session:
        done = session.export(path)

    text = path.read_text(encoding="utf-8")
    assert text.startswith("# Show me everything.\n")
    assert "> It is **42**." in text
    assert "```python\n1 / 0\n```" in text
    assert "ZeroDivisionError: division by zero" in text
    assert "```bash\necho from bash\n```" in text
    assert "```text\nto stdout\n```" in text
    assert "> | name |" in text
    assert "who? Ada" in text
    [picture] = [one for one in all_tokens(text) if one.type == "image"]
    assert (tmp_path / str(picture.attrs["src"])).read_bytes() == PICTURE
    assert any("session_files" in note for note in done.notes)


def test_a_text_alone_holds_its_pictures(tmp_path: Path) -> None:
    with real_session(tmp_path) as session:
        text = exported(source_of(session), "md")

    assert "](data:image/png;base64," in text


@pytest.mark.parametrize("text", MARKUP_TEXTS)
def test_a_fence_holds_whatever_is_in_it(text: str) -> None:
    [fence, paragraph, *_] = tokens_of(f"{fenced(text, 'python')}\n\nafter")

    assert (fence.type, fence.info) == ("fence", "python")
    assert paragraph.type == "paragraph_open"


@pytest.mark.parametrize("text", MARKUP_TEXTS)
def test_a_quotation_ends_what_is_left_open_in_it(text: str) -> None:
    tokens = tokens_of(f"{quoted(text)}\n\nafter")

    assert tokens[0].type == "blockquote_open"
    assert [one.type for one in tokens[-3:]] == ["paragraph_open", "inline", "paragraph_close"]
    assert tokens[-2].content == "after"
    assert not any(one.type.startswith("html") for one in all_tokens(quoted(text)))


@pytest.mark.parametrize("text", MARKUP_TEXTS)
def test_a_line_of_code_stays_one(text: str) -> None:
    [inline] = [one for one in tokens_of(f"{inline_code(text)} after") if one.type == "inline"]

    assert inline.children is not None
    assert [one.type for one in inline.children if one.type != "text"] == ["code_inline"]


@pytest.mark.parametrize("text", MARKUP_TEXTS)
def test_whatever_is_said_nothing_is_html_and_the_structure_stays(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "session.md"

    export_session(session_saying(text, tmp_path), path, "md")

    written = path.read_text(encoding="utf-8")
    assert not any(one.type.startswith("html") for one in all_tokens(written))
    headings = [one for one in tokens_of(written) if one.type == "heading_open" and not one.level]
    assert len(headings) == 1
