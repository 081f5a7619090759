"""Simulates rollouts through the real evaluator and autopilot, from encoded records, on a simulated clock.

Run: python -m benchmarks.evaluated_rollouts [--minutes 10] [--slices 1] [--slice 0]

Each rollout starts on a control topic in memory. Workers write predictions and dead letters, and labels come. Then autopilot
looks: `StepEvaluator` reads the topics, and autopilot's decision goes to the control topic, by which the next events are
routed. The pure rules decide on the same events beside it, from sums. Both must decide the same at every look.

All streams come from seeds. A slice continues where its file ends (`.cache/evaluated-rollouts/SLICE.jsonl`), so a run may be
stopped at any time. The last step is the report: it puts the results of all slices into benchmarks/results/rollouts.json.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import numpy as np

from benchmarks.rollout_events import LOOK, SOON, Source, World
from benchmarks.rollout_sums import Rules, Sums
from benchmarks.rollout_topics import Topics
from benchmarks.rollouts import write
from millstream.consumers.autopilot.autopilot import Autopilot
from millstream.consumers.autopilot.control import Control
from millstream.consumers.autopilot.metrics import AutopilotMetrics
from millstream.consumers.autopilot.report import Report
from millstream.consumers.autopilot.starts import Starts
from millstream.consumers.autopilot.step_reading import StepReading
from millstream.consumers.control.writer import ControlWriter
from millstream.consumers.evaluation import label_reading, step_evaluator
from millstream.consumers.evaluation.judge import levels_of
from millstream.consumers.evaluation.settings import step_settings
from millstream.consumers.evaluation.step_evaluator import StepEvaluator
from millstream.consumers.evaluation.topic import Evaluations
from millstream.consumers.rollout.changes import Entry, Memory, started_record
from millstream.consumers.rollout.declared import metric_rules, steps_of
from millstream.consumers.rollout.progress import ENDED
from millstream.consumers.rollout.revisions import Change
from millstream.consumers.rollout.steps import decided
from millstream.pipeline.loading import load_pipeline
from millstream.schemas.records import ROLLOUT
from tests.consumers.control.topic_in_memory import PIPELINE, Topic, TopicReader, TopicTransaction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.consumers.evaluation.figures import StepFigures
    from millstream.consumers.rollout.progress import Decision, Evaluation
    from millstream.consumers.rollout.record import RolloutRecord
    from millstream.pipeline.pipeline import Pipeline

BEGIN: Final = 1_700_000_000_000  # in the past: the evaluator takes nothing of the future for read
EVENTS: Final = 800  # between two looks
LOOKS: Final = 28
MARGIN: Final = 0.05
FILE: Final = f"""\
name: {PIPELINE}
kafka: {{bootstrap: "127.0.0.1:9092"}}
input: {{topic: events, format: json}}
output: {{topic: predictions, include: [country]}}
model: {{name: delay, version: 1}}
labels: {{topic: labels, format: json, event_id: event, value: late, wait: 6s}}
comparison: {{output: score}}
rollout:
  steps: [25, 50]
  bake: 9s
  watch: 9s
  least_labels: 200
  segments: [country]
  metrics: {{accuracy: {{margin: {MARGIN}}}, errors: {{margin: 0.03}}, dead_letters: {{margin: 0.03}}}}
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of rollout, and the ends that would be wrong."""

    name: str
    about: str
    world: World
    wrong: tuple[str, ...]


CASES: Final = (
    Case("equal", "", World(), ("rolled_back",)),
    Case("worse by the margin", "accuracy -5 points", World(effect=-MARGIN), ("promoted", "rolled_back")),
    Case("worse", "accuracy -10 points", World(effect=-0.1), ("promoted",)),
    Case("better", "accuracy +3 points", World(effect=0.03), ("rolled_back",)),
    Case("slower", "latency x 1.8", World(slowness=1.8), ("promoted",)),
    Case("slower by the margin", "latency x 1.5", World(slowness=1.5), ("promoted", "rolled_back")),
    Case("erroring", "8 % errors, 8 % dead letters", World(errors=0.08), ("promoted",)),
    Case(
        "label delay tied to the outcome",
        "-10 points; the labels of wrong answers come a look later",
        World(effect=-0.1, slow_labels=True),
        ("promoted",),
    ),
    Case(
        "few keys",
        "300 keys, some with many events; accuracy -5 points",
        World(effect=-MARGIN, keys=300),
        ("promoted", "rolled_back"),
    ),
    Case("skewed split", "half of the candidate's wrong answers are lost", World(lost=0.5), ("promoted",)),
)


@dataclass(frozen=True, slots=True)
class Run:
    """How one rollout ended."""

    case: str
    seed: int
    state: str
    looks: int
    exposed: int  # events that the candidate answered
    reason: str  # metric that rolled back
    different: tuple[str, ...]  # where the pure rules decided otherwise


@dataclass(slots=True)
class Published:
    """As `FiguresPublisher`, and what a new evaluator reads of it."""

    figures: dict[tuple[str, int], StepFigures] = field(default_factory=dict)

    def publish(self, figures: StepFigures) -> None:
        """Keep the newest figures of each step."""
        self.figures[figures.rollout, figures.epoch] = figures

    def read(self, *_: object) -> Evaluations:
        """As `read_figures`."""
        return Evaluations(list(self.figures.values()))


class Simulation:
    """One rollout."""

    def __init__(self, pipeline: Pipeline, case: Case, seed: int, *, events: int, looks: int) -> None:
        self._pipeline, self._case, self._seed = pipeline, case, seed
        self._events, self._looks = events, looks
        names = [own.name for own in CASES]
        self._source = Source(case.world, np.random.default_rng([names.index(case.name), seed]))
        assert pipeline.rollout is not None
        assert pipeline.labels is not None
        self._steps = steps_of(pipeline.rollout)
        letters, labels = pipeline.dead_letters.topic, pipeline.labels.topic
        self._topics = Topics(pipeline.name, predictions=pipeline.output.topic, letters=letters, labels=labels)
        self._published = Published()
        self._now = BEGIN
        self._control = Topic()
        self._reader = TopicReader(self._control)
        self._evaluations: list[Evaluation] = []
        self._autopilot = self._hired()
        self._sums = Sums(rules_of(pipeline, self._started()))

    def run(self) -> Run:
        """Until the rollout ends, or for all looks."""
        look, exposed, different = 0, 0, []
        record = self._record()
        while record.state not in ENDED and look < self._looks:
            look += 1
            begin, self._now = self._now, BEGIN + look * LOOK
            events = self._source.draw(record, begin + 1, self._now - SOON, self._events)
            exposed += int((events.variant == 1).sum())
            self._topics.write(record, events, self._now)
            self._sums.parts.append(events)
            progress = Memory.of(record).progress
            expected = self._sums.evaluation(progress, self._now)
            decision = decided(self._steps, progress, expected)
            with self._in_memory():
                looked = self._autopilot.look()
            found = self._evaluations[-1]
            record = self._record()
            after = Memory.of(record).progress
            difference = differences(expected, found) or unlike(decision, looked.action, after.state, looked.result)
            different += [f"look {look}: {difference}"] if difference else []
            if after.epoch != progress.epoch:
                self._sums.begun()
        self._autopilot.close()
        reason = record.reason.split(" is too bad")[0] if record.state == "rolled_back" else ""
        return Run(self._case.name, self._seed, record.state, look, exposed, reason, tuple(different))

    def _hired(self) -> Autopilot:
        pipeline, metrics = self._pipeline, AutopilotMetrics(self._pipeline.name)
        return Autopilot(
            pipeline,
            Control(
                TopicReader(self._control),
                lambda reader: ControlWriter(reader, lambda: TopicTransaction(self._control), ROLLOUT.reserved_id),
            ),
            StepReading(self._open, lambda: self._now),
            self._published,
            Starts(pipeline, _no_start),
            Report(metrics, None),
            lambda: self._now,
        )

    def _open(self, record: RolloutRecord) -> StepEvaluator:
        evaluator = StepEvaluator(self._pipeline, record)
        evaluate = evaluator.evaluation

        def remembered(now: int, candidate: int = 1) -> Evaluation:
            self._evaluations.append(evaluate(now, candidate))
            return self._evaluations[-1]

        evaluator.evaluation = remembered  # type: ignore[method-assign]
        return evaluator

    def _started(self) -> RolloutRecord:
        """A person starts the rollout."""
        entry = Entry(PIPELINE, "delay", 1, (2,), ("primary", "canary"), "canary")
        record = started_record(self._steps, entry, None, Change("start", self._now, "ann", "start", "new"))
        self._control.writer().write(record)
        return record

    def _record(self) -> RolloutRecord:
        self._reader.read_to_end()
        assert self._reader.record is not None
        return self._reader.record

    @contextmanager
    def _in_memory(self) -> Iterator[None]:
        """The evaluator reads topics in memory in place of Kafka's."""
        with (
            patch.object(step_evaluator, "SinceReader", self._topics.reader),
            patch.object(label_reading, "SinceReader", self._topics.reader),
            patch.object(step_evaluator, "read_figures", self._published.read),
        ):
            yield


def rules_of(pipeline: Pipeline, record: RolloutRecord) -> Rules:
    """What the pure rules judge by."""
    settings = step_settings(pipeline, record)
    levels = levels_of(settings)
    named = {rule.name: rule for rule in metric_rules(pipeline)}
    guards = round(settings.level / levels.rollback / 2)  # the first step gets half of the level
    rare = named["errors"], named["dead_letters"]
    latency = settings.latency_quantile, settings.latency_at_most
    return Rules(named["accuracy"], rare, *latency, settings.level, guards)


def differences(expected: Evaluation, found: Evaluation) -> str:
    """The first difference of two evaluations; empty if there is none."""
    if (expected.epoch, expected.labels) != (found.epoch, found.labels):
        return f"labels {expected.labels} and {found.labels}"
    starts = [tuple(why.split(":")[0] for why in own.invalid) for own in (expected, found)]
    if starts[0] != starts[1]:
        return f"invalid {starts[0]} and {starts[1]}"
    others = {(own.metric, own.segment): own for own in found.verdicts}
    if len(others) != len(expected.verdicts):
        return f"{len(expected.verdicts)} and {len(others)} verdicts"
    for own in expected.verdicts:
        other = others[own.metric, own.segment]
        first, second = (np.array([each.estimate, each.lower, each.upper], np.float64) for each in (own, other))
        if own.outcome != other.outcome or not np.allclose(first, second, rtol=1e-9, atol=1e-9, equal_nan=True):
            return f"{own.words()}; {other.words()}"
    return ""


def unlike(decision: Decision, action: str, state: str, result: str) -> str:
    """How autopilot's decision differs from the pure rules'; empty if it does not."""
    if result in ("hold", "change") and (decision.action, decision.progress.state) == (action, state):
        return ""
    return f"{decision.action} to {decision.progress.state}, and {result}: {action} to {state}"


def _no_start(*_: object) -> Any:
    raise AssertionError("nothing starts by itself")


def load(folder: Path) -> Pipeline:
    """The pipeline of the simulation."""
    file = folder / "pipeline.yaml"
    file.write_text(FILE, "utf-8")
    return load_pipeline(file, {})


def simulated(pipeline: Pipeline, case: Case, seed: int, *, events: int = EVENTS, looks: int = LOOKS) -> Run:
    """One rollout. `events`: between two looks; `looks`: at most."""
    return Simulation(pipeline, case, seed, events=events, looks=looks).run()


def run_slice(file: Path, number: int, slices: int, minutes: float) -> None:
    """Run the rollouts of a slice, in turns of all cases, from where its file ends.

    Args:
        file: gets one line for each rollout.
        number: of the slice, from 0 on.
        slices: in all. Each has seeds of its own.
        minutes: of CPU time, after which it ends.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    done = len(file.read_text("utf-8").splitlines()) if file.exists() else 0
    until = time.process_time() + 60 * minutes
    with tempfile.TemporaryDirectory() as folder, file.open("a", encoding="utf-8") as out:
        pipeline = load(Path(folder))
        while time.process_time() < until:
            turn, place = divmod(done, len(CASES))
            found = simulated(pipeline, CASES[place], turn * slices + number)
            out.write(json.dumps(asdict(found)) + "\n")
            out.flush()
            done += 1


def summary(runs: list[Run]) -> list[dict[str, Any]]:
    """What the report says of each case."""
    found = []
    for case in CASES:
        own = [run for run in runs if run.case == case.name]
        ended = [run.looks for run in own if run.state in ENDED]
        states = [run.state for run in own]
        reasons = [run.reason for run in own if run.reason]
        found.append(
            {
                "case": case.name,
                "about": case.about,
                "rollouts": len(own),
                "promoted": states.count("promoted"),
                "rolled_back": states.count("rolled_back"),
                "held": len(own) - len(ended),
                "wrong": sum(state in case.wrong for state in states),
                "must_not_promote": "promoted" in case.wrong,
                "looks": float(np.median(ended)) if ended else None,
                "exposed": float(np.median([run.exposed for run in own])) if own else None,
                "reason": max(set(reasons), key=reasons.count) if reasons else "",
                "looks_in_all": sum(run.looks for run in own),
                "different": sum(len(run.different) for run in own),
            }
        )
    return found


def main() -> None:
    """Run a slice, then report all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="of CPU time for this slice; 0: only the report")
    parser.add_argument("--slice", type=int, default=0, help="its number (default: %(default)s)")
    parser.add_argument("--slices", type=int, default=1, help="in all (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=Path(".cache/evaluated-rollouts"), help="(default: %(default)s)")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    run_slice(given.folder / f"{given.slice}-of-{given.slices}.jsonl", given.slice, given.slices, given.minutes)
    runs = []
    for file in sorted(given.folder.glob("*.jsonl")):
        for line in file.read_text("utf-8").splitlines():
            datum = json.loads(line)
            runs.append(Run(**datum | {"different": tuple(datum["different"])}))
    for run in runs:
        if run.different:
            print(run.case, run.seed, run.different[0])
    write({"evaluated": summary(runs)})


if __name__ == "__main__":
    main()
