"""What the executor adds to a call of ONNX Runtime or torch: python -m benchmarks.gpu.overhead.

The same model is called by itself with arrays of the right size, and by the executor, in turns. A small model shows the added
time, and a model of some milliseconds shows its share.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.gpu.models import SEED, write_model
from benchmarks.load import WIDE
from benchmarks.targets import Verdict
from millstream.inference.devices import gpus
from millstream.inference.executors.choice import open_executor
from millstream.inference.executors.onnx_providers import providers_of
from millstream.inference.executors.onnx_session import open_session
from millstream.inference.executors.torch_library import torch
from millstream.inference.repository import load_version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.inference.executors.interface import Tensors
    from millstream.inference.repository import ModelVersion

BATCH = 32  # events
SMALL, LARGE = (16,), (1536, 1536, 1536)  # hidden layers; the large model takes about 5 ms of a CPU
CALLS = {"small": 5000, "large": 200}  # of each kind
LIMIT_US = 30.0  # added to a call
LIMIT_SHARE = 0.05  # of a call of the large model


@dataclass(frozen=True, slots=True)
class Overhead:
    """The times of a call."""

    executor: str
    model: str  # small or large
    device: str
    bare_us: float  # the runtime alone, median
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
        added = f"the executor adds {found.added_us:.1f} us ({found.share:.1%})"
        print(f"{found.executor}, {found.model}: bare {found.bare_us:,.1f} us, {added}")
    return 0


def overheads(device: str) -> list[Overhead]:
    """Measure a small and a large model of ONNX Runtime, and of torch if it is installed."""
    executors = ["onnx", *(["torch"] if find_spec("torch") else [])]
    return [
        _measured(executor, name, hidden, device)
        for executor in executors
        for name, hidden in (("small", SMALL), ("large", LARGE))
    ]


def verdicts(found: Sequence[Overhead]) -> list[Verdict]:
    """The targets for `overheads`."""
    return [_verdict(each) for each in found]


def _verdict(found: Overhead) -> Verdict:
    if found.model == "small":
        what = f"{found.executor}: us that the executor adds to a call of {BATCH} events"
        return Verdict(what, found.added_us, LIMIT_US, at_least=False)
    what = f"{found.executor}: share that it adds to a call of {found.bare_us / 1000:.1f} ms"
    return Verdict(what, found.share, LIMIT_SHARE, at_least=False)


def as_rows(found: Sequence[Overhead]) -> list[dict[str, Any]]:
    """For the report."""
    return [asdict(each) | {"share": each.share} for each in found]


def _measured(executor: str, name: str, hidden: Sequence[int], device: str) -> Overhead:
    with tempfile.TemporaryDirectory() as folder:
        model = load_version(write_model(Path(folder), executor, hidden), WIDE.name, 1)
        opened = open_executor(model, trust=True, device=device, max_events=BATCH)
        bare_call = _onnx(model, device) if executor == "onnx" else _torch(model, device)
    opened.warm_up()
    inputs = {"x": np.random.default_rng(SEED).standard_normal((BATCH, WIDE.length), dtype=np.float32)}
    calls: dict[str, Callable[[], object]] = {
        "bare": lambda: bare_call(inputs),
        "own": lambda: opened.run(inputs),
    }
    took: dict[str, list[float]] = {kind: [] for kind in calls}
    for number in range(CALLS[name]):
        # The second of two calls finds the weights in the caches, so each kind is the second one in half of the pairs.
        for kind in ("bare", "own") if number % 2 else ("own", "bare"):
            start = time.perf_counter()
            calls[kind]()
            took[kind].append(time.perf_counter() - start)
    opened.close()
    bare, added = took["bare"], [own - alone for own, alone in zip(took["own"], took["bare"], strict=True)]
    return Overhead(executor, name, device, round(median(bare) * 1e6, 2), round(median(added) * 1e6, 2))


def _onnx(model: ModelVersion, device: str) -> Callable[[Tensors], object]:
    session = open_session(model, providers_of(model, device), 1)
    return lambda inputs: session.run(["score"], inputs)


def _torch(model: ModelVersion, device: str) -> Callable[[Tensors], object]:
    library = torch()
    program = library.export.load(str(model.file))
    if device != "cpu":
        program = importlib.import_module("torch.export.passes").move_to_device_pass(program, device)
    module = program.module()

    def call(inputs: Tensors) -> object:
        with library.inference_mode():
            return module(library.from_numpy(inputs["x"]).to(device)).cpu().numpy()

    return call


if __name__ == "__main__":
    sys.exit(main())
