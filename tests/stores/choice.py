"""The stores that tests of sources run against."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.stores.azurite import Azurite
from tests.stores.fake_gcs import FakeGcs
from tests.stores.hub import Hub
from tests.stores.minio import Minio

if TYPE_CHECKING:
    from tests.stores.store_process import StoreProcess

STORES: dict[str, type[StoreProcess]] = {each.scheme: each for each in (Minio, FakeGcs, Azurite, Hub)}
"""Scheme of its URLs -> the store."""
