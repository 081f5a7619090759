"""Train both versions of model flights-delay and write them to the model repository beside this file.

Run as README.md beside it says; half a minute on a CPU. What a model takes are the event's own fields: turning codes into
numbers and scaling happen inside the ONNX graph, so that the service and the training can not differ.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import polars as pl
import torch

from millstream.consumers.demo.flights import LATER_MONTHS, departures
from millstream.inference.auc import auc

MODELS = Path(__file__).parent / "models" / "flights-delay"
TRAIN_MONTHS = range(1, 9)
ROUTE = ("carrier", "origin", "dest")
BEFORE_DEPARTURE = ("day_of_week", "scheduled_departure", "scheduled_arrival", "distance")
NUMBERS = {1: BEFORE_DEPARTURE, 2: (*BEFORE_DEPARTURE, "departure_delay")}  # by version

EPOCHS = 8
BATCH = 2048
MINUTES_PER_DAY = 24 * 60


@dataclass(frozen=True, slots=True)
class Examples:
    """Flights whose arrival is known."""

    numbers: npt.NDArray[np.float32]  # [flights, numbers]
    codes: npt.NDArray[np.object_]  # [flights, 3] strings: carrier, origin, dest
    late: pl.Series  # boolean

    @classmethod
    def of(cls, flights: pl.DataFrame, numbers: tuple[str, ...]) -> "Examples":
        """The rows with a label."""
        known = flights.filter(pl.col("late").is_not_null())
        return cls(
            known.select(pl.col(numbers).cast(pl.Float32)).to_numpy(), known.select(ROUTE).to_numpy(), known["late"]
        )


class Delay(torch.nn.Module):  # type: ignore[misc, unused-ignore]  # torch need not be there for mypy
    """Probability that a flight arrives late: embedded route and scaled numbers through two hidden layers."""

    def __init__(self, examples: Examples, vocabulary: int) -> None:
        super().__init__()
        numbers = torch.from_numpy(examples.numbers)
        self.register_buffer("mean", numbers.mean(0))
        self.register_buffer("scale", numbers.std(0))
        self.register_buffer("columns", vocabulary * torch.arange(len(ROUTE)))  # each column has rows of its own
        self.embedding = torch.nn.Embedding(vocabulary * len(ROUTE), 8)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(numbers.shape[1] + 1 + 8 * len(ROUTE), 64),
            torch.nn.ReLU(),
            torch.nn.Linear(64, 32),
            torch.nn.ReLU(),
            torch.nn.Linear(32, 1),
        )

    def logits(self, numbers: torch.Tensor, route: torch.Tensor) -> torch.Tensor:
        """[batch] from `numbers` [batch, numbers] as in the event and `route` [batch, 3] vocabulary indices."""
        scaled = ((numbers - self.mean) / self.scale).clamp(-4, 4)  # ten hours late is as late as three
        departure, arrival = numbers[:, 1:2], numbers[:, 2:3]  # the order of BEFORE_DEPARTURE
        minutes = torch.remainder(arrival - departure, MINUTES_PER_DAY)  # scheduled duration, by the local clocks
        embedded = self.embedding(route + self.columns).flatten(1)
        return self.layers(torch.cat([scaled, minutes / 300, embedded], 1)).squeeze(1)

    def forward(self, numbers: torch.Tensor, route: torch.Tensor) -> torch.Tensor:
        """Like `logits`, as probabilities."""
        return torch.sigmoid(self.logits(numbers, route))


def train(examples: Examples, vocabulary: dict[str, int]) -> Delay:
    """The model after `EPOCHS` passes over the examples. Some codes are hidden, so that it learns unknown ones, too."""
    torch.manual_seed(2013)
    model = Delay(examples, len(vocabulary) + 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
    numbers, late = torch.from_numpy(examples.numbers), examples.late.cast(pl.Float32).to_torch()
    route = indices(examples.codes, vocabulary)
    batches = len(late) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=EPOCHS * batches)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(late))[: batches * BATCH].split(BATCH):
            hidden = torch.rand(BATCH, len(ROUTE)) < 0.01
            logits = model.logits(numbers[rows], route[rows].masked_fill(hidden, 0))
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, late[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    model.eval()
    return model


def vocabulary_of(examples: Examples) -> dict[str, int]:
    """Each code of the training months, counted from 1; 0 stands for every other one."""
    return {code: index for index, code in enumerate(np.unique(examples.codes.astype(str)).tolist(), start=1)}


def indices(codes: npt.NDArray[np.object_], vocabulary: dict[str, int]) -> torch.Tensor:
    """What the graph's LabelEncoder does, for torch."""
    return torch.tensor([[vocabulary.get(code, 0) for code in row] for row in codes])


def export(model: Delay, vocabulary: dict[str, int], path: Path) -> None:
    """Write the model as one ONNX graph that takes the codes as strings."""
    example = (torch.zeros(2, len(model.mean)), torch.zeros(2, len(ROUTE), dtype=torch.int64))
    exported = torch.onnx.export(
        model,
        example,
        input_names=["numbers", "indices"],
        output_names=["late_probability"],
        dynamic_shapes=({0: "batch"}, {0: "batch"}),
        opset_version=18,
        verbose=False,
    )
    graph = exported.model_proto
    _take_strings(graph, vocabulary)
    _drop_trace(graph)
    onnx.checker.check_model(graph, full_check=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(graph.SerializeToString(deterministic=True))


def _take_strings(model: Any, vocabulary: dict[str, int]) -> None:
    """Put a LabelEncoder before the graph: input `route` takes the place of `indices`."""
    encoder = onnx.helper.make_node(
        "LabelEncoder",
        ["route"],
        ["indices"],
        domain="ai.onnx.ml",
        keys_strings=list(vocabulary),
        values_int64s=list(vocabulary.values()),
        default_int64=0,
    )
    model.graph.node.insert(0, encoder)
    (position,) = [place for place, entry in enumerate(model.graph.input) if entry.name == "indices"]
    route = onnx.helper.make_tensor_value_info("route", onnx.TensorProto.STRING, ["batch", len(ROUTE)])
    model.graph.input[position].CopyFrom(route)
    model.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", 2))


def _drop_trace(model: Any) -> None:
    """Remove the exporter's notes on where each node came from: they hold paths of this machine."""
    del model.metadata_props[:]
    del model.graph.metadata_props[:]
    del model.graph.value_info[:]
    for entry in (*model.graph.node, *model.graph.input, *model.graph.output, *model.graph.initializer):
        del entry.metadata_props[:]
        entry.doc_string = ""


def score(path: Path, examples: Examples) -> pl.Series:
    """What the exported model says of each flight."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (probabilities,) = session.run(None, {"numbers": examples.numbers, "route": examples.codes})
    return pl.Series(probabilities)


def main() -> None:
    """Train, export, check and report both versions."""
    earlier, later = departures(TRAIN_MONTHS), departures(LATER_MONTHS)
    print("version  AUC January-August  AUC September-December   bytes")
    for version, numbers in NUMBERS.items():
        examples, unseen = Examples.of(earlier, numbers), Examples.of(later, numbers)
        vocabulary = vocabulary_of(examples)
        model = train(examples, vocabulary)
        path = MODELS / str(version) / "model.onnx"
        export(model, vocabulary, path)
        served = score(path, unseen)
        with torch.no_grad():
            trained = model(torch.from_numpy(unseen.numbers), indices(unseen.codes, vocabulary)).numpy()
        np.testing.assert_allclose(served.to_numpy(), trained, atol=1e-5)
        of_training, of_later = auc(examples.late, score(path, examples)), auc(unseen.late, served)
        print(f"{version:<7}  {of_training:<18.4f}  {of_later:<22.4f}  {path.stat().st_size:6,d}")


if __name__ == "__main__":
    main()
