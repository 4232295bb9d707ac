"""Lists of sessions fit the screens they are for."""

from __future__ import annotations

import pytest

from taskweaver_ext.chat.session_table import session_table
from taskweaver_ext.session.saved import SessionSummary

SESSION = SessionSummary(
    session_id="20261118-133126-e8f216bc",
    title="What do the numbers of the last twelve months say about the",
    created_at=0,
    last_used_at=0,
    round_count=3,
    size_bytes=2048,
    opened_by="process 17 on this machine",
)


def test_on_a_wide_screen_a_session_is_a_line() -> None:
    assert len(session_table([SESSION], width=200)) == len(session_table([SESSION])) == 2


@pytest.mark.parametrize("is_numbered", [True, False])
def test_on_a_narrow_screen_what_it_was_about_has_a_line_of_its_own(is_numbered: bool) -> None:
    heading, line, about = session_table([SESSION], width=79, is_numbered=is_numbered)

    assert "ABOUT" not in heading
    assert SESSION.session_id in line
    assert about == f"    {SESSION.title} [open in process 17 on this machine]"
    assert len(line) <= 79
