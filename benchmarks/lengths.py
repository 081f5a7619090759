"""Measures what length bucketing saves: `python -m benchmarks.lengths`.

Texts of different lengths, as token IDs, run through the sentence-embedding model on the CPU, one micro-batch after another.
Three ways take turns: padding to the longest possible text, padding to the longest text of the batch, and length bucketing as in
a worker. Results go to results/lengths.json and lengths.md.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.errors import LeftOutError
from benchmarks.machine import machine
from benchmarks.pages import write_results
from benchmarks.text import MODEL, text_folder
from millstream.inference.executors.by_length import ByLength
from millstream.inference.executors.choice import open_executor
from millstream.inference.ragged import Ragged
from millstream.inference.repository import load_version
from millstream.inference.varying import padded_to

RESULTS = Path(__file__).parent / "results"
LONGEST = 256  # tokens
MEDIAN = 40  # tokens; the lengths are log-normal, as those of texts usually are
SPREAD = 0.7
BATCHES, EVENTS, ROUNDS = 3, 64, 3
FIRST_WORD, WORDS = 1000, 28_000  # first ID and number of whole words in the model's vocabulary
CONFIG = f"""inputs:
  - {{tensor: input_ids, field: input_ids, dtype: int64, max_length: {LONGEST}}}
  - {{tensor: attention_mask, mask: true, dtype: int64}}
outputs:
  - {{tensor: embedding}}
"""

Batch = dict[str, Ragged]
Way = Callable[[Batch], npt.NDArray[Any]]


def main() -> int:
    try:
        source = text_folder() / "models" / MODEL / "1"
    except LeftOutError as error:
        print(error, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        version = Path(folder) / MODEL / "1"
        version.mkdir(parents=True)
        shutil.copy(source / "model.onnx", version)
        (version / "config.yaml").write_text(CONFIG)
        report = _measured(Path(folder))
    write_results(RESULTS, "lengths", report, _page(report))
    return 0


def _measured(repository: Path) -> dict[str, Any]:
    executor = open_executor(load_version(repository, MODEL), device="cpu", max_events=EVENTS)
    assert isinstance(executor, ByLength)
    executor.warm_up()
    ways = _ways(executor)
    batches = [_batch(seed) for seed in range(BATCHES)]
    answers = {name: [way(batch) for batch in batches] for name, way in ways.items()}
    first, *others = answers.values()
    assert all(np.allclose(one, other, atol=1e-4) for way in others for one, other in zip(first, way, strict=True))
    took: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            started = time.perf_counter()
            for batch in batches:
                way(batch)
            took[name].append(time.perf_counter() - started)
    events = BATCHES * EVENTS
    rates = {name: events / median(seconds) for name, seconds in took.items()}
    return {
        "machine": machine("none"),
        "lengths": list(executor.length_buckets),
        "events": events,
        "events_per_second": rates,
    }


def _ways(executor: ByLength) -> dict[str, Way]:
    """Each way to run a batch. The first two call the executor directly, without bucketing."""
    inner, inputs = executor._executor, executor._model.signature.inputs

    def padded(batch: Batch, size: int) -> npt.NDArray[Any]:
        return inner.run(padded_to(inputs, batch, size))["embedding"]

    return {
        "to the longest there may be": lambda batch: padded(batch, LONGEST),
        "to the longest of the batch": lambda batch: padded(batch, int(batch["input_ids"].lengths.max())),
        "by length": lambda batch: executor.run(batch)["embedding"],
    }


def _batch(seed: int) -> Batch:
    chance = np.random.default_rng(seed)
    lengths = np.clip(chance.lognormal(np.log(MEDIAN), SPREAD, EVENTS), 3, LONGEST).astype(np.int64)
    return {"input_ids": Ragged.of_lengths(chance.integers(FIRST_WORD, WORDS, lengths.sum()), lengths)}


def _page(report: dict[str, Any]) -> str:
    rates = report["events_per_second"]
    base = next(iter(rates.values()))
    rows = "".join(f"| {name} | {rate:,.0f} | {rate / base:.2f} |\n" for name, rate in rates.items())
    told = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
    return (
        "# Inputs of varying length\n\n"
        f"{report['events']} texts of {MEDIAN} tokens at the median, up to {LONGEST}, in micro-batches of {EVENTS}, through "
        f"all-MiniLM-L6-v2 on one CPU thread, padded in three ways. By length: {', '.join(map(str, report['lengths']))}. "
        f"Machine: {told}."
        f"\n\n| padded | events/s | ratio |\n|---|---|---|\n{rows}"
    )


if __name__ == "__main__":
    sys.exit(main())
