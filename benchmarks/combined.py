"""Measures the cost of several models in one pipeline: `python -m benchmarks.combined`.

The models do nothing: they return outputs that were made before. So what is measured is the cost of routing, of splitting a
micro-batch and of putting the answers together, and how much longer it takes to fill the tensors and to encode the predictions.
What one model takes is subtracted. Results go to results/combined.json and combined.md.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.machine import machine
from benchmarks.pages import write_results
from millstream.inference.combined.cascade_executor import CascadeExecutor, Escalation
from millstream.inference.combined.combining import Source
from millstream.inference.combined.ensemble_executor import EnsembleExecutor, Step
from millstream.inference.combined.member import Member
from millstream.inference.combined.member_inputs import combined_inputs
from millstream.inference.combined.model_numbers import ModelNumbers
from millstream.inference.combined.output_types import OutputTypes
from millstream.inference.combined.route_executor import RouteExecutor
from millstream.inference.combined.routing import ByRules, ByValue, Condition
from millstream.inference.combined.routing_key import key_input
from millstream.inference.combined.tenant_executor import TenantExecutor
from millstream.inference.combined.tenant_models import TenantModels
from millstream.inference.executors.interface import Tensors, rows_of
from millstream.inference.features import to_tensors
from millstream.inference.model_id import ModelId
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import Signature, TensorInput, TensorOutput
from millstream.schemas.column import NumberColumn, StringColumn
from millstream.schemas.packed import Packed, Texts
from millstream.schemas.predictions import PredictionEncoder
from millstream.schemas.row_models import RowModels
from millstream.schemas.table import Table

RESULTS = Path(__file__).parent / "results"
EVENTS, FEATURES = 256, 32
ROUNDS, CALLS = 25, 100
LIMIT = 1.0  # us an event, the goal
MODELS = 4
FIELDS = tuple(f"f{at}" for at in range(FEATURES))

Run = Callable[[], object]


class Nothing:
    """An executor that returns an output that was made before."""

    device = "cpu"
    batch_sizes: tuple[int, ...] = ()
    max_events = EVENTS

    def __init__(self) -> None:
        self._output = np.random.default_rng(1).random((EVENTS, 1)).astype(np.float32)[:, 0]

    def warm_up(self) -> None:
        """Nothing to do."""

    def run(self, inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        """Return one number an event."""
        return {"score": self._output[: rows_of(inputs)]}

    def close(self) -> None:
        """Nothing to do."""


def main() -> int:
    """Measure, and write the results."""
    found = _measured()
    report = {"machine": machine("none"), "events": EVENTS, "us_per_event": found}
    write_results(RESULTS, "combined", report, _page(report))
    worst = max(took for name, took in found.items() if name.startswith("all of"))
    print(f"at most {worst:.2f} us an event (goal: {LIMIT})")
    return 0 if worst < LIMIT else 1


def _measured() -> dict[str, float]:
    inputs = _inputs()
    one = Nothing()
    table = _table(inputs)
    single = (_entry(),)
    key = key_input("who", "")
    union = combined_inputs([(f"m{at}", single) for at in range(MODELS)], [False] * MODELS, [key])
    apart = [(f"m{at}", (_entry(tuple(f"f{(at + each) % FEATURES}" for each in range(FEATURES))),)) for at in range(2)]
    both = combined_inputs(apart, [True, False])

    def fill() -> object:
        return to_tensors(table, single, allow_nan=False)

    pairs: dict[str, tuple[Run, Run]] = {
        name: (lambda run=executor.run: run(inputs), lambda: one.run(inputs))  # type: ignore[misc]
        for name, executor in _executors().items()
    }
    pairs["filling the field that decides"] = (lambda: union.fill(table, allow_nan=False), fill)
    found = {name: _difference(*pair) for name, pair in pairs.items()}
    twice = _difference(lambda: both.fill(table, allow_nan=False), lambda: [fill(), fill()])
    found |= {"filling two models' own features, beside filling each": twice, **_encoding()}
    filled, ran = found["filling the field that decides"], found[f"route by value, {MODELS} models"]
    found["all of a route by value"] = filled + ran + found["encoding predictions of two models"]
    found["all of a cascade"] = found["cascade, 20 % escalated"] + found["encoding also `escalated` and `models`"]
    return found


def _encoding() -> dict[str, float]:
    """How much longer encoding takes."""
    encoder = PredictionEncoder(1, pipeline="bench", variant="primary")
    ids, times = Texts.of([f"e{at}" for at in range(EVENTS)]), np.full(EVENTS, 1_700_000_000_000)
    one = Nothing().run({"x": np.empty(EVENTS)})
    by = (np.random.default_rng(3).random(EVENTS) < 0.2).astype(np.int64)
    more = one | {"escalated": by > 0, "models": np.array(["m0:1", "m0:1 m1:1"], object)[by]}

    def encoding(outputs: dict[str, npt.NDArray[Any]], models: RowModels) -> Run:
        return lambda: encoder.encode(ids, times, times, times, outputs, models=models)

    base = encoding(one, RowModels([("m0", 1)]))
    two = RowModels([("m0", 1), ("m1", 1)], by)
    return {
        "encoding predictions of two models": _difference(encoding(one, two), base),
        "encoding also `escalated` and `models`": _difference(encoding(more, two), base),
    }


def _difference(run: Run, base: Run) -> float:
    """The time of a call beyond that of the other one, us an event. They take turns."""
    took: list[float] = []
    for _ in range(ROUNDS):
        first, second = _seconds(run), _seconds(base)
        took.append(first - second)
    return median(took) / EVENTS * 1e6


def _seconds(run: Run) -> float:
    started = time.thread_time()  # other programs on the machine do not count
    for _ in range(CALLS):
        run()
    return (time.thread_time() - started) / CALLS


def _executors() -> dict[str, Any]:
    sources = {"score": Source("mean", tuple((f"s{at}", "score") for at in range(3)))}
    steps = [Step(f"s{at}", _member(at, None)) for at in range(3)]
    values = {f"c{at}": at % MODELS for at in range(8)}
    rules = [([Condition("n", ">=", (bound,))], at) for at, bound in enumerate((0.75, 0.5, 0.25))]
    return {
        f"route by value, {MODELS} models": RouteExecutor(_members(), ByValue("who", "who", values, 0)),
        f"route by rules, {MODELS} models": RouteExecutor(_members(), ByRules(rules, 3)),
        "cascade, 20 % escalated": CascadeExecutor(_members()[:2], [Escalation("score", 0.0, 0.2)]),
        "ensemble, mean of 3 models": EnsembleExecutor(ModelId("all", 1), steps, sources),
        "tenants, 8 in a batch": _tenants(8),
        "tenants, 32 in a batch": _tenants(32),
    }


def _tenants(count: int) -> Any:
    types = OutputTypes()
    models = TenantModels(lambda tenant: (_member(int(tenant[1:]), types), 1), 1000)
    return TenantExecutor(
        "who", "tenant" if count > 8 else "who", models, _member(0, types), None, bool, ModelNumbers()
    )


def _members() -> list[Member]:
    types = OutputTypes()
    return [_member(at, types) for at in range(MODELS)]


def _member(at: int, types: OutputTypes | None) -> Member:
    signature = Signature((_entry(),), (TensorOutput("score", "score"),))
    version = ModelVersion(f"m{at}", 1, Path("config.yaml"), "python", signature, ())
    return Member(version, Nothing(), {"x": "x"}, None, types)


def _entry(fields: tuple[str, ...] = FIELDS) -> TensorInput:
    return TensorInput("x", fields, False, "float32", (FEATURES,))


def _inputs() -> dict[str, Any]:
    chance = np.random.default_rng(7)
    return {
        "x": chance.random((EVENTS, FEATURES)).astype(np.float32),
        "n": chance.random(EVENTS),
        "who": np.array([f"c{at}" for at in chance.integers(0, 8, EVENTS)], object),
        "tenant": np.array([f"c{at}" for at in chance.integers(0, 32, EVENTS)], object),
    }


def _table(inputs: dict[str, Any]) -> Table:
    numbers = {field: NumberColumn(inputs["x"][:, at].astype(np.float64)) for at, field in enumerate(FIELDS)}
    return Table({**numbers, "who": StringColumn(Packed.of([text.encode() for text in inputs["who"]]), True)})


def _page(report: dict[str, Any]) -> str:
    rows = "".join(f"| {name} | {took:.2f} |\n" for name, took in report["us_per_event"].items())
    told = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
    return (
        "# The cost of several models\n\n"
        f"The CPU time that `models` takes besides the models themselves, in micro-batches of {report['events']} events of "
        f"{FEATURES} features. The models of this measurement do nothing. What one model takes in place of several is "
        f"subtracted. Machine: {told}.\n\n"
        f"| | us per event |\n|---|---|\n{rows}"
    )


if __name__ == "__main__":
    sys.exit(main())
