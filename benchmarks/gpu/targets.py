"""The targets for a GPU, and what was measured for them. Without a GPU, a part of the figures is measured on the CPU."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.errors import LeftOutError, PeerFailedError
from benchmarks.gpu.measure import Task
from benchmarks.gpu.overhead import as_rows, overheads
from benchmarks.gpu.overhead import verdicts as overhead_verdicts
from benchmarks.gpu.subjects import Subject, texts
from benchmarks.gpu.workers import Found, Workers
from benchmarks.targets import Verdict

BATCH = 64  # events
IN_FLIGHT = 2  # batches at a time: one is copied while the other one computes
NEEDS_GPU = "not measured: needs a GPU"


@dataclass(frozen=True, slots=True)
class Targets:
    """What was measured for the targets."""

    verdicts: list[Verdict]
    figures: dict[str, object]  # what the verdicts are made of
    why_not: str  # why some have no verdict; empty: all have one


def measure_targets(device: str, seconds: float) -> Targets:
    """Measure all that this machine can.

    Args:
        device: cpu or cuda.
        seconds: of each measurement.
    """
    added = overheads(device)
    figures: dict[str, object] = {"overhead": as_rows(added)}
    why_not = "" if device == "cuda" else NEEDS_GPU
    found: dict[str, Found] = {}
    try:
        found = _texts(device, seconds)
    except (LeftOutError, PeerFailedError) as reason:
        why_not = str(reason)
        print(f"the sentence-embedding model is left out: {reason}", file=sys.stderr)
    figures["minilm"] = {
        name: {"events_per_second": each.rate, "gpu_busy_percent": each.busy} for name, each in found.items()
    }
    return Targets([*verdicts(found, on_gpu=device == "cuda"), *overhead_verdicts(added)], figures, why_not)


def verdicts(found: dict[str, Found], *, on_gpu: bool) -> list[Verdict]:
    """The targets that need a GPU. `found`: see `_texts`."""

    def ratio(one: str, other: str) -> float | None:
        return found[one].rate / found[other].rate if on_gpu and {one, other} <= found.keys() else None

    path = found.get("path")
    batch = f"MiniLM, {BATCH} texts a batch"
    return [
        Verdict(f"{batch}: % of the time that the GPU is busy under backlog", path.busy if path else None, 95, True),
        Verdict(f"{batch}: whole path / executor alone, events/s", ratio("path", "fp32"), 0.95, True),
        Verdict(f"{batch}: FP16 / FP32, events/s", ratio("fp16", "fp32"), 1.8, True),
        Verdict(f"MiniLM: batches of {BATCH} / batches of 1, events/s", ratio("fp32", "single"), 20, True),
    ]


def _texts(device: str, seconds: float) -> dict[str, Found]:
    """Events/s of the sentence-embedding model.

    Returns:
        `fp32` and `fp16`: the executor alone with full batches. `single`: with batches of one event. `path`: the whole path with
        full batches, only on a GPU, because a CPU would have to run decoding and the model on the same cores.
    """
    with tempfile.TemporaryDirectory() as folder:
        subjects = texts(Path(folder) / "texts")
        found = {"fp16": _alone(subjects["fp16"], device, BATCH, seconds)}
        found["fp32"] = _alone(subjects["fp32"], device, BATCH, seconds)
        found["single"] = _alone(subjects["fp32"], device, 1, seconds)
        if device == "cuda":
            with Workers(1, subjects["fp32"], device) as workers:
                found["path"] = workers.measure(Task("path", BATCH, IN_FLIGHT, seconds))
    return found


def _alone(subject: Subject, device: str, batch: int, seconds: float) -> Found:
    with Workers(1, subject, device) as workers:
        found = workers.measure(Task("executor", batch, IN_FLIGHT if device == "cuda" else 1, seconds))
    print(f"{subject.model}, {batch} events a batch, on {device}: {found.rate:,.1f} events/s", file=sys.stderr)
    return found
