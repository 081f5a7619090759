"""Memory of variable-length inputs on the way from records to the model: that of their items, whatever one event's length."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream.consumers.batch.batcher import Batcher, Limits
from millstream.consumers.decode.decoder import BlockDecoder, EventFields
from millstream.inference.executors.by_length import ByLength
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import Signature, TensorInput, TensorOutput
from millstream.schemas.json.decoder import JsonDecoder
from millstream.schemas.store import Schema
from tests.consumers.in_memory import polled

if TYPE_CHECKING:
    import numpy.typing as npt

    from millstream.inference.executors.interface import Tensors

LONGEST = 65_536
ITEMS = TensorInput("items", ("x",), array=True, dtype="int64", shape=(LONGEST,), max_length=LONGEST)
MASK = TensorInput("mask", (), array=True, dtype="int64", shape=(LONGEST,), max_length=LONGEST, mask=True)
SIGNATURE = Signature((ITEMS, MASK), (TensorOutput("y", "y"),))
SCHEMA: Any = {"type": "record", "name": "E", "fields": [{"name": "x", "type": {"type": "array", "items": "long"}}]}
BOUND = 32 << 20  # bytes


@dataclass
class Summing:
    """Sums the items of each event."""

    device: str = "cpu"
    batch_sizes: tuple[int, ...] = (1, 16, 256)
    max_events: int = 256
    shapes: list[tuple[int, ...]] = field(default_factory=list)  # of each call

    def warm_up(self) -> None: ...

    def run(self, inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        self.shapes.append(inputs["items"].shape)
        return {"y": (inputs["items"] * inputs["mask"]).sum(axis=1)}

    def close(self) -> None: ...


@pytest.mark.parametrize("longest", [16_384, LONGEST])
def test_one_long_event_among_thousands_of_short_ones_takes_its_own_memory_only(longest: int) -> None:
    values = [b'{"x": [1, 2, 3, 4]}'] * 4096
    values[2000] = b'{"x": [' + b", ".join([b"1"] * longest) + b"]}"
    decoder = BlockDecoder(
        JsonDecoder.of_schema(Schema(3, "event", SCHEMA), ["x"]), EventFields(None, None), SIGNATURE, allow_nan=False
    )
    batcher = Batcher(Limits(max_events=256, max_bytes=1 << 20, max_wait=1.0))
    inner = Summing()
    model = ByLength(ModelVersion("m", 1, Path("model.onnx"), "onnx", SIGNATURE, ()), inner)
    poll = polled(values, 0)
    answers: list[int] = []
    tracemalloc.start()
    try:
        batcher.add(decoder.decode(poll))
        while batch := batcher.drain():
            answers += model.run(batch.tensors())["y"].tolist()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert answers == [longest if row == 2000 else 10 for row in range(4096)]
    assert (1, longest) in inner.shapes
    assert peak < BOUND
