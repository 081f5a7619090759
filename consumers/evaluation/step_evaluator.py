"""Evaluates the current step of a rollout from its topics."""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

from millstream.consumers.evaluation.before import last_shared, most_before, next_before
from millstream.consumers.evaluation.intake import ComparisonIntake, LetterIntake, PredictionIntake
from millstream.consumers.evaluation.label_reading import LabelReading
from millstream.consumers.evaluation.reference import read_reference
from millstream.consumers.evaluation.settings import step_settings
from millstream.consumers.evaluation.step_state import StepState
from millstream.consumers.evaluation.topic import earlier_ratios, read_figures
from millstream.consumers.schema_store import open_store
from millstream.schemas.errors import SchemaUnavailable
from millstream.topics.since_reader import SinceReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.consumers.evaluation.distributions import Reference
    from millstream.consumers.evaluation.figures import StepFigures
    from millstream.consumers.evaluation.rows import Rows
    from millstream.consumers.evaluation.settings import StepSettings
    from millstream.consumers.evaluation.step_state import Arrivals
    from millstream.consumers.rollout.bandit import Rewards
    from millstream.consumers.rollout.progress import Evaluation
    from millstream.consumers.rollout.record import RolloutRecord
    from millstream.pipeline.pipeline import Pipeline
    from millstream.topics.since_reader import Fetched

log = logging.getLogger(__name__)

MOST_RECORDS: Final = 5000  # of one read
_WAIT: Final = 0.1  # seconds that one read waits for records
_FETCHED: Final = 0.25  # seconds after which fetches on their way have ended: each waits for 0.1 s at most
REFRESH_EVERY: Final = 60.0  # seconds between two looks for new partitions


@dataclass(frozen=True, slots=True)
class _Undone:
    """Records that are not decoded yet."""

    topic: str
    intake: Callable[[Fetched], Rows]
    add: Callable[[Rows], None]
    fetched: Fetched


class StepEvaluator:
    """Reads a step's topics from its beginning, without a group, and says what they show. For one thread.

    A new step (another epoch) needs a new evaluator. A record of the same epoch (such as a pause) does not.
    """

    def __init__(self, pipeline: Pipeline, record: RolloutRecord) -> None:
        """Connect, and read a sample of the events before the step if the drift of inputs is watched.

        Args:
            pipeline: with the section `rollout`.
            record: the rollout's newest record.

        Raises:
            EvaluationError: the record is of another pipeline, or has no candidate.
            PlanError: the classes of a model of several classes are not known.
            BrokerUnreachableError: no broker answers.
            TopicError: a topic is missing, other than that of the labels.
            SchemaUnavailable: the registry does not answer.
        """
        self._pipeline, self._store = pipeline, open_store(pipeline)
        steps = read_figures(pipeline, self._store).steps
        settings = step_settings(pipeline, record)
        self._earlier = earlier_ratios(steps, record.rollout, settings.epoch)
        self._most_before = most_before(settings, steps)
        settings = replace(settings, last_shared=last_shared(settings, steps))
        self._reference: Reference | None = None
        self._label_topic = "" if pipeline.labels is None else pipeline.labels.topic
        self._open(settings)

    def _open(self, settings: StepSettings) -> None:
        """Begin to read. If that fails, nothing has changed. Raises as the constructor."""
        pipeline, store = self._pipeline, self._store
        state = StepState(settings, self._earlier)
        predictions = PredictionIntake(state, store, pipeline.output.format)
        intakes: dict[str, Callable[[Fetched], Rows]] = {}
        if settings.paired:
            intakes[pipeline.comparison.topic] = ComparisonIntake(state, store).rows
        else:
            intakes[pipeline.output.topic] = predictions.rows
            intakes[pipeline.dead_letters.topic] = LetterIntake(state, store).rows
        client = pipeline.client_config()
        events = SinceReader(client, dict.fromkeys(intakes, settings.begin))
        try:
            if settings.fields and self._reference is None:
                self._reference = read_reference(client, pipeline.output.topic, settings, predictions.reference)
            state.reference = self._reference
            labels = None if pipeline.labels is None else LabelReading(pipeline, settings, store)
        except BaseException:
            events.close()
            raise
        self.settings, self.state = settings, state
        self.intakes = intakes  # by topic, except for the labels
        self._events, self._labels = events, labels
        self._undone = deque[_Undone]()
        self._refreshed = time.monotonic()

    def advance(self, timeout: float) -> int:
        """Read what is there. Returns the number of records read; 0 at the end of all topics.

        Args:
            timeout: seconds that it may take. It returns sooner at the end of the topics, and where records keep coming, when it
                has read those from before the call.

        Raises:
            TopicError: a topic can't be read any more, other than that of the labels.
            SchemaUnavailable: the registry does not answer. The next call goes on with the same records.
        """
        self._refresh()
        begun, now_ms, count = time.monotonic(), time.time() * 1000, 0
        while True:
            self._take_undone()
            found = self._read_events() + self._read_labels()
            self._take_undone()
            count += found
            self.state.read_until = self._read_until()
            if self.state.held.is_due():
                self.state.held.settle(self.state.read_until)
            passed = time.monotonic() - begun
            is_read = self._is_at_end() if not found else passed >= _FETCHED and self.read_until >= now_ms
            if passed >= timeout or (is_read and not self._read_further_back()):
                return count

    @property
    def behind(self) -> int:
        """Records that are not read yet, as far as the broker has said. A decision should wait until it is 0."""
        return self._events.behind + (0 if self._labels is None else self._labels.behind)

    @property
    def read_until(self) -> int:
        """All events and labels before this time were read, ms since the epoch; at most now.

        Evaluate as of this time: an event that matured after it may have a label that is not read yet.
        """
        events = self._read_until()
        return events if self._labels is None else int(max(min(events, self._labels.read_until), 0))

    @property
    def label_problem(self) -> str:
        """Why labels can't be read, without a full stop; then nothing is known of quality. Empty: they can, or there are none."""
        return "" if self._labels is None else self._labels.problem

    @property
    def arrivals(self) -> Arrivals:
        """Which events came since the step began."""
        return self.state.arrivals

    def evaluation(self, now: int, candidate: int = 1) -> Evaluation:
        """What strategies decide on.

        Args:
            now: ms since the epoch.
            candidate: index in the record's variants; only bandits have several.
        """
        return self.state.evaluation(now, candidate)

    def rewards(self, after: int, until: int) -> tuple[Rewards, ...]:
        """The rewards of each variant that matured after one time and until another, ms since the epoch. For bandits.

        If lower rewards are better, they are negated: for a bandit, more is better.
        """
        return self.state.rewards(after, until)

    def figures(self, now: int) -> StepFigures:
        """All that is known, for people and for `rollout.evaluations`. `now`: ms since the epoch."""
        return self.state.figures(now, self.behind)

    def close(self) -> None:
        """Close the connections."""
        _close(self._events, self._labels)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read_further_back(self) -> bool:
        """At 100 %, begin anew with a longer time before the step, if the baseline has too few events in what was read."""
        before = next_before(self.settings, self._most_before, self.state.events_before)
        if before <= self.settings.before:
            return False
        events, labels = self._events, self._labels
        self._open(replace(self.settings, before=before))
        _close(events, labels)
        return True

    def _read_events(self) -> int:
        found = self._events.read(MOST_RECORDS, _WAIT)
        self._undone += [
            _Undone(topic, self.intakes[topic], self.state.held.add, fetched) for topic, fetched in found.items()
        ]
        return sum(map(len, found.values()))

    def _read_labels(self) -> int:
        labels = self._labels
        if labels is None:
            return 0
        timeout = _WAIT if self._events.is_at_end else 0
        found = labels.read(MOST_RECORDS, timeout, self._events.read_until + self.settings.early)
        add = self.state.held.add_labels
        self._undone += [_Undone(self._label_topic, labels.rows, add, fetched) for fetched in found]
        return sum(map(len, found))

    def _take_undone(self) -> None:
        """Decode what was fetched. If a schema can't be had, the records stay for the next time."""
        while self._undone:
            undone = self._undone[0]
            broken: list[str] = []
            for rows in _rows(undone.intake, undone.fetched, broken):
                undone.add(rows)
            if broken:
                self.state.unreadable += len(broken)
                log.error(
                    "evaluation: %d of %d records of topic %s break the decoder; the first one at %s",
                    *(len(broken), len(undone.fetched), undone.topic, broken[0]),
                )
            self._undone.popleft()

    def _read_until(self) -> int:
        return int(max(min(self._events.read_until, time.time() * 1000), 0))

    def _is_at_end(self) -> bool:
        return self._events.is_at_end and (self._labels is None or self._labels.is_at_end)

    def _refresh(self) -> None:
        if time.monotonic() - self._refreshed >= REFRESH_EVERY:
            self._refreshed = time.monotonic()
            for reader in (self._events, self._labels):
                if reader is not None:
                    reader.refresh()


def _close(events: SinceReader, labels: LabelReading | None) -> None:
    events.close()
    if labels is not None:
        labels.close()


def _rows(intake: Callable[[Fetched], Rows], fetched: Fetched, broken: list[str]) -> list[Rows]:
    """The rows of records. A record that breaks the decoder is left out alone; `broken` gets its place and the error."""
    try:
        return [intake(fetched)]
    except SchemaUnavailable:
        raise
    except Exception as error:
        if len(fetched) == 1:
            broken.append(f"partition {fetched.partitions[0]}, offset {fetched.offsets[0]}: {error!r}")
            return []
        middle = len(fetched) // 2
        parts = fetched.part(0, middle), fetched.part(middle, len(fetched))
        return [rows for part in parts for rows in _rows(intake, part, broken)]
