"""The length of these tests: short with all tests, in full with MILLSTREAM_FAULTS=full."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def full() -> bool:
    """Whether to take the time that it takes."""
    return os.environ.get("MILLSTREAM_FAULTS", "") == "full"
