"""Measures what a look-up of features costs: `python -m benchmarks.lookups`.

Batches of events get 10 features of their customers from a Redis server on this machine. Four ways take turns: the loop that a
user would write, with redis-py's pipeline and one HMGET for each event; the same, with the features as an array; and a look-up as
in a worker, of hashes and of JSON objects. The last two end with a column for each feature, in which missing and wrong values
are marked. Results go to results/lookups.json and lookups.md.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import machine
from benchmarks.pages import write_results
from benchmarks.servers.redis_server import MISSING, RedisServer
from millstream.inference.feature_store.key_template import parse_template
from millstream.inference.feature_store.lookup import Lookup
from millstream.inference.feature_store.redis_connection import RedisAddress, RedisConnection
from millstream.inference.feature_store.redis_entities import READERS, RedisEntities
from millstream.schemas.column import column_of
from millstream.schemas.table import Table

RESULTS = Path(__file__).parent / "results"
CUSTOMERS, ROUNDS = 20_000, 400
SIZES = (1, 16, 256, 4096)  # events of a batch
FEATURES = [f"feature_{number}" for number in range(10)]
LOOP, ARRAY = "redis-py pipeline, values as bytes", "redis-py pipeline, values as an array"
HASHES, DOCUMENTS = "look-up of hashes", "look-up of JSON objects"

Way = Callable[[list[str]], object]


def main() -> int:
    if MISSING is not None:
        print(MISSING, file=sys.stderr)
        return 1
    with RedisServer() as server:
        _fill(server)
        ways = _ways(server)
        report = {
            "machine": machine("none"),
            "features": len(FEATURES),
            "microseconds_per_event": {str(size): _measured(ways, size) for size in SIZES},
        }
    write_results(RESULTS, "lookups", report, _page(report))
    return 0


def _fill(server: RedisServer) -> None:
    chance = random.Random(1)
    features = [{name: round(chance.uniform(0, 1000), 3) for name in FEATURES} for _ in range(CUSTOMERS)]
    server.put({f"customer:{number}": fields for number, fields in enumerate(features)})
    with server.client() as client:
        client.mset({f"document:{number}": json.dumps(fields) for number, fields in enumerate(features)})


def _ways(server: RedisServer) -> dict[str, Way]:
    client = server.client()

    def loop(customers: list[str]) -> list[list[bytes]]:
        pipeline = client.pipeline(transaction=False)
        for customer in customers:
            pipeline.hmget(f"customer:{customer}", FEATURES)
        found: list[list[bytes]] = pipeline.execute()
        return found

    def array(customers: list[str]) -> Any:
        return np.array(loop(customers)).astype(np.float64)

    return {
        LOOP: loop,
        ARRAY: array,
        HASHES: _lookup(server, "hash", "customer:{id}"),
        DOCUMENTS: _lookup(server, "json", "document:{id}"),
    }


def _lookup(server: RedisServer, value: str, key: str) -> Way:
    connection = RedisConnection(RedisAddress(server.url, timeout=10), "benchmark")
    reader = READERS[value](dict.fromkeys(FEATURES, "float64"), "benchmark")
    lookup = Lookup("customer", RedisEntities(connection, parse_template(key, "benchmark"), reader, None))
    return lambda customers: lookup.join(Table({"id": column_of(customers, "string")}))


def _measured(ways: dict[str, Way], size: int) -> dict[str, dict[str, float]]:
    """Microseconds for each event: of time, in the fastest tenth of the batches, and of this process' CPU, in half of them."""
    chance = random.Random(size)
    rounds = max(ROUNDS * 256 // max(size, 256), 40)
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(rounds):
        customers = [str(chance.randrange(CUSTOMERS)) for _ in range(size)]
        for name, way in ways.items():
            started, cpu = time.perf_counter(), time.thread_time()
            way(customers)
            took[name].append(((time.perf_counter() - started) / size * 1e6, (time.thread_time() - cpu) / size * 1e6))
    return {name: {"time": _of_rank(times, 0, 0.1), "cpu": _of_rank(times, 1, 0.5)} for name, times in took.items()}


def _of_rank(times: list[tuple[float, float]], kind: int, rank: float) -> float:
    return round(sorted(each[kind] for each in times)[int(rank * len(times))], 2)


def _page(report: dict[str, Any]) -> str:
    told = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
    return (
        "# Feature look-up\n\n"
        f"{report['features']} features of the customer of each event, from a Redis server on the same machine, by the number "
        f"of events in a batch. Machine: {told}.\n\n"
        "Microseconds per event, the server's work included, in the fastest tenth of the batches, because other programs ran on "
        f"the machine:\n\n{_table(report, 'time')}\n"
        f"Microseconds of the client's CPU per event, the median of the batches:\n\n{_table(report, 'cpu')}"
    )


def _table(report: dict[str, Any], kind: str) -> str:
    by_size = report["microseconds_per_event"]
    rows = "".join(
        f"| {name} |{''.join(f' {found[name][kind]:.1f} |' for found in by_size.values())}\n"
        for name in (LOOP, ARRAY, HASHES, DOCUMENTS)
    )
    return f"| way |{''.join(f' {size} |' for size in by_size)}\n|---|{'---|' * len(by_size)}\n{rows}"


if __name__ == "__main__":
    sys.exit(main())
