"""What the tests of sources share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stores.choice import STORES
from tests.stores.minio import Minio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stores.store_process import StoreProcess


@pytest.fixture(scope="session")
def minio() -> Iterator[Minio]:
    """A real object store, started when the first test asks for it; tests use buckets of their own."""
    with Minio() as store:
        yield store


@pytest.fixture(scope="session", params=STORES)
def store(request: pytest.FixtureRequest) -> Iterator[StoreProcess]:
    """One of the stores, started when the first test asks for it; tests use places of their own."""
    with STORES[request.param]() as running:
        yield running
