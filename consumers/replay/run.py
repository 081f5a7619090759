"""A replay from its beginning to its comparison."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from millstream.consumers.control.errors import ControlTopicError
from millstream.consumers.control.topic import open_reader
from millstream.consumers.decode.named_fields import override_fields, schema_of
from millstream.consumers.errors import WorkerError
from millstream.consumers.models.pipeline_models import PipelineModels
from millstream.consumers.replay.answered_ids import AnsweredIds
from millstream.consumers.replay.answers import Answering, first_event, scored_by
from millstream.consumers.replay.buckets import Buckets
from millstream.consumers.replay.build import Running, build_replay
from millstream.consumers.replay.evaluated import LABELS, OTHER, PRIMARY, Windows, evaluate, sampled
from millstream.consumers.replay.filling import Filling
from millstream.consumers.replay.folder import About, ReplayFolder
from millstream.consumers.replay.predictions import LabelRows, PredictedRows, PredictionDecoder
from millstream.consumers.replay.replayed import as_replayed, group_of, read_by
from millstream.consumers.replay.routing_check import RoutingCheck
from millstream.consumers.schema_store import open_store
from millstream.consumers.shadow.compared_classes import compared_classes_of
from millstream.consumers.shadow.compared_output import MAX_NAMED, check_compared_answers, check_score
from millstream.consumers.source.range_reader import RangeReader
from millstream.consumers.worker.plan import Plan, answer_blank, make_plan
from millstream.inference.errors import ModelConfigError, ModelRejected, SourceUnavailable
from millstream.schemas.decoding import open_decoder
from millstream.schemas.wording import first_of
from millstream.topics.admin import Admin, ensure, largest_records, roles, states
from millstream.topics.permissions import needed_by_replay, require_permissions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.consumers.records import Records
    from millstream.consumers.replay.evaluated import Evaluated
    from millstream.consumers.replay.folder import Progress
    from millstream.consumers.replay.replayed import Request
    from millstream.consumers.replay.row_sink import RowSink
    from millstream.consumers.resilience.limited_retry import LimitedRetry
    from millstream.pipeline.pipeline import Pipeline

END_OF_TIME: Final = 1 << 60  # ms since the epoch, after all records
SAMPLE: Final = 500  # predictions among which one is looked for, to see the outputs


@dataclass(frozen=True, slots=True)
class Late:
    """How long after the last event its prediction and its label are looked for, ms."""

    predictions: int
    labels: int
    early: int  # how long before the first event a label is looked for


@dataclass(frozen=True, slots=True)
class Compared:
    """A replay's result."""

    about: About
    progress: Progress
    evaluated: Evaluated
    models: tuple[str, ...]  # of all predictions that were read, by their numbers
    segments: tuple[str, ...] = ()  # the values of the segments' field, by their numbers
    segment_field: str | None = None
    routing: RoutingCheck | None = None  # None: no prediction was routed by a rollout

    @property
    def predicted_by(self) -> list[str]:
        """The models that predicted some of the replayed events: predictions of other times are read, too."""
        return [self.models[number] for number in sorted(self.evaluated.models)]


class Replay:
    """One replay. The caller holds the folder's lock, and calls `prepare`, `running` and `compare` in this order."""

    def __init__(
        self,
        pipeline: Pipeline,
        request: Request,
        folder: ReplayFolder,
        late: Late,
        retry: LimitedRetry,
    ) -> None:
        """Args:
        pipeline: the pipeline, as its file says.
        request: what is to be replayed.
        folder: stores the results.
        late: how long predictions and labels may take.
        retry: waits while the schema registry is away.
        """
        self._pipeline = pipeline
        self._request = request
        self._folder = folder
        self._late = late
        self._retry = retry
        self._classes = compared_classes_of(pipeline)
        self._group = group_of(pipeline, request)
        self._store = open_store(pipeline)

    def prepare(self) -> tuple[Plan, About]:
        """Load the model, find the events, and check all that can be checked before the first one is read.

        Raises:
            WorkerError, ModelConfigError, SchemaError, TopicsError: the version can't be replayed; the message says why.
        """
        pipeline, request = self._pipeline, self._request
        require_permissions(
            Admin(pipeline.client_config()),
            pipeline,
            needed_by_replay(pipeline, request.output),
            self._group,
            None if request.output is None else self._group,
        )
        plan = make_plan(as_replayed(pipeline, request))
        outputs = self._outputs(plan)
        about = self._folder.read_about()
        if about is None:
            about = self._about(outputs)
            self._folder.write_about(about)
        if about.output is not None:
            self._prepare_output(about.output)
        return plan, about

    def begin_anew(self) -> None:
        """Delete the results of an earlier run. Raises WorkerError: a topic has its predictions, too."""
        about = None
        with suppress(WorkerError):  # the description is damaged: nobody knows the topic
            about = self._folder.read_about()
        topic = about.output if about is not None and self._folder.progress().chunks else None
        if topic is not None and (records := self._records_in(topic)):
            raise WorkerError(
                f"--anew: topic {topic} has {records:,} records, with predictions of the earlier run: its readers would see them "
                f"twice. Name another topic with --output, which begins anew, too; or delete this one first."
            )
        self._folder.clear()

    def _records_in(self, topic: str) -> int:
        """Offsets between the ends of a topic's partitions; 0 if there is no such topic."""
        admin = Admin(self._pipeline.client_config())
        [state] = states(admin, [("replay", topic)])
        if state.partitions is None:
            return 0
        reader = RangeReader(self._pipeline.client_config(), self._group)
        try:
            return sum(end - start for start, end in reader.ranges((topic,), 0, END_OF_TIME).values())
        finally:
            reader.close()

    def refuse_changed(self, about: About) -> None:
        """Refuse results that were made with other settings. Raises WorkerError."""
        scored, read = scored_by(self._pipeline.comparison, self._classes), self._read_by()
        for place, now, then in (
            (self._pipeline.at("comparison"), scored, about.scored_by),
            (str(self._pipeline.named), read, about.read_by),
        ):
            if changed := [name for name, value in now.items() if value != then.get(name, value)]:
                raise WorkerError(
                    f"{place}: expected {_settings(then, changed)}, as when the results in {self._folder.path} were made; found "
                    f"{_settings(now, changed)}. Change it back, add --anew to delete these results and begin anew, or keep them "
                    f"and name another folder with --state."
                )

    def _read_by(self) -> dict[str, Any]:
        """The present settings; empty if the version is gone, as it may be when a complete replay is compared again."""
        replayed = as_replayed(self._pipeline, self._request)
        try:
            return read_by(replayed, PipelineModels(replayed).primary())
        except (ModelConfigError, SourceUnavailable):
            return {}

    def refuse_unclear(self, about: About) -> None:
        """Refuse a complete replay for what `prepare` refuses by the compared output. Raises PlanError."""
        check_score(as_replayed(self._pipeline, self._request), about.compared)

    def _outputs(self, plan: Plan) -> dict[str, Any] | None:
        """What the model answers to a blank event; None: it rejects it. Raises PlanError: it lacks the compared output."""
        try:
            answers = answer_blank(plan.model, plan.executor)
        except ModelRejected:
            return None
        check_compared_answers(self._pipeline, [plan.model], [answers])
        return first_event(answers)

    def _about(self, own: dict[str, Any] | None) -> About:
        pipeline, request = self._pipeline, self._request
        reader = RangeReader(pipeline.client_config(), self._group)
        try:
            ranges = reader.ranges(pipeline.input.topics, request.start, request.end)
            if not any(start < end for start, end in ranges.values()):
                raise WorkerError(
                    f"no event is in this range of time: {', '.join(pipeline.input.topics)} has no record with such a timestamp "
                    f"(any more). It is the timestamp of the record that counts, in UTC."
                )
            reader.begin(self._predictions(reader))
            theirs = next(self._some(reader), None)
        finally:
            reader.close()
        first = theirs or own or {}
        answering = Answering.of(pipeline.comparison, self._classes, first, own or first)
        return About(
            pipeline=pipeline.name,
            model=pipeline.model.name,
            version=request.version,
            start=request.start,
            end=request.end,
            output=request.output,
            compared=answering.output,
            scored_by=scored_by(pipeline.comparison, self._classes),
            group=self._group,
            ranges=ranges,
            read_by=self._read_by(),
        )

    def _predictions(self, reader: RangeReader) -> dict[tuple[str, int], tuple[int, int]]:
        return reader.ranges(
            (self._pipeline.output.topic,), self._request.start, self._request.end + self._late.predictions
        )

    def _some(self, reader: RangeReader) -> Iterator[dict[str, Any]]:
        """The outputs of some predictions."""
        decoder = PredictionDecoder(self._store, self._pipeline.name)
        read = 0
        for records in reader:
            found = self._retry.call(partial(_decoded, decoder, records))
            yield from (prediction["outputs"] for _, prediction in found)
            read += len(records)
            if read >= SAMPLE:
                return

    def _prepare_output(self, topic: str) -> None:
        """Create the topic if it isn't there. Raises TopicsError, WorkerError: it is a topic of the pipeline."""
        pipeline = self._pipeline
        for role, name in roles(pipeline):
            if name == topic:
                raise WorkerError(
                    f"--output {topic}: this is the pipeline's own topic ({role}). A replay never writes there: name another one."
                )
        admin = Admin(pipeline.client_config())
        live, own = states(admin, [("output", pipeline.output.topic), ("replay", topic)])
        if own.partitions is None:
            ensure(admin, {topic: {}}, partitions=live.partitions or 1, replication=live.replication_factor or 1)

    def running(self, plan: Plan, about: About, on_turn: Callable[[int, RowSink], object]) -> Running:
        """Create what runs the events. `on_turn`: see `build_replay`."""
        limits = {}
        if about.output is not None:
            topics = (about.output, plan.pipeline.dead_letters.topic)
            limits = largest_records(Admin(plan.pipeline.client_config()), topics)
        return build_replay(
            plan,
            about,
            self._folder,
            self._answering(about),
            RangeReader(plan.pipeline.client_config(), about.group),
            rate=self._request.rate,
            limits=limits,
            on_turn=on_turn,
        )

    def _answering(self, about: About) -> Answering:
        return Answering(about.compared, self._pipeline.comparison.item, self._classes)

    def compare(self, about: About, say: Callable[[str, int], object], segment: str | None = None) -> Compared:
        """Compare what the folder has with the predictions and the labels of the topics.

        Args:
            about: the replay.
            say: gets what is read, and how many records so far.
            segment: the field of the event, which predictions include, by whose values events are also compared.
        """
        pipeline, progress = self._pipeline, self._folder.progress()
        width = round(pipeline.comparison.window * 1000)
        windows = Windows.of(sampled(self._folder.rows()), width)
        # Predictions are also read of later times, for events that waited. The routing is checked of the replayed events only.
        answered = None if pipeline.rollout is None else AnsweredIds.of(self._folder.rows(), progress.answered)
        routing = self._routing_check(1 if answered is None else answered.every)
        decoder = PredictionDecoder(self._store, pipeline.name)
        predicted = PredictedRows(decoder, self._answering(about), segment, routing=routing, answered=answered)
        labelled = LabelRows(pipeline, self._store, self._classes) if pipeline.labels is not None else None
        reader = RangeReader(pipeline.client_config(), self._group)
        try:
            with Buckets(progress.answered, self._folder.path) as buckets:
                for rows in self._folder.rows():
                    buckets.add(OTHER, rows)
                filling = Filling(reader, buckets, self._retry, say)
                filling.add(self._predictions(reader), "predictions", {PRIMARY: predicted.rows})
                if labelled is not None:
                    filling.add(self._labels(reader), "labels", {LABELS: labelled.rows})
                found = evaluate(
                    pipeline.comparison,
                    buckets,
                    windows,
                    models=True,
                    segments=segment is not None,
                )
                found.bad_labels = 0 if labelled is None else labelled.bad
        finally:
            reader.close()
        return Compared(
            about,
            progress,
            found,
            tuple(predicted.models),
            tuple(predicted.segments),
            segment,
            routing if routing.seen else None,
        )

    def _routing_check(self, every: int) -> RoutingCheck:
        """A check by all records of the rollout that the control topic still has."""
        if self._pipeline.rollout is None:
            return RoutingCheck.of([], every)
        try:
            with open_reader(self._pipeline, self._store) as reader:
                seen = self._retry.call(reader.read_to_end)
        except ControlTopicError as error:
            return RoutingCheck.of([], every, problem=str(error))
        records = [each.record for each in seen if each.record is not None and each.counts]
        return RoutingCheck.of(records, every, singles=self._retry.call(self._single_fields))

    def _single_fields(self) -> frozenset[str]:
        """The fields of overrides that are floats of 32 bits in the events. Raises SchemaError."""
        pipeline, schema = self._pipeline, schema_of(self._pipeline, self._store, "input")
        fields = dict.fromkeys(override_fields(pipeline), "mixed")
        if schema is None or not fields:
            return frozenset()
        columns = open_decoder(pipeline.input.format, self._store, schema, fields).columns
        return frozenset(name for name in fields if columns[name] == "float32")

    def _labels(self, reader: RangeReader) -> dict[tuple[str, int], tuple[int, int]]:
        assert self._pipeline.labels is not None
        start, end = self._request.start - self._late.early, self._request.end + self._late.labels
        return reader.ranges((self._pipeline.labels.topic,), max(start, 0), end)


def _settings(settings: dict[str, Any], names: list[str]) -> str:
    """These settings in words."""
    return ", ".join(
        f"no `{name}`"
        if (value := settings[name]) is None
        else f"`{name}: {first_of(value, MAX_NAMED) if isinstance(value, list) else value}`"
        for name in names
    )


def _decoded(decoder: PredictionDecoder, records: Records) -> list[tuple[int, dict[str, Any]]]:
    return list(decoder.decode(records.values))
