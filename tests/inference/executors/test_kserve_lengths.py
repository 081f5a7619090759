"""The executor kserve with inputs of variable length, on a real Triton."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from benchmarks.servers.triton_server import Triton, write_model
from millstream.inference.executors.choice import open_executor
from millstream.inference.ragged import Ragged
from tests.inference.executors.remote_models import missing_for_triton, write_remote

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process
CONFIG = """
inputs:
  - {tensor: ids, field: tokens, dtype: int64, max_length: 64}
  - {tensor: mask, mask: true, dtype: int64}
outputs: [{tensor: total}, {tensor: width}]
length_buckets: [4, 16, 64]
"""
TRITON_CONFIG = """
max_batch_size: 64
input [{ name: "ids" data_type: TYPE_INT64 dims: [-1] }, { name: "mask" data_type: TYPE_INT64 dims: [-1] }]
output [{ name: "total" data_type: TYPE_INT64 dims: [1] }, { name: "width" data_type: TYPE_INT64 dims: [1] }]
instance_group [{ kind: KIND_CPU count: 1 }]
"""
BODY = """
ids, mask = tensor(request, "ids"), tensor(request, "mask")
return answer(
    total=(ids * mask).sum(axis=1, keepdims=True), width=np.full((len(ids), 1), ids.shape[1], np.int64)
)
"""


def test_events_are_padded_to_the_longest_of_their_micro_batch(tmp_path: Path) -> None:
    if (missing := missing_for_triton()) is not None:
        pytest.skip(missing)
    models = tmp_path / "triton"
    write_model(models, "m", TRITON_CONFIG, BODY)
    with Triton(models).start() as triton:
        executor = open_executor(
            write_remote(tmp_path / "models", f"{{urls: [{triton.grpc}]}}", config=CONFIG), max_events=32
        )
        executor.warm_up()
        for lengths, width in (([3, 1, 4], 4), ([2, 9, 5], 16), ([64], 64)):
            tokens = np.arange(1, sum(lengths) + 1)
            inputs: Any = {"ids": Ragged.of_lengths(tokens, np.array(lengths))}
            outputs = executor.run(inputs)
            ends = np.cumsum(lengths)
            assert outputs["total"].reshape(-1).tolist() == [
                int(tokens[end - length : end].sum()) for end, length in zip(ends, lengths, strict=True)
            ]
            assert set(outputs["width"].reshape(-1).tolist()) == {width}
        executor.close()
