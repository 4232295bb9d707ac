from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from taskweaver_ext.llm.model_settings import ModelSettings
from taskweaver_ext.llm.secret import Secret

KEY = 'sk-"a/b c+d=0123456789'


def test_a_secret_does_not_print_its_value() -> None:
    secret = Secret(KEY)

    for text in (repr(secret), str(secret), f"{secret}", f"{[secret]}", "%s" % secret):  # noqa: UP031
        assert KEY not in text
        assert "****" in text


def test_settings_do_not_print_the_key_however_it_was_given() -> None:
    proper = ModelSettings(api_key=Secret(KEY))
    careless = ModelSettings(api_key=KEY)  # type: ignore[arg-type]  # the mistake in question

    assert KEY not in repr(proper)
    assert KEY not in repr(careless)
    assert KEY not in repr(dataclasses.asdict(proper))


@pytest.mark.parametrize(
    "echo",
    [
        KEY,
        f"Bearer {KEY}",
        "?key=sk-%22a%2Fb%20c%2Bd%3D0123456789",
        "?key=sk-%22a%2Fb+c%2Bd%3D0123456789",
        '{"key": "sk-\\"a/b c+d=0123456789"}',
    ],
)
def test_every_spelling_of_the_key_is_masked(echo: str) -> None:
    masked = Secret(KEY).mask(f"you sent {echo} and more")

    assert "0123456789" not in masked
    assert masked.startswith("you sent ")
    assert masked.endswith(" and more")


def test_no_key_masks_nothing() -> None:
    assert Secret("").mask("an ordinary sentence") == "an ordinary sentence"


def test_a_secret_stays_in_this_process() -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(Secret(KEY))


def test_a_secret_can_be_compared_and_copied() -> None:
    secret = Secret(KEY)

    assert copy.deepcopy(secret) == secret == Secret(KEY)
    assert secret != Secret("other")
    assert len({secret, Secret(KEY)}) == 1
    assert not Secret("")
