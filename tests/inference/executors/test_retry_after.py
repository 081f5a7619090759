"""The header `Retry-After`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from millstream.inference.executors.retry_after import retry_after


def test_the_time_to_wait_has_several_forms() -> None:
    assert retry_after({}) is None
    assert retry_after({"retry-after": "1.5"}) == 1.5
    assert retry_after({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    assert retry_after({"retry-after": "-3"}) is None
    assert retry_after({"retry-after": "soon"}) is None
    soon = retry_after({"retry-after": format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)})
    assert soon is not None
    assert 20 < soon <= 30


@pytest.mark.parametrize(
    "header",
    ["", "nan", "inf", "1e999", "Wed, 21 Oct 99999 07:28:00 GMT", "Wed, 21 Oct 2015 07:28:00 +9999999999999999"],
)
def test_a_time_that_is_none(header: str) -> None:
    assert retry_after({"retry-after": header}) is None


def test_a_time_that_has_passed() -> None:
    assert retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0
