"""Measures how fast one process evaluates the variants of a rollout, with late labels: `python -m benchmarks.evaluation`.

It writes seeded predictions of two variants and their labels to a real broker. Then a process of its own reads all of them from
the step's begin, as after a kill, joins them and evaluates. Results go to benchmarks/results/evaluation.json and evaluation.md.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from confluent_kafka import Producer

from benchmarks.broker import real_broker
from benchmarks.errors import NoBrokerError, PeerFailedError
from benchmarks.machine import machine
from benchmarks.measure import delete_topics
from benchmarks.pages import write_results
from millstream.consumers.evaluation.step_evaluator import StepEvaluator
from millstream.consumers.rollout.progress import Progress
from millstream.consumers.rollout.record import RolloutRecord, RolloutVariant
from millstream.consumers.rollout.routing import route
from millstream.consumers.rollout.slots import reallocated, whole
from millstream.pipeline.loading import load_pipeline
from millstream.schemas.column import column_of
from millstream.schemas.packed import Packed
from millstream.schemas.predictions import JsonPredictionEncoder, PredictionEncoder
from millstream.schemas.records import ROLLOUT_PREDICTION
from millstream.schemas.rollout_choices import RolloutChoice, RowChoices
from millstream.schemas.row_models import RowModels
from millstream.schemas.table import Table
from tests.broker.clients import create_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.broker.choice import Broker

RESULTS: Final = Path(__file__).parent / "results"
EVENTS: Final = 400_000
KEYS: Final = 20_000
PARTITIONS: Final = 4
BATCH: Final = 500
SHARE: Final = 2500  # slots of the candidate
SEED: Final = 29
TARGET: Final = 10_000  # events/s with labels
TIMEOUT: Final = 300  # seconds
FILE: Final = """\
name: NAME
kafka: {bootstrap: "BOOTSTRAP"}
input: {topic: NAME-events, format: json}
output: {topic: NAME-predictions, format: FORM, include: [country]}
model: {name: m, version: 1}
labels: {topic: NAME-labels, format: json, event_id: event, value: outcome, wait: 1m}
comparison: {output: score}
rollout:
  steps: [25]
  segments: [country]
  metrics: {accuracy: {margin: 0.02}, brier: {margin: 0.01}, score_drift: {}}
  max_events: LIMIT
"""


@dataclass(frozen=True, slots=True)
class Case:
    """What is read."""

    name: str
    form: str
    limit: int  # `rollout.max_events`


CASES: Final = (
    Case("Avro", "avro", 1_000_000),
    Case("JSON", "json", 1_000_000),
    Case("Avro, at most 100,000 events kept", "avro", 100_000),
)


@dataclass(frozen=True, slots=True)
class Run:
    """The figures of one run."""

    case: str
    rate: float  # events/s with their labels, from the first read to the end of all topics
    cpu_us: float  # CPU microseconds of the process per event with its label, all threads
    evaluation_s: float  # one evaluation at the end
    figures_s: float  # all figures at the end
    peak_mib: float
    kept: int  # events
    labels: int  # matured labels of the candidate


def main() -> int:
    """Run all and write the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evaluation", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of each case (default: 3)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder (default: %(default)s)")
    parser.add_argument("--child", nargs=2, metavar=("FILE", "SINCE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        evaluate(Path(args.child[0]), int(args.child[1]))
        return 0
    runs: list[Run] = []
    try:
        with real_broker() as broker:
            for number in range(args.rounds):
                for case in CASES[:: 1 if number % 2 == 0 else -1]:
                    runs.append(run(broker, case, number))
                    print(runs[-1], file=sys.stderr)
            report = {"machine": machine(broker.kind), "events": EVENTS, "runs": [asdict(one) for one in runs]}
    except NoBrokerError as error:
        print(error, file=sys.stderr)
        return 1
    write_results(args.results, "evaluation", report, markdown(report))
    return 0


def run(broker: Broker, case: Case, number: int) -> Run:
    """One run with topics of its own. Raises PeerFailedError."""
    name = f"evaluation-{case.form}-{case.limit}-{number}"
    text = FILE.replace("NAME", name).replace("BOOTSTRAP", broker.bootstrap).replace("FORM", case.form)
    with tempfile.TemporaryDirectory() as made:
        file = Path(made) / "pipeline.yaml"
        file.write_text(text.replace("LIMIT", str(case.limit)), encoding="utf-8")
        topics = {f"{name}-{what}": PARTITIONS for what in ("predictions", "labels", "dead-letters")}
        for topic, partitions in {**topics, f"{name}-rollout-evaluations": 1}.items():
            create_topic(broker.bootstrap, topic, partitions, {})
        since = int(time.time() * 1000) - 600_000
        write(broker, name, case.form, since)
        command = [sys.executable, "-P", "-m", "benchmarks.evaluation", "--child", str(file), str(since)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    delete_topics(broker.bootstrap, name)
    if done.returncode:
        raise PeerFailedError(f"the process ended with {done.returncode}: {done.stderr[-2000:]}")
    return Run(case.name, **json.loads(done.stdout))


def evaluate(file: Path, since: int) -> None:
    """Read all, evaluate, and print the figures as JSON."""
    pipeline = load_pipeline(file, {})
    with StepEvaluator(pipeline, record_of(pipeline.name, since)) as evaluator:
        began, cpu = time.monotonic(), time.process_time()
        while evaluator.advance(10.0) or evaluator.behind:
            pass
        seconds, used = time.monotonic() - began, time.process_time() - cpu
        now = int(time.time() * 1000)
        began = time.monotonic()
        found = evaluator.evaluation(now)
        decided = time.monotonic()
        figures = evaluator.figures(now)
        shown = time.monotonic()
    report = {
        "rate": round(EVENTS / seconds, 1),
        "cpu_us": round(used / EVENTS * 1e6, 1),
        "evaluation_s": round(decided - began, 3),
        "figures_s": round(shown - decided, 3),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "kept": sum(own.events for own in figures.variants),
        "labels": found.labels,
    }
    print(json.dumps(report))


def record_of(pipeline: str, since: int) -> RolloutRecord:
    """A canary at its share."""
    return RolloutRecord(
        pipeline, 2, 1, "c", since, "bench", "step", "", f"{pipeline}-2", "canary", "running",
        (RolloutVariant("primary", "m", 1), RolloutVariant("canary", "m", 2)),
        reallocated(whole(), (10_000 - SHARE, SHARE)),
        strategy_state=Progress("m:2", share=SHARE, since=since).to_json(),
    )  # fmt: skip


def write(broker: Broker, name: str, form: str, since: int) -> None:
    """Write the predictions and their labels, in the order of their times."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "partitioner": "murmur2_random"})
    for kind, key, value, timestamp in records(name, form, since):
        while True:
            try:
                producer.produce(f"{name}-{kind}", value, key, timestamp=timestamp)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(60):
        raise PeerFailedError("the broker did not take all records within 60 s")


def records(name: str, form: str, since: int) -> Iterator[tuple[str, bytes, bytes, int]]:
    """Topic, key, value and timestamp of each record."""
    rng, record = np.random.default_rng(SEED), record_of(name, since)
    names, shares = [own.name for own in record.variants], [share / 10_000 for share in record.shares]
    avro = PredictionEncoder(ROLLOUT_PREDICTION.reserved_id, pipeline=name, variant=names[0], rollout=True)
    encoder = avro if form == "avro" else JsonPredictionEncoder(pipeline=name, variant=names[0], rollout=True)
    for first in range(0, EVENTS, BATCH):
        keys = [b"customer-%012d" % key for key in rng.integers(0, KEYS, BATCH)]
        variant = route(record.plan(), Packed.of(keys)).variant.astype(np.int64)
        ids = [f"event-{number:012d}" for number in range(first, first + BATCH)]
        outcomes = rng.random(BATCH) < 0.4
        scores = np.abs(outcomes - rng.beta(2, 4, BATCH))
        at = since + 1000 + first * 240_000 // EVENTS  # the last 5 minutes are mature
        times = np.full(BATCH, at)
        choices = [
            RolloutChoice(record.rollout, 2, own, share, True, float(rng.gamma(4, 2)))
            for own, share in zip(names, shares, strict=True)
        ]
        models = RowModels([("m", 1), ("m", 2)], variant, names, RowChoices(choices, variant))
        event = Table({"country": column_of(rng.choice(["DE", "FR", "IT", "ES"], BATCH).tolist(), "string")})
        values = encoder.encode(ids, times, times, times, {"score": scores}, event, models=models)
        yield from (("predictions", key, value, at) for key, value in zip(keys, values, strict=True))
        for own, outcome in zip(ids, outcomes.tolist(), strict=True):
            yield "labels", own.encode(), json.dumps({"event": own, "outcome": outcome}).encode(), at + 20_000


def markdown(report: Mapping[str, Any]) -> str:
    """The report for people."""
    slowest = min(run["rate"] for run in report["runs"])
    lines = [
        "# The evaluation of a rollout: one process",
        "",
        f"A process reads {report['events']:,} predictions of two variants and their labels in {PARTITIONS} partitions each, "
        "from the step's begin to the end, joins them, and evaluates two metrics of quality, four segments, errors, latency "
        f"and drift. The median of {len(report['runs']) // len(CASES)} rounds in turns, and behind it the least and most.",
        "",
        f"Machine: {', '.join(f'{name} {value}' for name, value in report['machine'].items())}. The cores are the broker's, too.",
        "",
        "| predictions | events/s with labels | CPU us/event | one evaluation, s | all figures, s | peak MiB | events kept |",
        "|---|---|---|---|---|---|---|",
        *(_row([run for run in report["runs"] if run["case"] == case.name], case) for case in CASES),
        "",
        f"The slowest run read {slowest:,.0f} events/s. The aim is {TARGET:,}.",
    ]
    return "\n".join(lines) + "\n"


def _row(runs: list[dict[str, Any]], case: Case) -> str:
    rates, cpu = sorted(run["rate"] for run in runs), sorted(run["cpu_us"] for run in runs)
    return (
        f"| {case.name} | {median(rates):,.0f} ({rates[0]:,.0f}-{rates[-1]:,.0f}) "
        f"| {median(cpu):.0f} ({cpu[0]:.0f}-{cpu[-1]:.0f}) "
        f"| {_middle(runs, 'evaluation_s'):.2f} | {_middle(runs, 'figures_s'):.2f} | {_middle(runs, 'peak_mib'):,.0f} "
        f"| {_middle(runs, 'kept'):,.0f} |"
    )


def _middle(runs: list[dict[str, Any]], name: str) -> float:
    return float(median(run[name] for run in runs))


if __name__ == "__main__":
    sys.exit(main())
