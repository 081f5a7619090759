"""What the executor adds to a call of ONNX Runtime: python -m benchmarks.gpu.overhead.

The same session is called by itself with arrays of the right size, and by the executor, in turns. A small model shows the added
time, and a model of some milliseconds shows its share.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.gpu.models import SEED
from benchmarks.load import WIDE, write_vector_model
from benchmarks.targets import Verdict
from millstream.inference.devices import gpus
from millstream.inference.executors.onnx import OnnxExecutor
from millstream.inference.executors.onnx_providers import providers_of
from millstream.inference.executors.onnx_session import open_session
from millstream.inference.repository import load_version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BATCH = 32  # events
SMALL, LARGE = (16,), (1536, 1536, 1536)  # hidden layers; the large model takes about 5 ms of a CPU
CALLS = {"small": 5000, "large": 200}  # of each kind
LIMIT_US = 30.0  # added to a call
LIMIT_SHARE = 0.05  # of a call of the large model


@dataclass(frozen=True, slots=True)
class Overhead:
    """The times of a call, of a model with these hidden layers."""

    model: str
    device: str
    bare_us: float  # ONNX Runtime alone, median
    added_us: float  # by the executor: median of the differences between a call and the bare call beside it

    @property
    def share(self) -> float:
        """The added time as a fraction of the bare call."""
        return self.added_us / self.bare_us


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if gpus() else "cpu")
    device = parser.parse_args().device
    for found in overheads(device):
        print(
            f"{found.model}: bare {found.bare_us:,.1f} us, the executor adds {found.added_us:.1f} us ({found.share:.1%})"
        )
    return 0


def overheads(device: str) -> list[Overhead]:
    """Measure a small and a large model."""
    return [_measured("small", SMALL, device), _measured("large", LARGE, device)]


def verdicts(found: Sequence[Overhead]) -> list[Verdict]:
    """The targets for `overheads`."""
    small, large = found
    return [
        Verdict(f"us that the executor adds to a call of {BATCH} events", small.added_us, LIMIT_US, at_least=False),
        Verdict(
            f"share that it adds to a call of {large.bare_us / 1000:.1f} ms", large.share, LIMIT_SHARE, at_least=False
        ),
    ]


def as_rows(found: Sequence[Overhead]) -> list[dict[str, Any]]:
    """For the report."""
    return [asdict(each) | {"share": each.share} for each in found]


def _measured(name: str, hidden: Sequence[int], device: str) -> Overhead:
    with tempfile.TemporaryDirectory() as folder:
        write_vector_model(Path(folder), SEED, WIDE, hidden)
        model = load_version(Path(folder) / "models", WIDE.name, 1)
        executor = OnnxExecutor(model, device=device, max_events=BATCH)
        session = open_session(model, providers_of(model, device), 1)
    executor.warm_up()
    inputs = {"x": np.random.default_rng(SEED).standard_normal((BATCH, WIDE.length), dtype=np.float32)}
    calls: dict[str, Callable[[], object]] = {
        "bare": lambda: session.run(["score"], inputs),
        "own": lambda: executor.run(inputs),
    }
    took: dict[str, list[float]] = {kind: [] for kind in calls}
    for number in range(CALLS[name]):
        # The second of two calls finds the weights in the caches, so each kind is the second one in half of the pairs.
        for kind in ("bare", "own") if number % 2 else ("own", "bare"):
            start = time.perf_counter()
            calls[kind]()
            took[kind].append(time.perf_counter() - start)
    executor.close()
    bare, added = took["bare"], [own - alone for own, alone in zip(took["own"], took["bare"], strict=True)]
    return Overhead(name, device, round(median(bare) * 1e6, 2), round(median(added) * 1e6, 2))


if __name__ == "__main__":
    sys.exit(main())
