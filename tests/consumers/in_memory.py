"""Records, a decoder and an executor in memory, for the stages between Kafka and Kafka."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.consumers.events import (
    BatchResult,
    BatchSlice,
    DecodedBatch,
    Epochs,
    FetchedBatch,
    MicroBatch,
    Rejection,
)
from millstream.consumers.flow.assignment import Assignment
from millstream.consumers.record_types import HeaderList, Partition, Record
from millstream.consumers.records import Records
from millstream.inference.executors.interface import Tensors, rows_of
from millstream.inference.model_id import ModelId
from millstream.inference.signature import Signature, TensorInput, TensorOutput
from millstream.schemas.column import Column, column_of
from millstream.schemas.decoded import BadRecord, Decoded
from millstream.schemas.dtypes import Dtype
from millstream.schemas.packed import Texts
from millstream.schemas.table import Table

MODEL = ModelId("m", 1)
MODELS = (MODEL,)  # the ones that answered
EPOCHS: Epochs = {("in", 0): 1, ("in", 1): 1}
SIGNATURE = Signature(
    (TensorInput("x", ("number",), array=False, dtype="float32", shape=(1,)),), (TensorOutput("y", "y"),)
)


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """A Kafka record; its methods are those of the client's."""

    at: int  # offset
    content: bytes | None = b"1"
    place: Partition = ("in", 0)
    stamp: tuple[int, int] = (1, 1_700_000_000_000)
    name: bytes | None = None
    heads: HeaderList | None = None

    def __len__(self) -> int:
        return len(self.content or b"")

    def topic(self) -> str:
        return self.place[0]

    def partition(self) -> int:
        return self.place[1]

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.name

    def value(self) -> bytes | None:
        return self.content

    def timestamp(self) -> tuple[int, int]:
        return self.stamp

    def headers(self) -> HeaderList | None:
        return self.heads


class NumberDecoder:
    """Values are numbers as text, `null` among them; any other text is undecodable. Extra columns count the values."""

    def __init__(self, extra: Mapping[str, Callable[[list[float | None]], Column]] | None = None) -> None:
        self._extra = extra or {}
        self.failures: list[Exception] = []  # raised one a call, before anything is decoded

    @property
    def columns(self) -> Mapping[str, Dtype]:
        return {"number": "float64"}

    def decode(self, values: Sequence[bytes]) -> Decoded:
        if self.failures:
            raise self.failures.pop(0)
        numbers: list[float | None] = []
        rows: list[int] = []
        bad: list[BadRecord] = []
        for row, value in enumerate(values):
            try:
                numbers.append(None if value == b"null" else float(value))
                rows.append(row)
            except ValueError:
                bad.append(BadRecord(row, "undecodable", f"{value!r} is no number"))
        columns = {"number": column_of(numbers, "float64")}
        columns |= {name: make(numbers) for name, make in self._extra.items()}
        return Decoded.of(Table(columns), np.array(rows, np.int64), bad)


class GivenAssignment(Assignment):
    """Has the epochs that it is given."""

    def __init__(self, epochs: Epochs) -> None:
        super().__init__()
        self.given = epochs

    @property
    def epochs(self) -> Epochs:
        return self.given


@dataclass
class NegatingExecutor:
    """`y` = -`x`, after whatever `before` does with the inputs: raise, wait, or nothing."""

    before: Callable[[Tensors], None] = lambda _inputs: None
    sizes: list[int] = field(default_factory=list)  # events of each call

    def warm_up(self) -> None: ...

    def run(self, inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        self.sizes.append(rows_of(inputs))
        self.before(inputs)
        return {"y": -inputs["x"]}

    def close(self) -> None: ...


def polled(
    values: Sequence[bytes | None], start: int = 0, *, epochs: Epochs = EPOCHS, arrived: float = 0.0
) -> FetchedBatch:
    """A poll of one partition, offsets from `start`."""
    records: list[Record] = [MemoryRecord(start + row, value) for row, value in enumerate(values)]
    return FetchedBatch(Records.of(records), epochs, arrived or time.monotonic(), 1_700_000_000_123)


def block(
    kinds: str,
    start: int = 0,
    *,
    sizes: Sequence[int] | None = None,
    arrived: float = 0.0,
    costs: Sequence[int] | None = None,
    places: Sequence[int] | None = None,
) -> DecodedBatch:
    """A decoded block, a letter a record: `e`vent, `r`efused, `l`eft out or `t`ombstone. An event's tensor holds its offset.

    `costs` are one a record; those that are no events cost nothing. `places` are each record's partition number.
    """
    lengths = [10] * len(kinds) if sizes is None else sizes
    values = [None if kind == "t" else b"x" * size for kind, size in zip(kinds, lengths, strict=True)]
    good = np.array([row for row, kind in enumerate(kinds) if kind == "e"], np.int64)
    numbers = [0] * len(kinds) if places is None else places
    left_out = np.array([row for row, kind in enumerate(kinds) if kind == "l"], np.int64)
    loads = [0 if kind == "l" else len(value or b"") for kind, value in zip(kinds, values, strict=True)]
    return DecodedBatch(
        EPOCHS,
        arrived,
        1_700_000_000_123,
        partitions={number: ("in", number) for number in {0, *numbers}},
        places=np.array(numbers, np.int64),
        offsets=np.arange(start, start + len(kinds)),
        timestamps=np.full(len(kinds), 1_700_000_000_000),
        timestamp_types=np.ones(len(kinds), np.int64),
        keys=[None] * len(kinds),
        values=values,
        headers={},
        ends=np.cumsum([len(value or b"") for value in values], dtype=np.int64),
        good=good,
        ids=Texts.of([str(start + row) for row in good.tolist()]),
        event_times=good + start,
        deadlines=None,
        costs=None if costs is None else np.array(costs, np.int64)[good].cumsum(),
        features=None,
        invalid_deadlines=0,
        tensors={"x": (good + start).astype(np.float32).reshape(-1, 1)},
        rejected={row: Rejection("undecodable", "no") for row, kind in enumerate(kinds) if kind == "r"},
        left_out=left_out,
        loads=np.cumsum(loads, dtype=np.int64) if len(left_out) else None,
    )


def partitions(one: DecodedBatch) -> list[Partition]:
    """Each record's."""
    return list(map(one.partition, range(len(one.offsets))))


def batch_of(kinds: str, start: int = 0) -> MicroBatch:
    """A micro-batch of one whole block."""
    whole = block(kinds, start)
    return MicroBatch((BatchSlice(whole, 0, len(kinds), 0, len(whole.good)),), "size")


def answered(kinds: str, start: int = 0, *, number: int = 0) -> BatchResult:
    """A micro-batch of one whole block, with an output for each of its events."""
    batch = batch_of(kinds, start)
    return BatchResult(
        number,
        batch,
        {"y": np.zeros((batch.events, 1))},
        np.arange(batch.events),
        {},
        np.full(batch.events, 1_700_000_000_456),
        MODELS,
    )


def offsets(batch: MicroBatch) -> list[int]:
    """Offsets of all records that the batch covers."""
    return [offset for part in batch.parts for offset in part.block.offsets[part.start : part.stop].tolist()]


def running(target: Callable[[], None]) -> threading.Thread:
    """Run a stage in a thread of its own."""
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


def ended(thread: threading.Thread) -> bool:
    """Whether the thread ends in good time."""
    thread.join(10)
    return not thread.is_alive()
