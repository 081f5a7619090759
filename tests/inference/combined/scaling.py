"""Small executors for tests of combinations: each multiplies its input, and rejects what it is told to."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.inference.combined.member import Member
from millstream.inference.combined.member_inputs import UNFIT
from millstream.inference.combined.output_types import OutputTypes
from millstream.inference.errors import EventsRejected, ModelRejected
from millstream.inference.executors.interface import ANSWERED_BY, Inputs, Tensors, rows_of
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import Signature, TensorInput, TensorOutput

Array = npt.NDArray[Any]


class Scaling:
    """`y` = `x` times a factor. It rejects micro-batches that hold a bad value."""

    device = "cpu"
    batch_sizes: tuple[int, ...] = (1,)
    max_events = 1000

    def __init__(self, factor: float, bad: Collection[float] = (), dtype: Any = np.float64) -> None:
        self.factor = factor
        self.bad = set(bad)
        self.dtype = dtype
        self.sizes: list[int] = []
        self.closed = False

    def warm_up(self) -> None:
        """Nothing to warm up."""

    def run(self, inputs: Tensors) -> dict[str, Array]:
        assert not self.closed
        x = inputs["x"]
        self.sizes.append(len(x))
        if self.bad and (found := self.bad & set(x.tolist())):
            raise ModelRejected(f"{min(found)} is bad")
        return {"y": (x * self.factor).astype(self.dtype)}

    def close(self) -> None:
        assert not self.closed
        self.closed = True


def version(name: str, number: int = 1, tensor: str = "x", fields: tuple[str, ...] = ("x",)) -> ModelVersion:
    """A model with one number as its input and `y` as its output."""
    signature = Signature((TensorInput(tensor, fields, False, "float64", ()),), (TensorOutput("y", "y"),))
    return ModelVersion(name, number, Path("models") / name / str(number) / "config.yaml", "python", signature, ())


def member(
    name: str, executor: Any, *, unfit: int | None = None, types: OutputTypes | None = None, number: int = 1
) -> Member:
    """A member whose input `x` is the union's `x`."""
    return Member(version(name, number), executor, {"x": "x"}, unfit, types)


def results_of(run: Callable[[Inputs], dict[str, Array]], inputs: Inputs) -> list[Any]:
    """For each event, its outputs (with the number of its model) or the reason of its rejection."""
    try:
        outputs, rows, rejected = run(inputs), np.arange(rows_of(inputs)), {}
    except EventsRejected as error:
        outputs, rows, rejected = error.outputs, error.rows, dict(error.rejected)
    assert rows.tolist() == sorted(rows.tolist())
    assert list(rejected) == sorted(rejected)
    found: dict[int, Any] = {row: why.reason for row, why in rejected.items()}
    for place, row in enumerate(rows.tolist()):
        found[row] = {name: output.tolist()[place] for name, output in outputs.items()}
    assert outputs.keys() >= {ANSWERED_BY} or not len(rows)
    assert all(len(output) == len(rows) for output in outputs.values())
    assert sorted(found) == list(range(rows_of(inputs)))
    return [found[row] for row in range(rows_of(inputs))]


def unfit(columns: list[list[bool]]) -> dict[str, Array]:
    """The tensor `UNFIT`: true for an event that doesn't fit."""
    array = np.full((len(columns), len(columns[0])), None, object)
    for row, of in enumerate(columns):
        for column, bad in enumerate(of):
            array[row, column] = "field `x` is absent" if bad else None
    return {UNFIT: array}
