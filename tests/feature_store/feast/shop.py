"""Makes a Feast repository in a folder. Only `runner` imports it, because it needs Feast's packages."""

import datetime as dt
from pathlib import Path
from typing import Any

import pandas as pd
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, ValueType
from feast.types import Array, Bool, Bytes, Float32, Float64, Int64, String, UnixTimestamp

HEAD = "project: shop\nregistry: registry.db\nprovider: local\nentity_key_serialization_version: 3\n"


def make_shop(folder: Path, redis: str | None) -> None:
    """Define three views, and write features of some of their entities. `redis`: HOST:PORT; None: SQLite."""
    kind = "type: sqlite\n  path: online.db" if redis is None else f"type: redis\n  connection_string: {redis}"
    (folder / "feature_store.yaml").write_text(f"{HEAD}online_store:\n  {kind}\n")
    now = pd.Timestamp.now("UTC").floor("s")
    customers = pd.DataFrame(
        {
            "customer_id": [1, 2],
            "orders": [10, 20],
            "mean": [1.5, 2.5],
            "city": ["a", None],
            "vip": [True, False],
            "since": [pd.Timestamp("2026-05-01", tz="UTC")] * 2,
            "vector": [[1.0, 2.0], [3.0, 4.0]],
            "raw": [b"a", b"b"],
            "event_timestamp": [now, now - pd.Timedelta(hours=2)],
        }
    )
    branches = pd.DataFrame({"branch": [1], "stock": [3], "event_timestamp": [now]})
    products = pd.DataFrame({"shop": ["s"], "product": [7], "price": [9.5], "event_timestamp": [now]})
    types = {
        "orders": Int64, "mean": Float64, "city": String, "vip": Bool, "since": UnixTimestamp, "vector": Array(Float32),
        "raw": Bytes,
    }  # fmt: skip
    customer = Entity(name="customer", join_keys=["customer_id"], value_type=ValueType.INT64)
    shop = Entity(name="shop", join_keys=["shop"], value_type=ValueType.STRING)
    product = Entity(name="product", join_keys=["product"], value_type=ValueType.INT64)
    branch = Entity(name="branch", join_keys=["branch"], value_type=ValueType.INT32)
    store = FeatureStore(str(folder))
    of_customers = _view(folder, "customers", [customer], types, customers)
    of_products = _view(folder, "products", [shop, product], {"price": Float64}, products)
    of_branches = _view(folder, "branches", [branch], {"stock": Int64}, branches)
    store.apply([customer, shop, product, branch, of_customers, of_products, of_branches])
    store.write_to_online_store("customers", customers)
    store.write_to_online_store("products", products)
    store.write_to_online_store("branches", branches)


def _view(folder: Path, name: str, entities: list[Any], types: dict[str, Any], frame: Any) -> Any:
    path = folder / f"{name}.parquet"
    frame.to_parquet(path)
    return FeatureView(
        name=name,
        entities=entities,
        schema=[Field(name=feature, dtype=dtype) for feature, dtype in types.items()],
        source=FileSource(path=str(path), timestamp_field="event_timestamp"),
        ttl=dt.timedelta(days=1),
    )
