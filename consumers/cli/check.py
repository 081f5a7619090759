"""`millstream check`: finds all mistakes that would stop a worker at its start, without starting one, and tells them together."""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from textwrap import indent
from typing import Any, cast

from rich.console import Console

from millstream.consumers.cli.extras import needs_comparison
from millstream.consumers.cli.given import read_pipeline
from millstream.consumers.cli.say import say, with_pipeline
from millstream.consumers.control.topic import open_reader, require_control_topic, require_known
from millstream.consumers.decode.named_fields import check_labels, schema_of
from millstream.consumers.errors import NEEDS_CHANGE, WorkerError
from millstream.consumers.models.loadable import refuse_unloadable
from millstream.consumers.models.pipeline_models import PipelineModels
from millstream.consumers.observability.lag_metrics import reader_of
from millstream.consumers.problems import Problems
from millstream.consumers.scaffold.expected_config import expected_config
from millstream.consumers.scaffold.inspection import look_at
from millstream.consumers.schema_store import open_store
from millstream.consumers.shadow.compared_output import (
    answers_to_blank_event,
    check_compared_answers,
    check_compared_output,
    check_named_classes,
)
from millstream.consumers.shadow.shadow_plan import live_shadows, why_left_out
from millstream.consumers.source.past_end import Past, refuse_past_end
from millstream.consumers.worker.clients import has_quota
from millstream.consumers.worker.diagnosis import diagnose
from millstream.consumers.worker.plan import Plan, check_answers, make_plan
from millstream.consumers.worker.rollout_following import with_baseline
from millstream.inference.combined.combination import Route
from millstream.inference.combined.version import CombinedExecutor, CombinedVersion
from millstream.inference.errors import ExecutorUnavailable, ModelRejected
from millstream.inference.executors.blocking import BlockingExecutor
from millstream.inference.executors.interface import ModelExecutor, Tensors
from millstream.inference.repository import CONFIG_FILE, ModelVersion, no_versions_in
from millstream.inference.signature import TensorInput, TensorOutput, blank
from millstream.inference.version_number import LARGEST_VERSION
from millstream.pipeline.comparison_sections import Shadow as ShadowSection
from millstream.pipeline.conditions import joined
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.avro.types import kind_of, nullable, record_tree
from millstream.schemas.directory import DirectoryStore
from millstream.schemas.errors import SchemaError
from millstream.schemas.lookup_columns import looked_up
from millstream.schemas.paths import Step, parse_path, text_of
from millstream.schemas.store import AvroType
from millstream.schemas.wording import counted, first_of
from millstream.schemas.yaml_file import YamlError, advice_on_ending
from millstream.schemas.yaml_file import text_of as read_text
from millstream.topics.admin import Admin, cleanup_policy, is_embedded, no_settings, require
from millstream.topics.errors import TopicsError
from millstream.topics.group import refuse_foreign_group
from millstream.topics.permissions import needed_by_worker, require_permissions

MAX_NAMES = 3  # classes of an output, or folders, that are named
_ONLY_READ = (
    "comparison: without `shadows:` or `rollout:`, workers compare nothing: only `millstream replay` and `millstream report` use "
    "this section"
)
_INPUTS = re.compile(r"^(\{\s*)?[\"']?inputs[\"']?\s*:", re.MULTILINE)


class _Lines(Console):
    """Prints lines for as long as somebody reads them (`| head`). The check goes on in any case, for its exit code."""

    def on_broken_pipe(self) -> None:
        """Drop what follows; the base class then ends the process."""
        with suppress(SystemExit):
            super().on_broken_pipe()


def run(args: argparse.Namespace) -> int:
    """Check all parts; returns 0 if a worker would start. It tells the problems of all parts together.

    Returns 3 if all is well but the model's server, which refuses each blank event.
    """
    console = _Lines(highlight=False, soft_wrap=True)
    pipeline = read_pipeline(args)
    console.print(f"pipeline  {pipeline.name} ({pipeline.path})", markup=False)
    problems, first = Problems(), Problems()
    plan = refusal = None
    with first:
        plan = make_plan(pipeline)
        refusal = _tell_plan(plan, console)
    if plan is None:
        diagnose(pipeline, problems)
    for message in first.messages:  # behind what may be its cause
        problems.add(message)
    with problems:
        if warning := check_labels(pipeline, open_store(pipeline)):
            console.print(f"labels    {warning}", markup=False)
    if plan is not None:
        _check_lookups(plan, console, problems, offline=args.offline)
    if "comparison" in pipeline.model_fields_set and not pipeline.shadows and pipeline.rollout is None:
        console.print(f"note      {_ONLY_READ}", markup=False)
    for line in _rollout_lines(pipeline):
        console.print(f"rollout   {line}", markup=False)
    with problems:
        _tell_topics(pipeline, console, offline=args.offline)
    if problems.messages:
        for text in _expected_configs(pipeline, problems):
            console.print(text, markup=False)
        # Last, so that the problems are what the user sees first.
        print(with_pipeline("\n".join(problems.messages), args), file=sys.stderr, flush=True)
        return 1
    if refusal is not None and plan is not None and plan.model.executor == "kserve":
        # A refusal by the model looks the same as one by a server that can't read the request.
        print(
            f"{plan.model.place}: expected an answer to a blank event in the warm-up, found a refusal: {refusal}. Check that the "
            f"server takes the inputs of config.yaml. If only the model refuses blank events, try real ones with `millstream "
            f"predict`.",
            file=sys.stderr,
            flush=True,
        )
        return NEEDS_CHANGE
    assert plan is not None  # otherwise there is a problem
    console.print(_verdict(plan, refusal), markup=False)
    return 0


def _verdict(plan: Plan, refusal: ModelRejected | None) -> str:
    """Whether a worker would start, and be of use. `refusal`: the model's error, if it rejects blank events."""
    if refusal is not None:
        unsure = "unsure    a worker would start, but the model rejects blank events: send a real one to see whether it works"
        if plan.model.signature.max_length is None or plan.model.executor not in {"onnx", "torch"}:
            return unsure
        single = (
            "A model that was exported for a single length does so (`millstream docs models#variable-length-inputs`)"
        )
        return f"{unsure}. {single}"
    for name, executor in _executors(plan):
        if failed := _failed_sizes(executor):
            most = max((size for size in executor.batch_sizes if size < failed[0]), default=1)
            return (
                f"unsure    a worker would start, but {name} takes no {', '.join(map(str, failed))} blank events at once. If it "
                f"takes no real ones either, a worker splits each batch until its parts have at most {counted(most, 'event')}, "
                f"which is slow: correct the model, or write `max_events: {most}` under `batch:`"
            )
    return "ok        a worker would start"


def _executors(plan: Plan) -> Sequence[tuple[str, ModelExecutor]]:
    """How a message names each model, and its executor."""
    members = cast("CombinedExecutor", plan.executor).members if isinstance(plan.model, CombinedVersion) else ()
    return [(member.model.place, member.executor) for member in members] or [("the model", plan.executor)]


def _names(output: TensorOutput, answer: Tensors | ModelRejected) -> str:
    """The names that an output has in predictions. Only an answer tells scores of classes from the index of one."""
    if isinstance(answer, ModelRejected):
        return ", ".join(output.sure_names) or f"{output.name} or {_first(output.names[1:])}"
    return _first([name for name in output.names if name in answer])


def _first(names: Sequence[str]) -> str:
    return ", ".join([*names[:MAX_NAMES], *["..."] * (len(names) > MAX_NAMES)])


def _decision(output: TensorOutput) -> str:
    """Which of two classes a threshold decides on. Only a person sees whether the model's scores are of this class."""
    if output.threshold is None or not output.classes:
        return ""
    low, high = output.classes
    return f": `{high}` if the score of `{high}` is at least {output.threshold:g}, else `{low}`"


def _tell_plan(plan: Plan, console: Console) -> ModelRejected | None:
    """Print what a worker would run, and run the model. Returns the model's error if it rejects blank events."""
    pipeline = plan.pipeline
    console.print(f"schema    {_schema(plan)}", markup=False)
    if pipeline.input.filter:
        console.print(f"filter    {joined(pipeline.input.filter)}", markup=False)
    for line in (*_defaults(plan), *_mapping(plan)):
        console.print(line, markup=False)
    try:
        plan.executor.warm_up()
    except ExecutorUnavailable as away:
        raise WorkerError(f"{str(away).removesuffix('.')}. A worker waits until that works, and then begins.") from None
    answer = check_answers(plan)
    refusal = answer if isinstance(answer, ModelRejected) else None
    console.print(f"warm-up   {_ran(plan) if refusal is None else f'refused: {refusal}'}", markup=False)
    for output in plan.model.signature.outputs:
        console.print(f"output    {_names(output, answer)}, from {output.tensor}{_decision(output)}", markup=False)
    # A worker loads either the dedicated shadows or the others.
    live = live_shadows(pipeline, plan.model.id)
    sections = [section for section in pipeline.shadows if section not in live]
    shadows = [plan.models.shadow(section) for section in sections]
    for section in live:
        console.print(f"note      {why_left_out(pipeline, section)}", markup=False)
    for shadow in shadows:
        console.print(f"shadow    {shadow.place}", markup=False)
        for entry in shadow.signature.inputs:
            console.print(f"input     {_filling(entry)}", markup=False)
    for line in (*_other_orders(plan.model, shadows), *_beside_the_quota(plan, sections, shadows)):
        console.print(line, markup=False)
    check_compared_output(pipeline, [plan.model, *shadows])
    if shadows:
        _tell_compared(plan, shadows, refusal, console)
    return refusal


def _tell_compared(
    plan: Plan, shadows: Sequence[ModelVersion], refusal: ModelRejected | None, console: Console
) -> None:
    """Print which output is compared, if an answer shows it. Raises PlanError: the comparison doesn't fit the models."""
    if refusal is not None:
        check_named_classes(plan.pipeline, plan.model)  # `check_answers` doesn't, if all shadows are dedicated
        return
    answers = [plan.executor.run(blank(plan.model.signature.inputs, 1)), *answers_to_blank_event(shadows)]
    said = check_compared_answers(plan.pipeline, [plan.model, *shadows][: len(answers)], answers)
    console.print(f"compared  {said}", markup=False)


def _other_orders(primary: ModelVersion, shadows: Sequence[ModelVersion]) -> Iterator[str]:
    """A note for each output whose classes a shadow lists in another order than the primary."""
    orders = {output.name: output.classes for output in primary.signature.outputs}
    for shadow in shadows:
        for output in shadow.signature.outputs:
            order, other = orders.get(output.name, ()), output.classes
            if order != other and sorted(order) == sorted(other):
                yield (
                    f"note      output `{output.name}` has the same classes in two orders: {', '.join(order)} in "
                    f"{primary.place}; {', '.join(other)} in {shadow.place}. Each order must be that of the model's training: a "
                    f"wrong one swaps classes, and nothing else shows it"
                )


def _beside_the_quota(plan: Plan, sections: Sequence[ShadowSection], shadows: Sequence[ModelVersion]) -> Iterator[str]:
    """The shadows whose requests the primary's quota doesn't bound."""
    if not has_quota(plan):
        return
    for section, model in zip(sections, shadows, strict=True):
        if model.server is not None and model.server.is_there:
            yield (
                f"quota     shadow {section.name} sends its requests beside the quota of the primary, one at a time for each "
                f"worker. If it uses the same account, leave room for them (`millstream docs executors`)"
            )


def _tell_topics(pipeline: Pipeline, console: Console, *, offline: bool) -> None:
    """Print whether the topics can be used, and what the rollout's record says.

    Raises as `_topics`, `_record_notes` and `_check_offsets` do.
    """
    console.print(f"topics    {_topics(pipeline, offline=offline)}", markup=False)
    if offline:
        return
    if pipeline.rollout is not None:
        for line in _record_notes(pipeline):
            console.print(line, markup=False)
    _check_offsets(pipeline)


def _topics(pipeline: Pipeline, *, offline: bool) -> str:
    """Whether the topics and the group can be used. Raises TopicsError, ControlTopicError."""
    if offline:
        return "not checked (--offline)"
    admin = Admin(pipeline.client_config(), say)
    require(admin, pipeline)
    trial = f"{pipeline.group_id}-check" if pipeline.delivery == "exactly_once" else None
    require_permissions(admin, pipeline, needed_by_worker(pipeline), pipeline.group_id, trial)
    if pipeline.rollout is not None:
        require_control_topic(admin, pipeline)
    refuse_foreign_group(pipeline.client_config(), pipeline, pipeline.group_id)
    found = f"all exist on {pipeline.kafka.bootstrap}"
    return "\n          ".join([found, *_refusing(admin, pipeline)])


def _refusing(admin: Admin, pipeline: Pipeline) -> Iterator[str]:
    """A warning for each topic of results that takes no records without a key, or may refuse large ones."""
    if is_embedded(admin):  # it has no settings of topics
        return
    for topic in (pipeline.output.topic, pipeline.dead_letters.topic):
        policy = cleanup_policy(admin, topic)
        if policy is None:
            yield f"warning: {no_settings(topic)}"
        elif "compact" in policy:
            advice = "set its `cleanup.policy` to `delete`"
            yield f"warning: {topic} is compacted, so an event without a key ends the worker: {advice}"


def _check_offsets(pipeline: Pipeline) -> None:
    """Raise OffsetsPastEnd if partitions end below the group's offsets. If these can't be read, it says nothing."""
    past: Past = {}
    with suppress(TopicsError), closing(reader_of(pipeline)) as reader:
        past = reader.read_past_end()
    refuse_past_end(pipeline.group_id, past)


def _record_notes(pipeline: Pipeline) -> Sequence[str]:
    """Where the rollout's record says something else than the pipeline file.

    Raises:
        ControlTopicError, PlanError, ModelConfigError: a worker would not start with this record.
        SourceUnavailable: the model repository is away.
    """
    with open_reader(pipeline, open_store(pipeline)) as reader:
        reader.read_to_end()
        require_known(reader, pipeline)
        answering, record = with_baseline(pipeline, reader.record), reader.record
    if answering.wanted_version != pipeline.wanted_version:  # this command has not loaded it yet
        models = PipelineModels(answering)
        try:
            refuse_unloadable(answering, models.primary())
        finally:
            models.release()
    with suppress(ModuleNotFoundError):  # SciPy is an extra, and `_rollout_lines` says how to get it
        from millstream.consumers.cli.rollout_words import file_notes  # noqa: PLC0415

        return [] if record is None else file_notes(pipeline, record)
    return []


def _check_lookups(plan: Plan, console: Console, problems: Problems, *, offline: bool) -> None:
    """Ask the feature store as for an event, and print what it says."""
    for lookup in plan.decoder.lookups:
        said = "not checked (--offline)"
        with problems:
            said = said if offline else lookup.entities.check()
            console.print(f"look-up   {lookup.name}: {said}", markup=False)


def _ran(plan: Plan) -> str:
    """Where the warm-up ran, and with how many events. An executor of another package may know neither."""
    executor = plan.executor
    device = "a server" if isinstance(executor, BlockingExecutor) else getattr(executor, "device", plan.model.executor)
    failed = _failed_sizes(executor)
    ran = [size for size in getattr(executor, "batch_sizes", ()) if size not in failed]
    sizes = ran or [1]  # this command has run one event
    return f"runs on {device} with {', '.join(map(str, sizes))} event{'' if sizes == [1] else 's'}"


def _failed_sizes(executor: ModelExecutor) -> Sequence[int]:
    """The batch sizes that the warm-up could not run. An executor of another package doesn't tell."""
    warmed = getattr(executor, "warmed_sizes", None)
    return [] if warmed is None else [size for size in executor.batch_sizes if size not in warmed]


def _expected_configs(pipeline: Pipeline, problems: Problems) -> Iterator[str]:
    """For each model without a config.yaml that maps inputs: one that fits the model, if its file says what that is."""
    where = pipeline.model.repository
    if not isinstance(where, Path):  # what is wrong there must be corrected there
        return
    named = [pipeline.model] if pipeline.models is None else pipeline.models.members.values()
    versions = {*((model.name, model.version or 1) for model in named), *map(pipeline.shadow_model, pipeline.shadows)}
    for name, version in sorted(versions, key=str):
        file = where / name / str(version) / "model.onnx"
        config = file.with_name(CONFIG_FILE)
        is_told = any(str(config) in message for message in problems.messages)
        if not file.is_file() or not is_told or _maps_inputs(config) or advice_on_ending(config):
            continue
        with suppress(WorkerError):  # a file that can't be loaded is a problem that is told already
            text = expected_config(look_at(file), _top_fields(pipeline))
            yield f"\n{file} takes and gives this. Complete it, and write it to {config}:\n\n{indent(text, '    ')}"


def _maps_inputs(config: Path) -> bool:
    """Whether the file has the option `inputs`, even if the rest can't be read: then its user wants to keep it."""
    try:
        # To open a named pipe may take for ever.
        return config.is_file() and _INPUTS.search(read_text(config)) is not None
    except (OSError, YamlError):
        return False


def _top_fields(pipeline: Pipeline) -> list[str]:
    """The names of the event's fields; none if there is no schema, or it can't be read."""
    try:
        schema = schema_of(pipeline, open_store(pipeline), "input")
    except (WorkerError, SchemaError):
        return []
    definition = None if schema is None else schema.definition
    fields = definition.get("fields", []) if isinstance(definition, dict) else []
    return [str(field["name"]) for field in fields if isinstance(field, dict) and "name" in field]


def _schema(plan: Plan) -> str:
    """The schema of the events. If several files have its name, also their IDs, so that users see which one is used."""
    if plan.reader is None:
        checked = plan.pipeline.input.json_schema
        return (
            "none (events are JSON objects, of which the named paths are read)"
            if checked is None
            else f"JSON Schema {checked}"
        )
    ids = plan.store.ids_of(plan.reader.name) if isinstance(plan.store, DirectoryStore) else []
    listed = ", ".join(map(str, ids))
    several = f" (files with this name: {listed}; all events are read with the highest ID)" if len(ids) > 1 else ""
    return f"{plan.reader.name}, id {plan.reader.id}{several}"


def _defaults(plan: Plan) -> Iterator[str]:
    """The schema's defaults that the model gets, unnoticed, in place of fields that events lack."""
    if plan.reader is None:
        return
    tree, found = record_tree(plan.reader), dict[str, Any]()
    for entry in plan.model.signature.inputs:
        for field, _ in entry.reads:
            if looked_up(field) is None:
                found |= _defaults_along(parse_path(field).steps, tree)
    for path, default in found.items():
        yield (
            f"default   events without `{path}` get {default!r:.40}, the schema's default, and aren't counted as missing "
            f"(`millstream docs models#replaced-values`)"
        )


def _defaults_along(steps: Sequence[Step], tree: AvroType) -> Iterator[tuple[str, Any]]:
    """Each field on the way whose default isn't null: its path, and the default."""
    for place, step in enumerate(steps, 1):
        tree, _ = nullable(tree)
        kind = kind_of(tree)
        if kind in {"array", "map"}:
            tree = tree["items" if kind == "array" else "values"]
        elif kind == "record" and (own := [entry for entry in tree["fields"] if entry["name"] == step]):
            if own[0].get("default") is not None:
                yield text_of(steps[:place]), own[0]["default"]
            tree = own[0]["type"]
        else:
            return


def _mapping(plan: Plan) -> list[str]:
    signature = plan.model.signature
    return [
        f"model     {plan.model.place}",
        *(f"version   {resolved}" for resolved in _resolved(plan)),
        *(f"member    {member}" for member in _members(plan)),
        *(f"input     {_filling(entry)}" for entry in signature.inputs),
    ]


def _resolved(plan: Plan) -> Iterator[str]:
    """The versions that `latest` and aliases name at this moment."""
    pipeline, models = plan.pipeline, plan.models
    if pipeline.models is None:
        if isinstance(wanted := pipeline.wanted_version, str):
            yield f"{wanted} is version {models.fetch_primary().version} now; running workers follow it"
            yield from _ignored(models)
        return
    for place, named in pipeline.models.members.items():
        if isinstance(named.version, str):
            yield f"{named.version} of {named.name} is version {models.fetch_member(named, place).version} now"


def _ignored(models: PipelineModels) -> Iterator[str]:
    """Folders beside the versions that their owner may take for versions. Raises SourceUnavailable, ModelConfigError."""
    where = models.pipeline.model.repository
    names = models.source.read(partial(no_versions_in, where / models.name)) if isinstance(where, Path) else []
    if names:
        yield (
            f"ignored: {first_of(names, MAX_NAMES)}. A version is a number from 1 to {LARGEST_VERSION:,} without zeros in front"
        )


def _members(plan: Plan) -> Iterator[str]:
    """The models of a combination; those of a route with the places that choose them, as one version may be there twice."""
    if not isinstance(plan.model, CombinedVersion):
        return
    combination = plan.model.several
    for number, model in enumerate(combination.models):
        places = combination.choice.places(number) if isinstance(combination, Route) else []
        yield f"{model.place}{', by ' * bool(places)}{first_of(places, MAX_NAMES)}"


def _filling(entry: TensorInput) -> str:
    shape = f"up to {entry.max_length} items" if entry.max_length else str(list(entry.shape))
    source = "a mask" if entry.mask else "token types" if entry.token_types else f"from {', '.join(entry.sources)}"
    return f"{entry.tensor}: {entry.dtype} {shape} per event, {source}"


def _rollout_lines(pipeline: Pipeline) -> Sequence[str]:
    if pipeline.rollout is None:
        return ()
    try:
        from millstream.consumers.cli.rollout_words import rollout_lines  # noqa: PLC0415  (SciPy is an extra)
    except ModuleNotFoundError as error:
        return (needs_comparison("millstream rollout", error),)
    return rollout_lines(pipeline)
