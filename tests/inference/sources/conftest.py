"""What the tests of sources share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stores.minio import Minio

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def minio() -> Iterator[Minio]:
    """A real object store, started when the first test asks for it; tests use buckets of their own."""
    pytest.importorskip("s3fs", reason="s3fs is not installed: .venv/bin/pip install -e '.[s3]'")
    with Minio() as store:
        yield store
