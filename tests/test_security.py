"""SECURITY.md names tests that exist, for every promise, and the README leads to it."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
SECURITY = (PROJECT / "SECURITY.md").read_text(encoding="utf-8")


def _promises() -> list[list[str]]:
    rows = [line for line in SECURITY.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def test_every_promise_says_against_whom_it_holds_and_names_tests_that_exist() -> None:
    assert len(_promises()) >= 12
    for promise, against, tests in _promises():
        paths = re.findall(r"`([\w/]+\.py)`", tests)

        assert promise
        assert against
        assert paths, promise
        assert [path for path in paths if not (PROJECT / path).is_file()] == [], promise
        assert all(path.startswith(("tests/", "scripts/campaigns/")) for path in paths)


def test_it_says_what_is_not_promised_and_how_to_report() -> None:
    assert "Verification and approval are advisory" in SECURITY
    assert "## How to report" in SECURITY


def test_the_readme_leads_to_it() -> None:
    assert "[SECURITY.md](SECURITY.md)" in (PROJECT / "README.md").read_text(encoding="utf-8")
