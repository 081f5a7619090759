"""One Millstream worker over all that is in the input topic, measured: prints one JSON line.

The worker is the one of `millstream work`, put together from a pipeline file; only the clocks are added.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import threading
import time
from pathlib import Path

from benchmarks.handwritten import peak_rss_mb
from consumers.cli.work import SWITCH_INTERVAL
from consumers.health import Health
from consumers.metrics import DEAD_LETTERS, PREDICTIONS, Metrics
from consumers.plan import make_plan, settings_of, stages_of
from consumers.worker import Worker
from topics.pipeline import load_pipeline

SAMPLE_EVERY = 0.5  # seconds between two looks at the memory


def main() -> int:
    """Run until idle."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ours", description=__doc__)
    parser.add_argument("pipeline", type=Path)
    pipeline = load_pipeline(parser.parse_args().pipeline, os.environ)
    sys.setswitchinterval(SWITCH_INTERVAL)
    metrics = Metrics(pipeline.name)
    plan = make_plan(pipeline)
    worker = Worker(
        settings_of(plan, until_idle=True),
        stages_of(plan, metrics, slot=pipeline.name, until_idle=True),
        Health(pipeline.limits.stall_after),
        metrics,
    )
    memory: list[float] = []
    threading.Thread(target=_sample, args=(memory,), daemon=True).start()
    cpu = time.process_time()
    if not worker.run():
        return 1
    first, last = worker.span()
    result = {
        "events": int(_total(metrics, PREDICTIONS.name) + _total(metrics, DEAD_LETTERS.name)),
        "dead": int(_total(metrics, DEAD_LETTERS.name)),
        "cpu_seconds": round(time.process_time() - cpu, 3),
        "wall_seconds": round(last - first, 3),
        "peak_rss_mb": peak_rss_mb(),
        "rss_mb": memory,
    }
    print(json.dumps(result))
    return 0


def _total(metrics: Metrics, name: str) -> float:
    return sum(
        sample.value for family in metrics.registry.collect() for sample in family.samples if sample.name == name
    )


def _sample(memory: list[float]) -> None:
    while True:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        memory.append(round(pages * resource.getpagesize() / 2**20, 1))
        time.sleep(SAMPLE_EVERY)


if __name__ == "__main__":
    sys.exit(main())
