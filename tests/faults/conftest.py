"""The length of the fault suite: short with all tests, in full with MILLSTREAM_FAULTS=full."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FULL = os.environ.get("MILLSTREAM_FAULTS", "") == "full"
# Brokers that die and workers with bugs take minutes.
ONLY_IN_FULL = ("test_broker.py", "test_checker_catches_bugs.py")


@pytest.fixture(scope="session")
def full() -> bool:
    """Whether to take the time that it takes."""
    return FULL


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to `make faults` what takes long."""
    here = Path(__file__).parent
    for item in items:
        if not FULL and item.path.parent == here and item.path.name in ONLY_IN_FULL:
            item.add_marker(pytest.mark.skip(reason="only in `make faults`"))
