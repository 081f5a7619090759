"""Finds values of a pipeline file that are valid alone, but not together."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.pipeline.client_properties import unsafe_values
from millstream.pipeline.client_trial import (
    LONGEST_TRANSACTION_MS,
    TRANSACTION_TIMEOUT_MS,
    client_refusals,
    numbers_with_units,
)
from millstream.pipeline.feature_store_conflicts import feature_store_conflicts
from millstream.pipeline.repository import mlflow_url
from millstream.pipeline.rollout_conflicts import rollout_conflicts
from millstream.schemas.wording import Loc, dotted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from millstream.pipeline.model_sections import Ensemble
    from millstream.pipeline.pipeline import Pipeline
    from millstream.pipeline.yaml_places import Document

_ROLES = {"primary", "canary"}

MIN_GPU_MEMORY = 64 * 2**20  # bytes; less has a wrong unit


def conflicts(pipeline: Pipeline, document: Document) -> Iterator[tuple[Loc, str]]:
    """Yield the places of values that are valid alone, but not together."""

    def written(*places: Loc) -> Loc:
        """Return the first place that is in the file; if none is, the first one."""
        return next((place for place in places if place in document.lines), places[0])

    inputs = written(("input", "topics"), ("input", "topic"))
    letters = pipeline.dead_letters.topic
    if pipeline.output.topic in pipeline.input.topics:
        yield inputs, f"{pipeline.output.topic} is also output.topic: the pipeline would read its own predictions."
    if letters in pipeline.input.topics:
        yield inputs, f"{letters} is also dead_letters.topic: the pipeline would read its own dead letters."
    if pipeline.output.topic == letters:
        yield (
            written(("dead_letters", "topic"), ("output", "topic")),
            f"{letters} is output.topic and dead_letters.topic. Give dead letters a topic of their own.",
        )
    for topic in sorted(set(pipeline.input.weights) - set(pipeline.input.topics)):
        yield (
            written(("input", "weights", topic), ("input", "weights")),
            f"expected topics of input.topics ({', '.join(pipeline.input.topics)}), found {topic}.",
        )
    if pipeline.limits.in_flight_events < 2 * pipeline.batch.max_events:
        yield (
            written(("limits", "in_flight_events"), ("batch", "max_events")),
            f"limits.in_flight_events ({pipeline.limits.in_flight_events}) must be at least twice batch.max_events "
            f"({pipeline.batch.max_events}): one batch runs while the next one fills.",
        )
    if pipeline.limits.in_flight_bytes < 8 * pipeline.batch.max_bytes:
        yield (
            written(("limits", "in_flight_bytes"), ("batch", "max_bytes")),
            f"limits.in_flight_bytes ({pipeline.limits.in_flight_bytes} bytes) must be at least 8 times batch.max_bytes "
            f"({pipeline.batch.max_bytes} bytes): one batch runs while the next one fills.",
        )
    if pipeline.membership.static and pipeline.membership.protocol == "consumer":
        yield (
            ("membership", "static"),
            "expected false with `protocol: consumer`: the broker would refuse a worker restarted before its session timed out.",
        )
    if pipeline.scaling.max is not None and pipeline.scaling.max < pipeline.scaling.min:
        yield (
            written(("scaling", "max"), ("scaling", "min")),
            f"scaling.max ({pipeline.scaling.max}) must be at least scaling.min ({pipeline.scaling.min}).",
        )
    yield from _schema_conflicts(pipeline)
    yield from _commit_conflicts(pipeline)
    yield from _batch_conflicts(pipeline)
    yield from _model_conflicts(pipeline)
    yield from _several_models_conflicts(pipeline)
    yield from _registry_conflicts(pipeline)
    yield from feature_store_conflicts(pipeline)
    yield from _shadow_conflicts(pipeline, document)
    yield from rollout_conflicts(pipeline)
    yield from _client_conflicts(pipeline, document)


def _schema_conflicts(pipeline: Pipeline) -> Iterator[tuple[Loc, str]]:
    sections = {"input": pipeline.input, "labels": pipeline.labels}
    for name, section in sections.items():
        if section is not None and section.format == "avro" and section.schema_name is None:
            yield (
                (name, "schema"),
                "expected the name of a schema, found nothing: Avro can't be read without one. Write it, or `format: json` "
                "if the values are JSON.",
            )
    wanted = pipeline.input.json_schema
    if wanted is not None and pipeline.input.format != "json":
        yield (
            ("input", "json_schema"),
            "expected `format: json` beside it, found avro. Leave it out: Avro records have a schema already.",
        )
    elif wanted is not None and not wanted.endswith(".json") and pipeline.schemas.registry is None:
        yield (
            ("input", "json_schema"),
            f"expected a file whose name ends in .json, or schemas.registry for the subject {wanted}, found neither. Correct it.",
        )
    if pipeline.input.event_time_format is not None and pipeline.input.event_time is None:
        yield (
            ("input", "event_time_format"),
            "expected input.event_time beside it, found none. Write both, or leave this out: the record's timestamp counts.",
        )


def _commit_conflicts(pipeline: Pipeline) -> Iterator[tuple[Loc, str]]:
    longest = LONGEST_TRANSACTION_MS / 1000
    if pipeline.delivery == "exactly_once" and pipeline.commit_seconds > longest:
        yield (
            ("commit_every",),
            f"expected at most {longest:g}s with exactly_once, found {pipeline.commit_seconds:g}s: the broker ends a transaction "
            f"that is open for {TRANSACTION_TIMEOUT_MS / 1000:g}s. Commit more often.",
        )


def _batch_conflicts(pipeline: Pipeline) -> Iterator[tuple[Loc, str]]:
    batch, at_once = pipeline.batch, pipeline.delivery == "at_least_once"
    if (batch.cost is None) != (batch.max_cost is None):
        there, missing = ("max_cost", "cost") if batch.cost is None else ("cost", "max_cost")
        yield (
            ("batch", there),
            f"batch.cost and batch.max_cost go together, batch.{missing} is not there. Write both or none.",
        )
    if batch.target_p99 is not None and not at_once and batch.target_p99 <= pipeline.commit_seconds:
        yield (
            ("batch", "target_p99"),
            f"expected more than commit_every ({pipeline.commit_seconds * 1000:g}ms): with exactly_once readers see a result at "
            f"a commit only. Give it more, or commit more often.",
        )


def _model_conflicts(pipeline: Pipeline) -> Iterator[tuple[Loc, str]]:
    model, section = pipeline.model, "model" if pipeline.models is None else "models"
    if model.gpu_memory is not None and model.device == "cpu":
        yield (
            (section, "gpu_memory"),
            "expected a `device` other than cpu beside it. Leave one of the two options out.",
        )
    if model.gpu_memory is not None and model.gpu_memory < model.instances * MIN_GPU_MEMORY:
        yield (
            (section, "gpu_memory"),
            f"expected at least 64MiB for each of the copies (instances: {model.instances}), found {model.gpu_memory:,} bytes. "
            f"Write more, such as 4GiB.",
        )
    url = mlflow_url(model.repository)
    if pipeline.models is None and url is not None and url.version is not None and model.version is not None:
        yield (
            (section, "version"),
            f"model.repository ({model.repository}) names a version already, found {model.version} too. Leave one of them out.",
        )
    if model.client and isinstance(model.repository, Path):
        yield (
            (section, "client"),
            "only a repository with a URL, such as s3://bucket/models, is read by a client; found a folder. Leave it out.",
        )


def _several_models_conflicts(pipeline: Pipeline) -> Iterator[tuple[Loc, str]]:
    models = pipeline.models
    if models is None:
        return
    if pipeline.shadows:
        yield (
            ("shadows",),
            "expected no shadows beside `models`: a shadow is compared with one model, found several. Leave them out, or compare "
            "in a pipeline of its own with `model`.",
        )
    url = mlflow_url(models.repository)
    if url is not None and url.name is not None:
        yield (
            ("models", "repository"),
            f"expected models:/ without the name of a model, because `models` names several; found {models.repository}. Write "
            f"`repository: models:/`.",
        )
    if models.tenants is not None and not isinstance(models.repository, Path):
        yield (
            ("models", "repository"),
            f"expected a folder beside `tenants`, found {models.repository}. Mount or copy the models into a folder.",
        )
    if models.tenants is not None and models.gpu_memory is not None:
        yield (
            ("models", "gpu_memory"),
            "expected no limit for each copy beside `tenants`, because any number of models is loaded. Leave it out; "
            "`tenants.memory` bounds them together.",
        )
    if models.ensemble is not None:
        for place, names in _cycles(models.ensemble):
            yield place, f"the steps {' -> '.join(names)} feed each other in a circle. Break it."


def _cycles(ensemble: Ensemble) -> Iterator[tuple[Loc, list[str]]]:
    """A circle among the steps, if there is one."""
    needed = {
        name: {wanted.step for source in step.feed.values() for wanted in source.outputs}
        for name, step in ensemble.steps.items()
    }
    try:
        TopologicalSorter(needed).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        yield ("models", "ensemble", "steps", circle[0]), circle


def _registry_conflicts(pipeline: Pipeline) -> Iterator[tuple[Loc, str]]:
    registry = pipeline.schemas.registry
    if registry and pipeline.schemas.directory:
        yield ("schemas", "directory"), "schemas come from a directory or from a registry, found both. Keep one."
    if not registry and not pipeline.schemas.directory:
        yield ("schemas", "directory"), "expected a path, found nothing. Write for example: directory: schemas"
    if registry and (registry.username is None) != (registry.password is None):
        missing = "password" if registry.password is None else "username"
        yield ("schemas", "registry", missing), "username and password go together. Write both or none."


def _client_conflicts(pipeline: Pipeline, document: Document) -> Iterator[tuple[Loc, str]]:
    client = {name: value.get_secret_value() for name, value in pipeline.kafka.client.items()}
    unsafe = list(unsafe_values(client))
    yield from ((("kafka", "client", name), message) for name, message in unsafe)
    for number in numbers_with_units(client):
        yield (
            ("kafka", "client", number),
            "expected a number alone, found more behind it: the Kafka client would ignore that. Write the number in the "
            "property's unit, such as 6000 for 6 s where the name ends in .ms.",
        )
    for name, said in () if unsafe else client_refusals(pipeline):
        place = ("kafka", "client") if name is None else ("kafka", "client", name)
        yield place, _explained(name, said, client) or _as_said(said, client, document)


def _explained(name: str | None, said: str, client: Mapping[str, str]) -> str:
    """What to do about a refusal whose message says little; empty: it is another one."""
    if "mechanism GSSAPI" in said and not client.keys() & {"sasl.mechanism", "sasl.mechanisms"}:
        return "expected `sasl.mechanism` beside it, such as PLAIN, SCRAM-SHA-512 or OAUTHBEARER, found none. Write it."
    if name is not None and name.endswith(".location") and not Path(client[name]).is_file():
        return "expected the path of a file, found no file there. Check the path."
    return ""


def _as_said(said: str, client: Mapping[str, str], document: Document) -> str:
    told = "its message quotes a secret and is not shown" if _quotes_a_secret(said, client, document) else said
    return f"the Kafka client refuses it: {told.rstrip('.')}. Correct it, or leave it out."


def _quotes_a_secret(said: str, client: Mapping[str, str], document: Document) -> bool:
    """Whether the Kafka client's message quotes a secret. It truncates long values, so the first 8 characters count."""
    section = document.data["kafka"]
    written = section.get("client") if isinstance(section, dict) else None
    secrets = [
        " ".join(client[name].split())
        for name in client
        if isinstance(written, dict) and isinstance(written[name], dict)
    ]
    return any(secret[:8] in said for secret in secrets)


def _shadow_conflicts(pipeline: Pipeline, document: Document) -> Iterator[tuple[Loc, str]]:
    """Yield the places of such values, with the problem."""
    yield from _class_conflicts(pipeline, document)
    names = [shadow.name for shadow in pipeline.shadows]
    primary = (pipeline.model.name, pipeline.wanted_version)
    for number, shadow in enumerate(pipeline.shadows):
        place = ("shadows", number)
        if pipeline.shadow_model(shadow) == primary:
            yield (
                (*place, "version"),
                f"version {shadow.version} is the primary's (model.version): it would be compared with itself. Name another, or "
                "take this shadow out.",
            )
        if shadow.name in names[:number]:
            yield (
                document.known((*place, "name")),
                f"another shadow is called {shadow.name} too. Give each a `name:` of its own.",
            )
        if shadow.name in _ROLES:
            yield (*place, "name"), f"{shadow.name} is a role of its own. Choose another name."
    yield from _shared_topics(pipeline, document)


def _class_conflicts(pipeline: Pipeline, document: Document) -> Iterator[tuple[Loc, str]]:
    comparison = pipeline.comparison
    classes = comparison.classes or ()
    if classes and comparison.task != "multiclass":
        yield (
            document.known(("comparison", "classes")),
            f"classes are compared only with `task: multiclass`, found `task: {comparison.task}`. Write `task: multiclass` under "
            "`comparison:`, or leave `classes` out.",
        )
    for place, name in enumerate(classes):
        if name in classes[:place]:
            yield ("comparison", "classes"), f"the class {name!r} is named twice. Name each once."
    if comparison.item is not None and comparison.task == "multiclass":
        yield (
            ("comparison", "item"),
            "an item is one score, but `task: multiclass` compares the scores of all classes. Leave `item` out.",
        )


def _shared_topics(pipeline: Pipeline, document: Document) -> Iterator[tuple[Loc, str]]:
    taken = dict.fromkeys(pipeline.input.topics, "input.topics")
    taken |= {pipeline.output.topic: "output.topic", pipeline.dead_letters.topic: "dead_letters.topic"}
    asked: list[tuple[Loc, str]] = []
    if pipeline.shadows:
        asked.append((("comparison", "topic"), pipeline.comparison.topic))
        asked.append((("comparison", "evaluations"), pipeline.comparison.evaluations))
    if pipeline.labels:
        asked.append((("labels", "topic"), pipeline.labels.topic))
    if pipeline.rollout:
        asked.append((("rollout", "topic"), pipeline.rollout.topic))
        asked.append((("rollout", "evaluations"), pipeline.rollout.evaluations))
    for place, topic in asked:
        if topic in taken:
            at = next(at for at in (place, place[:1], ("shadows",), ()) if at in document.lines)
            yield at, f"{topic} is also {taken[topic]}. Give each a topic of its own."
        taken[topic] = dotted(place)
