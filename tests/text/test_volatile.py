"""What differs in every run is put aside and counted; everything else counts."""

from __future__ import annotations

import pytest

from taskweaver_ext.text.volatile import TextComparison, compare_texts

THEN = 1_700_000_000.0  # 2023-11-14 22:13:20 UTC
NOW = 1_800_000_000.0  # 2027-01-15 08:00:00 UTC


def compare(then: str, now: str) -> TextComparison:
    return compare_texts(then, now, then_at=THEN, now_at=NOW)


@pytest.mark.parametrize(
    ("then", "now", "kind"),
    [
        ("<object at 0x7f12aabb>", "<object at 0x55d0cc>", "address"),
        ("at 2023-11-14 22:13:20.123456 we ran", "at 2027-01-15 08:00:00.5 we ran", "time"),
        ("2023-11-14T22:13:20+00:00", "2027-01-15T08:00:01Z", "time"),
        ("today is 2023-11-14", "today is 2027-01-15", "time"),
        ("22:13:20 INFO", "08:00:01 INFO", "time"),
        ("1700000001.25", "1800000009.5", "time"),
        ("took 0.25 s", "took 1.5 s", "duration"),
        ("12.3 ns per loop", "11 ns per loop", "duration"),
        ("wrote /tmp/tmpab12/x.csv", "wrote /tmp/tmpzz99/x.csv", "path"),
        (
            "job 123e4567-e89b-12d3-a456-426614174000",
            "job 00000000-e89b-12d3-a456-426614174001",
            "id",
        ),
        ("Cell In[3], line 1", "Cell In[12], line 1", "cell"),
    ],
)
def test_what_belongs_to_the_run_is_put_aside_and_counted(then: str, now: str, kind: str) -> None:
    compared = compare(then, now)

    assert compared.is_same
    assert compared.put_aside == {kind: 1}


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ("5", "6"),
        ("until 2020-01-01", "until 2020-01-02"),
        ("max 2019-05-05 10:00:00", "max 2019-05-06 10:00:00"),
        ("1234567890", "1234567891"),
        ("0.25", "0.26"),
        ("one 0x7f12aabb", "one"),
        ("/home/ada/a", "/home/ada/b"),
    ],
)
def test_data_counts(then: str, now: str) -> None:
    assert not compare(then, now).is_same


def test_equal_texts_have_nothing_put_aside() -> None:
    compared = compare("took 5 s at 0x1234", "took 5 s at 0x1234")

    assert compared.is_same
    assert not compared.put_aside


def test_only_what_differs_is_counted() -> None:
    compared = compare("5 s, 0x1111, 0x2222", "5 s, 0x1111, 0x3333")

    assert compared.put_aside == {"address": 1}
