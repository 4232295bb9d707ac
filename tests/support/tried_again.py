"""A plugin of pytest that names, at the end, the tests that were tried again, and says why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

_LINES_OF_A_FAILURE = 40


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Show why before the usual summary and the names after it, so that they are seen.

    Tests that pass in the end may have found a defect too.
    """
    reports = terminalreporter.getreports("rerun")
    for report in reports:
        terminalreporter.section(f"tried again: {report.nodeid}", sep="-")
        terminalreporter.line("\n".join(report.longreprtext.splitlines()[-_LINES_OF_A_FAILURE:]))
    yield
    if reports:
        terminalreporter.section("tried again", yellow=True)
    for name, count in sorted(Counter(report.nodeid for report in reports).items()):
        terminalreporter.line(f"{name} ({'once' if count == 1 else f'{count} times'})")
