"""Secrets are masked wherever they stand and however a text is cut; nothing else changes."""

from __future__ import annotations

import base64
import html
import itertools
import json
import random
import re
import string
import time
from collections.abc import Iterable, Sequence
from urllib.parse import quote, quote_plus, urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskweaver_ext.text.redaction import MASK, Redactor
from taskweaver_ext.text.secret_spellings import words_of
from tests.support.growth import growth

KEY = "sk-4f5e6d7c8b9a0123456789"


def masked(text: str, words: Iterable[str], patterns: Iterable[str] = ()) -> str:
    """Say the obvious way what the result must be: mark each character, join what touches."""
    is_secret = [False] * len(text)
    for word in words:
        for start in range(len(text) - len(word) + 1):
            if text.startswith(word, start):
                is_secret[start : start + len(word)] = [True] * len(word)
    for pattern in patterns:
        for match in re.finditer(pattern, text):
            is_secret[match.start() : match.end()] = [True] * len(match[0])
    runs = itertools.groupby(zip(is_secret, text, strict=True), key=lambda pair: pair[0])
    return "".join(MASK if hit else "".join(sign for _, sign in run) for hit, run in runs)


def streamed(redactor: Redactor, pieces: Iterable[str]) -> str:
    stream = redactor.stream()
    return "".join(map(stream.feed, pieces)) + stream.close()


def cut(text: str, sizes: Sequence[int]) -> list[str]:
    pieces: list[str] = []
    at = 0
    for size in itertools.cycle([*sizes, 1]):
        if at >= len(text):
            return pieces
        pieces.append(text[at : at + size])
        at += size
    return pieces


# Few letters, so that secrets contain, overlap and repeat each other and themselves.
SECRETS = st.lists(st.text("ab", min_size=6, max_size=14), min_size=1, max_size=5)
TEXT = st.text("abc", max_size=80)
PATTERNS = st.lists(
    st.sampled_from(["ab{2,5}c[ab]{3}", "[ab]{6}", "c+a*b{5,}", "a?b?c{6,8}", r"b\wb\wb\wc?"]),
    max_size=2,
)
SIZES = st.lists(st.integers(1, 40), max_size=6)


@settings(max_examples=500, deadline=None)
@given(SECRETS, PATTERNS, TEXT, SIZES)
def test_all_of_every_secret_is_masked_and_nothing_else_however_the_text_is_cut(
    secrets: list[str], patterns: list[str], text: str, sizes: list[int]
) -> None:
    redactor = Redactor(secrets, patterns)
    words = {word for secret in secrets for word in words_of(secret)}
    possessive = [re.sub(r"([*+?}])", r"\1+", pattern) for pattern in patterns]

    expected = masked(text, words, possessive)

    assert redactor.redact(text) == expected
    assert streamed(redactor, cut(text, sizes)) == expected
    assert not any(secret in expected for secret in secrets)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text(min_size=6, max_size=40), min_size=1, max_size=4),
    st.lists(st.text(max_size=20) | st.integers(0, 3), max_size=10),
    SIZES,
)
def test_any_characters_can_be_secret(
    secrets: list[str], parts: list[str | int], sizes: list[int]
) -> None:
    text = "".join(
        secrets[part % len(secrets)] if isinstance(part, int) else part for part in parts
    )
    words = {word for secret in secrets for word in words_of(secret)}

    result = streamed(Redactor(secrets), cut(text, sizes))

    assert result == masked(text, words)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_long_text_is_masked_as_a_short_one_is(data: st.DataObject) -> None:
    generator = random.Random(data.draw(st.integers()))
    secrets = ["".join(generator.choices("abé", k=generator.randint(6, 30))) for _ in range(5)]
    parts = [
        generator.choice(secrets)
        if generator.random() < 0.1
        else "".join(generator.choices("abcdé\n", k=generator.randint(1, 200)))
        for _ in range(60)
    ]
    text = "".join(parts)
    words = {word for secret in secrets for word in words_of(secret)}
    sizes = [generator.randint(1, 3000) for _ in range(8)]

    expected = masked(text, words)

    assert Redactor(secrets).redact(text) == expected
    assert streamed(Redactor(secrets), cut(text, sizes)) == expected


@pytest.mark.parametrize(
    "shown",
    [
        lambda value: value,
        lambda value: json.dumps({"key": value}),
        lambda value: json.dumps({"key": value}, ensure_ascii=False),
        lambda value: repr([value]),
        lambda value: repr(value + "'" + '"'),
        lambda value: ascii(value),
        lambda value: repr(value.encode()),
        lambda value: quote(value),
        lambda value: quote(value, safe=""),
        lambda value: quote_plus(value),
        lambda value: urlencode({"key": value, "next": "1"}),
        lambda value: html.escape(value),
        lambda value: f"<td>{html.escape(value, quote=False)}</td>",
        lambda value: base64.b64encode(value.encode()).decode(),
        lambda value: base64.urlsafe_b64encode(value.encode()).decode(),
        lambda value: "Basic " + base64.b64encode(b"me:" + value.encode()).decode(),
        lambda value: "Basic " + base64.b64encode(b"you:" + value.encode() + b"\n").decode(),
        lambda value: "Basic " + base64.b64encode(b"us:" + value.encode() + b"??").decode(),
    ],
)
@pytest.mark.parametrize("value", [KEY, "pä$$ w<o>r'd\"/\\&+", "line one\nline two\t"])
def test_a_secret_is_masked_in_the_spellings_that_programs_print(shown: object, value: str) -> None:
    assert callable(shown)

    result = Redactor([value]).redact(f"before {shown(value)} after")

    assert MASK in result
    assert result.startswith("before ")
    assert result.endswith(" after")
    # What remains of it is one character of Base64 at each end, which holds no whole byte.
    assert len(result.replace(MASK, "")) <= len("before " + shown("") + " after") + 14
    for start in range(len(value) - 5):
        assert value[start : start + 6] not in result


def test_a_secret_beside_what_a_pattern_may_match_changes_nothing_about_the_pattern() -> None:
    redactor = Redactor(["aaabbabb"], ["[ab]{6}"])
    text = "baaabbabbaab   ab"

    assert streamed(redactor, text) == redactor.redact(text) == f"{MASK}   ab"
    assert streamed(redactor, "baaabbabbaa") == redactor.redact("baaabbabbaa") == f"{MASK}aa"


def test_a_key_of_several_lines_is_masked_also_line_by_line() -> None:
    lines = ["-----BEGIN KEY-----", "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC", "BKcwggSjAgEAAoIBAQC7=="]
    redactor = Redactor(["\n".join(lines) + "\n"])

    indented = "\n".join(f"    {line}  # part" for line in lines)

    assert redactor.redact(indented) == "\n".join([f"    {MASK}  # part"] * 3)
    assert redactor.redact("\n".join(lines)) == MASK


def test_a_very_long_secret_is_one_mask_and_its_long_parts_are_masked_too() -> None:
    generator = random.Random(5)
    secret = "".join(generator.choices(string.ascii_letters, k=5000))
    redactor = Redactor([secret])

    assert streamed(redactor, cut(f"<{secret}>", [7])) == f"<{MASK}>"
    assert secret[1500:2000] not in redactor.redact(secret[:3000])


def test_short_values_are_ordinarywords_of() -> None:
    assert Redactor(["1", "true", "", "  abc  ", MASK[1:-1]]).redact("1 is true, abc") == (
        "1 is true, abc"
    )
    assert not Redactor(["1"])
    assert Redactor([KEY])


def test_a_mask_tells_nothing_of_the_value() -> None:
    masks = {Redactor([KEY[:size]]).redact(KEY[:size]) for size in range(6, len(KEY))}

    assert masks == {MASK}


def test_lone_surrogates_and_undecodable_bytes_are_no_obstacle() -> None:
    value = b"caf\xe9-secret".decode("utf-8", "surrogateescape")
    redactor = Redactor([value, "x\ud800yzabc"])

    assert redactor.redact(f"<{value}>\ud83d") == f"<{MASK}>\ud83d"
    assert redactor.redact("<caf\ufffd-secret>") == f"<{MASK}>"
    assert redactor.redact("\udfffx\ud800yzabc") == f"\udfff{MASK}"


class TestHoldingBack:
    def test_nothing_is_held_that_no_secret_begins_with(self) -> None:
        stream = Redactor([KEY]).stream()

        assert stream.feed("no secret here") == "no secret here"
        assert not stream.is_holding

    def test_only_what_may_begin_a_secret_is_held(self) -> None:
        stream = Redactor([KEY]).stream()

        assert stream.feed("the task: sk") == "the task: "
        assert stream.is_holding
        assert stream.feed("ill") == "skill"

    def test_a_mask_comes_as_soon_as_its_secret_is_complete(self) -> None:
        stream = Redactor([KEY, KEY + "extended"]).stream()

        assert stream.feed(KEY) == MASK
        assert stream.feed("extended!") == "!"

    def test_what_a_pause_interrupts_comes_out_and_the_rest_is_still_masked(self) -> None:
        stream = Redactor([KEY]).stream()

        assert stream.feed("your key? sk-4") == "your key? "
        assert stream.flush() == "sk-4"
        assert not stream.is_holding
        assert stream.feed(KEY[4:] + "\n") == f"{MASK}\n"

    def test_pauses_show_no_more_than_half_of_a_secret(self) -> None:
        stream = Redactor([KEY]).stream()

        shown = "".join(stream.feed(sign) + stream.flush() for sign in KEY)

        assert shown.endswith(MASK)
        assert len(shown) - len(MASK) <= len(KEY) / 2

    def test_half_a_secret_is_told_at_the_end_since_it_is_none(self) -> None:
        stream = Redactor([KEY]).stream()

        assert stream.feed(KEY[:-1]) + stream.flush() == ""
        assert stream.close() == KEY[:-1]

    def test_a_pattern_is_held_while_it_may_match_and_a_pause_ends_it(self) -> None:
        stream = Redactor([], ["tok_[a-z]{4,20}"]).stream()

        assert stream.feed("a tok") == "a "
        assert stream.flush() == "tok"
        assert stream.feed(" tok_abc") == " "
        assert stream.flush() == ""
        assert stream.feed("d") == ""
        assert stream.flush() == MASK
        assert stream.feed(" tok_abcd.") == f" {MASK}."

    @settings(max_examples=200, deadline=None)
    @given(SECRETS, TEXT, SIZES, st.lists(st.booleans(), min_size=1, max_size=8))
    def test_pauses_lose_nothing(
        self, secrets: list[str], text: str, sizes: list[int], pauses: list[bool]
    ) -> None:
        stream = Redactor(secrets).stream()
        shown = ""
        for piece, has_pause in zip(cut(text, sizes), itertools.cycle(pauses), strict=False):
            shown += stream.feed(piece) + (stream.flush() if has_pause else "")
        shown += stream.close()

        remains = [re.escape(part) for part in shown.split(MASK)]
        assert re.fullmatch("[abc]+".join(remains), text)
        assert not any(secret in shown for secret in secrets)


class TestJson:
    def test_texts_and_keys_are_masked_at_any_depth(self) -> None:
        value = {"a": [1, None, True, 2.5, KEY], f"file-{KEY}.txt": {"text/plain": (f"<{KEY}>",)}}

        assert Redactor([KEY]).redact_json(value) == {
            "a": [1, None, True, 2.5, MASK],
            f"file-{MASK}.txt": {"text/plain": [f"<{MASK}>"]},
        }

    def test_keys_that_become_the_same_are_all_there_in_their_order(self) -> None:
        redactor = Redactor([KEY, "another-secret"])

        result = redactor.redact_json({KEY: 1, MASK: 2, "another-secret": 3})

        assert list(result.items()) == [(f"{MASK} 2", 1), (MASK, 2), (f"{MASK} 3", 3)]

    def test_depth_does_not_matter(self) -> None:
        value: object = KEY
        for _ in range(100_000):
            value = [value]

        result = Redactor([KEY]).redact_json(value)

        for _ in range(100_000):
            assert isinstance(result, list)
            [result] = result
        assert result == MASK


class TestPatterns:
    def test_a_project_masks_what_its_own_tokens_look_like(self) -> None:
        redactor = Redactor([], [r"ghp_[A-Za-z0-9]{36}", r"\d{4}-\d{4}-\d{4}", r"a\.b\+{4,}"])

        text = f"<ghp_{'x' * 36}> 1234-5678-9012 12-34 a.b++++"

        assert redactor.redact(text) == f"<{MASK}> {MASK} 12-34 {MASK}"

    @pytest.mark.parametrize(
        "pattern",
        ["(a+)+bcdefg", "abcdef|x", "^abcdef", "abcdef$", r"\babcdef", r"(a)\1bcdef", "abcdef{2",
         "[abcdef", "abc", "a*b*", "", "a{5000}", r"abcdef\x41", "(?i)abcdef", "a{9,3}bcdefgh",
         "a" * 201],
    )  # fmt: skip
    def test_what_cannot_be_searched_in_linear_time_is_refused(self, pattern: str) -> None:
        with pytest.raises(ValueError, match=r".") as caught:
            Redactor([], [pattern])

        assert repr(pattern[:20])[:-1] in str(caught.value)


class TestTime:
    """Linear for the texts and secrets that are hardest on usual methods."""

    @pytest.mark.parametrize(
        ("secrets", "patterns", "unit"),
        [
            (["a" * 200 + "b"], [], "a"),
            (["a" * 5000 + "b"], [], "a"),
            (["a" * 200], [], "a"),
            ([("a" * size + "b") for size in range(6, 60)], [], "a" * 59 + "c"),
            (["ab" * 100 + "c", "ba" * 100 + "d"], [], "ab"),
            ([KEY], [], KEY[:-1]),
            ([KEY], [], KEY + " "),
            ([KEY], ["a{1,50}a{1,50}a{1,50}b{6}"], "a"),
            ([], ["[a-z]{1,90}[a-z]{1,90}[0-9]{6}"], "abc"),
        ],
    )
    @pytest.mark.parametrize("piece", [1, 4000])
    def test_twice_the_text_takes_twice_the_time(
        self, secrets: list[str], patterns: list[str], unit: str, piece: int
    ) -> None:
        redactor = Redactor(secrets, patterns)
        size = (20_000 if piece == 1 else 200_000) // (5 if patterns else 1)
        text = unit * (2 * size // len(unit))
        pieces = [text[at : at + piece] for at in range(0, len(text), piece)]

        ratio = growth(lambda: redactor.stream().feed, pieces[: len(pieces) // 2], pieces)

        assert ratio <= 2.5

    def test_a_secret_that_grows_with_the_text_costs_no_more(self) -> None:
        def seconds(size: int) -> float:
            began = time.process_time()
            Redactor(["a" * size + "b"]).redact("a" * size)
            return time.process_time() - began

        ratios = sorted(seconds(200_000) / seconds(100_000) for _ in range(5))

        assert ratios[2] <= 2.5

    def test_many_secrets_cost_an_ordinary_text_little(self) -> None:
        generator = random.Random(7)
        many = ["".join(generator.choices(string.ascii_letters, k=40)) for _ in range(200)]
        text = "".join(f"step {number}: loss={number * 0.37:.4f}\n" for number in range(100_000))

        def seconds(redactor: Redactor) -> float:
            began = time.process_time()
            assert redactor.redact(text) == text
            return time.process_time() - began

        few_redactor, many_redactor = Redactor(many[:2]), Redactor(many)
        ratios = sorted(seconds(many_redactor) / seconds(few_redactor) for _ in range(7))

        assert ratios[3] <= 5
