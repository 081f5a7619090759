"""The executor kserve on a real MLServer: JSON over HTTP, no versions, and batches that share a failure."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.environments import python_of
from benchmarks.errors import LeftOutError
from benchmarks.servers import CACHE
from benchmarks.servers.mlserver_server import REQUIREMENTS, MLServer, write_model
from millstream.consumers.execute.bisecting import BisectingExecutor
from millstream.inference.executors.choice import open_executor
from millstream.inference.executors.contract import check_executor
from tests.inference.executors.remote_models import POISON, missing_for_kserve, write_remote

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.process
INPUTS = np.arange(10, dtype=np.float32).reshape(5, 2)
BODY = f"""
x = inputs["x"]
if (x == {POISON}).any():
    raise MLServerError("poison row", 400)
return {{"y": 2 * x}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MLServer]:
    if (missing := missing_for_kserve()) is not None:
        pytest.skip(missing)
    try:
        python_of("mlserver", REQUIREMENTS, cache=CACHE)
    except LeftOutError as error:
        pytest.skip(f"no MLServer: {error}")
    models = tmp_path_factory.mktemp("mlserver")
    write_model(models, "m", {"max_batch_size": 8, "max_batch_time": 0.02}, BODY)
    with MLServer(models) as started:
        yield started.start()


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_contract(tmp_path: Path, server: MLServer, protocol: str) -> None:
    options = f"{{urls: [{getattr(server, protocol)}], version: ''}}"
    executor = open_executor(write_remote(tmp_path, options), max_events=32)
    executor.warm_up()
    check_executor(executor, {"x": INPUTS}, {"y": 2 * INPUTS})
    executor.close()


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_events_that_share_the_servers_batch_with_a_bad_one_are_answered_all_the_same(
    tmp_path: Path, server: MLServer, protocol: str
) -> None:
    """MLServer joins requests into batches, and all requests of a batch fail with one. Alone, they succeed."""
    options = f"{{urls: [{getattr(server, protocol)}], version: ''}}"
    executor = open_executor(write_remote(tmp_path, options), max_events=32)
    executor.warm_up()
    x = np.arange(32, dtype=np.float32).reshape(16, 2)
    x[5, 0] = POISON
    x[6, 1] = 0  # 13 itself
    isolation = BisectingExecutor(executor.run, max_events=32, allow_nan_outputs=False)
    outputs, rows, rejected = isolation.run({"x": x})
    assert rows.tolist() == [row for row in range(16) if row != 5]
    assert np.array_equal(outputs["y"], 2 * x[rows])
    assert {row: why.reason for row, why in rejected.items()} == {5: "model_rejected"}
    with ThreadPoolExecutor(4) as threads:  # requests at the same time
        results = list(threads.map(lambda row: executor.run({"x": x[row : row + 1]})["y"], [0, 1, 2, 3] * 5))
    assert all(np.array_equal(result, 2 * x[at % 4 : at % 4 + 1]) for at, result in enumerate(results))
    executor.close()
