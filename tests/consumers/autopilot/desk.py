"""An autopilot with its control topic in memory, and an evaluator that finds what the test says."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from millstream.consumers.autopilot.autopilot import Autopilot
from millstream.consumers.autopilot.candidate_watch import Answer, CandidateWatch
from millstream.consumers.autopilot.control import Control
from millstream.consumers.autopilot.metrics import AutopilotMetrics
from millstream.consumers.autopilot.report import Report
from millstream.consumers.autopilot.shadow_watch import ShadowWatch
from millstream.consumers.autopilot.starts import Starts
from millstream.consumers.autopilot.step_reading import StepReading
from millstream.consumers.autopilot.version_check import VersionCheck
from millstream.consumers.control.writer import ControlWriter
from millstream.consumers.evaluation.figures import (
    CandidateVerdicts,
    Figure,
    StepFigures,
    VariantFigures,
    WindowFigures,
)
from millstream.consumers.evaluation.step_state import Arrivals
from millstream.consumers.rollout.bandit import Rewards
from millstream.consumers.rollout.changes import Command, Entry, Memory, commanded_record, standing, started_record
from millstream.consumers.rollout.declared import steps_of
from millstream.consumers.rollout.progress import Evaluation
from millstream.consumers.rollout.revisions import Change
from millstream.consumers.rollout.verdicts import Verdict
from millstream.schemas.records import ROLLOUT
from tests.consumers.control.topic_in_memory import PIPELINE, Topic, TopicReader, TopicTransaction
from tests.pipeline.pipeline_files import load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.consumers.autopilot.looked import Looked
    from millstream.consumers.control.writer import Reader
    from millstream.consumers.rollout.record import RolloutRecord
    from millstream.consumers.rollout.steps import Steps
    from millstream.pipeline.pipeline import Pipeline

MINUTE = 60_000
START = 1_790_000_000_000
GOOD = (Verdict("accuracy", "pass", 0.01, -0.002, 0.02), Verdict("errors", "pass", 0.0, -0.001, 0.001, service=True))
UNDECIDED = (replace(GOOD[0], outcome="undecided"), GOOD[1])
WORSE = (replace(GOOD[0], outcome="breach", estimate=-0.1), GOOD[1])
FAILING = (GOOD[0], replace(GOOD[1], outcome="breach", estimate=-0.2))
FILE = """\
name: flights
kafka: {bootstrap: "127.0.0.1:9092"}
input: {topic: events, format: json}
output: {topic: predictions}
model: {name: delay, version: 1}
labels: {topic: labels, format: json, event_id: event, value: late, wait: 10m}
"""


def pipeline_of(folder: Path, rollout: str = "steps: [5, 50]", more: str = "") -> Pipeline:
    """A pipeline whose steps take a minute. `rollout`: lines of its section."""
    lines = "".join(f"  {line}\n" for line in rollout.splitlines())
    return load(folder, f"{FILE}{more}rollout:\n  bake: 1m\n{lines}")


@dataclass
class Found:
    """What an evaluator finds. Times are in ms since the epoch."""

    verdicts: tuple[Verdict, ...] = GOOD
    invalid: tuple[str, ...] = ()
    labels: int = 1000
    arrivals: Arrivals | None = None  # None: events came all the time
    late: int = 0  # ms that its reading is late
    rewards: tuple[Rewards, ...] = ()
    error: Exception | None = None  # raised by the next reads
    label_problem: str = ""  # why labels can't be read


@dataclass
class FakeEvaluator:
    desk: Desk
    record: RolloutRecord
    closed: bool = False
    behind: int = 0

    @property
    def since(self) -> int:
        return Memory.of(self.record).progress.since

    @property
    def label_problem(self) -> str:
        return self.desk.found.label_problem

    @property
    def read_until(self) -> int:
        return self.desk.now - self.desk.found.late

    @property
    def arrivals(self) -> Arrivals:
        return self.desk.found.arrivals or Arrivals(100, self.since, self.desk.now)

    def advance(self, timeout: float) -> int:  # noqa: ARG002
        found = self.desk.found
        if found.error is not None:
            raise found.error
        return 0

    def evaluation(self, now: int, candidate: int = 1) -> Evaluation:
        found, epoch = self.desk.found, Memory.of(self.record).progress.epoch
        verdicts = self.desk.by_candidate.get(candidate, found.verdicts)
        invalid = self.desk.invalid_of.get(candidate, found.invalid)
        return Evaluation(epoch, now, 0 if found.label_problem else found.labels, verdicts, invalid, 0.25)

    def rewards(self, after: int, until: int) -> tuple[Rewards, ...]:
        self.desk.asked.append((after, until))
        return self.desk.found.rewards

    def figures(self, now: int) -> StepFigures:
        record, found = self.record, self.desk.found
        window = WindowFigures(None, None, (Figure("canary", "errors", None, 100, 0.25),))
        variants = tuple(VariantFigures(own.name, own.model, own.version, 0.0, 0, 1.0) for own in record.variants)
        epoch = Memory.of(record).progress.epoch
        candidates = tuple(
            CandidateVerdicts(own.name, found.labels, found.invalid, found.verdicts) for own in record.variants[1:]
        )
        return StepFigures(
            record.pipeline,
            record.rollout,
            0,
            epoch,
            self.since,
            now,
            0.25,
            0,
            (),
            variants,
            candidates,
            (),
            window,
            (),
        )

    def close(self) -> None:
        self.closed = True


@dataclass
class Desk:
    """All of one pipeline. Several autopilots may share the topic."""

    pipeline: Pipeline
    topic: Topic = field(default_factory=Topic)
    found: Found = field(default_factory=Found)
    by_candidate: dict[int, tuple[Verdict, ...]] = field(default_factory=dict)
    invalid_of: dict[int, tuple[str, ...]] = field(default_factory=dict)  # likewise
    now: int = START
    candidate: CandidateWatch | None = None
    published: list[StepFigures] = field(default_factory=list)
    publish_error: Exception | None = None
    sent: list[dict[str, Any]] = field(default_factory=list)
    opened: list[FakeEvaluator] = field(default_factory=list)
    asked: list[tuple[int, int]] = field(default_factory=list)  # times of rewards
    refusals: dict[int, Exception] = field(default_factory=dict)  # versions that can't take part
    absence: str = ""  # what says that no worker runs
    is_fetched: bool = True  # whether versions are checked at once
    shadows: tuple[RolloutRecord, ...] = ()
    metrics: AutopilotMetrics = field(default_factory=lambda: AutopilotMetrics(PIPELINE))

    def __post_init__(self) -> None:
        assert self.pipeline.rollout is not None
        self.rollout = self.pipeline.rollout
        if self.rollout.candidate is not None:
            self.candidate = CandidateWatch(lambda: 0, 1)
        self._checks: list[Callable[[], None]] = []  # that are still to run
        self.check = VersionCheck(self._entry, lambda: self.now / 1000, self._checks.append)
        self.report = Report(self.metrics, self, lambda: self.now / 1000)
        self.autopilot = self.hire()
        self._reader = TopicReader(self.topic)

    def hire(self) -> Autopilot:
        """Another autopilot, as after a restart or in another process."""
        shadows = None
        if self.rollout.start_after_shadow is not None:
            least = round(self.rollout.start_after_shadow * 1000)
            shadows = ShadowWatch(
                lambda _baseline, _since: self.shadows,
                self._reading,
                least_ms=least,
                least_labels=self.rollout.least_labels,
            )
        return Autopilot(
            self.pipeline,
            Control(TopicReader(self.topic), self._writer),
            self._reading(),
            self,
            Starts(self.pipeline, self._checked, candidate=self.candidate, shadows=shadows),
            self.report,
            lambda: self.now,
        )

    def _reading(self) -> StepReading:
        return StepReading(self._open, lambda: self.now, lambda: self.absence)

    def _writer(self, reader: Reader) -> ControlWriter:
        return ControlWriter(reader, lambda: TopicTransaction(self.topic), ROLLOUT.reserved_id)

    def _open(self, record: RolloutRecord) -> FakeEvaluator:
        self.opened.append(FakeEvaluator(self, record))
        return self.opened[-1]

    def _checked(self, version: int, current: RolloutRecord | None) -> tuple[Steps, Entry] | str:
        self.check.of(version, current)
        if self.is_fetched:
            while self._checks:
                self._checks.pop()()
        return self.check.of(version, current)

    def _entry(self, version: int, current: RolloutRecord | None) -> tuple[Steps, Entry]:
        if version in self.refusals:
            raise self.refusals[version]
        baseline = 1 if current is None else standing(current).version
        rollout = self.rollout
        entry = Entry(PIPELINE, "delay", baseline, (version,), ("primary", "canary"), rollout.strategy, rollout.mode)
        return steps_of(rollout), entry

    def publish(self, figures: StepFigures) -> None:
        """As `FiguresPublisher`."""
        if self.publish_error is not None:
            raise self.publish_error
        self.published.append(figures)

    def send(self, change: dict[str, Any]) -> None:
        """As `WebhookThread`."""
        self.sent.append(change)

    @property
    def record(self) -> RolloutRecord:
        """The newest."""
        self._reader.read_to_end()
        assert self._reader.record is not None
        return self._reader.record

    @property
    def state(self) -> tuple[str, int]:
        """State and the candidate's share in percent."""
        return self.record.state, self.record.shares[1] // 100

    def start(self, *versions: int, by: str = "ann") -> None:
        """A person starts a rollout."""
        current = self.topic.state().record
        names = ("primary", "canary") if len(versions) == 1 else ("primary", *(f"v{own}" for own in versions))
        baseline = 1 if current is None else standing(current).version
        entry = Entry(PIPELINE, "delay", baseline, versions, names, self.rollout.strategy, self.rollout.mode)
        self.write(started_record(steps_of(self.rollout), entry, current, self._change("start", by)))

    def command(self, name: str, **of: Any) -> None:
        """A person's command."""
        steps = steps_of(self.rollout, self.record.strategy)
        self.write(commanded_record(steps, self.record, Command(name, **of), self._change(name, "ann")))

    def write(self, record: RolloutRecord) -> None:
        self.topic.writer().write(record)

    def _change(self, action: str, by: str) -> Change:
        return Change(f"{len(self.topic.rows):06d}-{action}", self.now, by, action, "asked for")

    def names(self, version: int | None, problem: str = "") -> None:
        """What `rollout.candidate` names from now on."""
        assert self.candidate is not None
        self.candidate.answer = Answer(version, problem)

    def look(self, minutes: float = 0) -> Looked:
        """Look after some minutes."""
        self.now += round(minutes * MINUTE)
        return self.autopilot.look()

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        return sum(
            sample.value
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name == f"millstream_autopilot_{name}"
        )

    def value(self, name: str, **labels: str) -> float | None:
        """A metric's value with these labels; None: it has none."""
        return self.metrics.registry.get_sample_value(f"millstream_autopilot_{name}", labels)
