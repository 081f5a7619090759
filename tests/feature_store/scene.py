"""A pipeline whose model adds an amount of the event to features of its customer from Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.consumers.python_service import python_service

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.servers.redis_server import RedisServer
    from tests.broker.choice import Broker
    from tests.consumers.service import Service

CONFIG = """\
inputs:
  - tensor: x
    dtype: float64
    fields: [x, {from: customer, field: orders, missing: -1000}]
outputs: [{tensor: y}]
"""
BODY = 'return {"y": inputs["x"].sum(axis=1)}'


def store_section(server: RedisServer, lookup: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """The section `feature_store`, with the look-up `customer` by the event's ID."""
    lookups = [{"name": "customer", "key": "customer:{id}"} | (lookup or {})]
    return {"url": server.url, "timeout": "5s", "lookups": lookups} | options


def customer_service(
    folder: Path,
    kafka: Broker,
    server: RedisServer,
    *,
    body: str = BODY,
    config: str = CONFIG,
    store: dict[str, Any] | None = None,
    **sections: Any,
) -> Service:
    """The pipeline; its events are those of `python_service`."""
    service = python_service(folder, kafka, body, feature_store=store or store_section(server), **sections)
    (folder / "models" / "number" / "1" / "config.yaml").write_text(config, encoding="utf-8")
    return service
