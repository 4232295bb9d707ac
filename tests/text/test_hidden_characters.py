"""Characters that hide, reorder or pile up are shown; those that people write with stay."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskweaver_ext.text.hidden_characters import MAX_MARKS, HiddenCharacters
from taskweaver_ext.text.terminal import fold, strip_terminal

BIDI = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
HIDDEN = f"{BIDI}\u2028\u2029\u2060\u2061\u2064\u206a\ufeff\ufff9\U0001d173\U000e0001\U000e0fff"
ENGLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"

pieces = st.lists(
    st.sampled_from(
        [*HIDDEN, "\u200b", "\u200c", "\u200d", "\u0301", "\u20e0", "\ufe0f", "\U000e0100"]
        + ["a", " ", "क", "\u094d", "中", "👩", "\U0001f3f4", "\U000e0067", "\U000e007f", "\n"]
    )
    | st.text(max_size=2),
    max_size=30,
).map("".join)


def shown(text: str, size: int = 1 << 20) -> str:
    characters = HiddenCharacters()
    return "".join(characters.feed(text[i : i + size]) for i in range(0, len(text), size))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("naïve café e\u0301 o\u0302\u0301 ẹ\u0301", id="Latin"),
        pytest.param("مرحبا بالعالم، مُحَمَّدٌ \u200fabc\u200e ١٢٣", id="Arabic"),
        pytest.param("می\u200cخواهم کتاب\u200cها", id="Persian"),
        pytest.param("בְּרֵאשִׁ֖ית בָּרָ֣א אֱלֹהִ֑ים", id="Hebrew"),
        pytest.param("नमस्ते क्\u200dष र्\u200cक हिन्दी", id="Devanagari"),
        pytest.param("สวัสดีชาวโลก ที่นี่", id="Thai"),
        pytest.param("ខ្ញុំ\u200bស្រលាញ់\u200bភាសា", id="Khmer"),
        pytest.param("မြန်မာဘာသာ ကြွေ့", id="Burmese"),
        pytest.param("བོད་སྐད་ རྒྱུ", id="Tibetan"),
        pytest.param("ᠮᠣᠩᠭᠣᠯ\u180eᠠ", id="Mongolian"),
        pytest.param("中文 日本語 か\u3099 葛\U000e0100 한국어 ᄒ\u1161ᆫ", id="CJK"),
        pytest.param(
            "👩🏽\u200d💻 👨\u200d👩\u200d👧\u200d👦 ❤\ufe0f\u200d🔥 🏳\ufe0f\u200d🌈", id="emoji"
        ),
        pytest.param("1\ufe0f\u20e3 ☺\ufe0f ☺\ufe0e 🇫🇷🇯🇵", id="keycap, selectors, flags"),
        pytest.param(
            "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", id="🏴"
        ),
        pytest.param("│├─► ████▌ ⠋⠙ ∑∫√ → “quoted” … – € №", id="symbols"),
    ],
)
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert shown(text) == text
    assert strip_terminal(text) == text
    assert fold(text) == text


@pytest.mark.parametrize("character", HIDDEN, ids=lambda c: f"U+{ord(c):04X}")
def test_what_hides_or_reorders_is_shown_by_its_number(character: str) -> None:
    assert shown(f"a{character}b") == f"a<U+{ord(character):04X}>b"
    assert strip_terminal(f"中{character}b") == f"中<U+{ord(character):04X}>b"


@pytest.mark.parametrize("joiner", "\u200b\u200c\u200d\u180e")
def test_joiners_are_shown_where_nothing_joins(joiner: str) -> None:
    number = f"<U+{ord(joiner):04X}>"

    assert shown(f"pay{joiner}pal {joiner}1{joiner}") == f"pay{number}pal {number}1{number}"
    assert shown(f"e\u0301{joiner}x") == f"e\u0301{number}x"
    assert shown(f"क{joiner}{joiner}{joiner}") == f"क{joiner}{number}{number}"


def test_words_in_tags_or_in_variation_selectors_are_shown() -> None:
    words = "".join(chr(0xE0000 + ord(letter)) for letter in "obey")
    codes = "".join(f"<U+{ord(tag):04X}>" for tag in words)

    assert shown(f"hi{words}") == f"hi{codes}"
    assert shown(f"👍{words}") == f"👍{codes}"
    assert shown("👍\ufe0f\ufe01\U000e0101") == "👍\ufe0f<U+FE01><U+E0101>"
    assert "<U+" in shown(f"\U0001f3f4{words * 3}")


def test_marks_beyond_those_of_any_script_are_shown() -> None:
    tower = "\u0301\u0316" * 500

    text = shown(f"z{tower}")

    assert text.startswith(f"z{tower[:MAX_MARKS]}<U+")
    assert sum(unicodedata.category(character) == "Mn" for character in text) == MAX_MARKS


@given(pieces, st.integers(1, 5))
def test_the_result_is_the_same_wherever_the_text_was_split(text: str, size: int) -> None:
    assert shown(text, size) == shown(text)


@given(pieces)
def test_what_has_been_shown_is_shown_in_the_same_way_again(text: str) -> None:
    assert shown(shown(text)) == shown(text)
