"""What is said of events that the shadows had no time for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.consumers.shadow.shed_warnings import FORGETS_AFTER, ShedWarnings

if TYPE_CHECKING:
    import pytest


def test_backlog_long_after_another_one_passes_by_itself_too(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    warnings = ShedWarnings(lambda: now[0])
    for now[0] in (0.0, 100.0, 100.0 + FORGETS_AFTER):
        warnings.warn(5, None, full=True)
    first, again, later = (record.getMessage() for record in caplog.records)
    assert "passes by itself" in first
    assert "slower than the load" in again
    assert "passes by itself" in later
