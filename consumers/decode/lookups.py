"""Opens the look-ups that a pipeline file describes and its models use."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from millstream.consumers.decode.lookup_keys import used_lookups
from millstream.consumers.errors import PlanError
from millstream.consumers.problems import Problems
from millstream.inference.errors import FeatureStoreError
from millstream.inference.feature_store.fallback import Fallback
from millstream.inference.feature_store.feast_entities import FeastEntities, FeastStore
from millstream.inference.feature_store.interface import Entities
from millstream.inference.feature_store.key_template import parse_template
from millstream.inference.feature_store.lookup import Lookup
from millstream.inference.feature_store.redis_connection import RedisAddress, RedisConnection
from millstream.inference.feature_store.redis_entities import READERS, RedisEntities
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import TensorInput, lookup_columns
from millstream.inference.times import Time
from millstream.pipeline.feature_store_section import FeatureStore, LookupSection
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.dtypes import Dtype
from millstream.schemas.errors import BadPathError
from millstream.schemas.lookup_columns import age_column_of, looked_up
from millstream.schemas.paths import parse_path

Types = Mapping[str, str]
"""Wanted path within an entry -> the type of its value, see `Reader.leaf`."""


def open_lookups(pipeline: Pipeline, models: Sequence[ModelVersion]) -> list[Lookup]:
    """The look-ups that the models use, in the order of the pipeline file. The store isn't asked yet.

    Raises:
        PlanError: a model names a look-up that isn't there, a path is malformed, or a field lacks a value for outages.
        FeatureStoreError: the store or a look-up is set up wrongly.
    """
    _check_names(pipeline, models)
    store = pipeline.feature_store
    if store is None:
        return []
    wanted: dict[str, dict[str, str]] = defaultdict(dict)
    for column, leaf in lookup_columns([model.signature for model in models]).items():
        found = looked_up(column)
        assert found is not None
        wanted[found.lookup][found.field] = leaf
    used = [(number, section) for number, section in enumerate(store.lookups) if section.name in wanted]
    if not used:
        return []
    opened = _Feast(pipeline, store) if store.type == "feast" else _Redis(pipeline, store)
    fallback = Fallback() if store.on_outage == "missing" else None
    problems = Problems()
    lookups: list[Lookup] = []
    for number, section in used:
        place = pipeline.at("feature_store", "lookups", number)
        with problems:
            entities = opened.entities(section, wanted[section.name], place)
            lookups.append(Lookup(section.name, entities, section.include_age, section.max_age, fallback))
    problems.raise_all()
    return lookups


def included_ages(lookups: Sequence[Lookup]) -> dict[str, Dtype]:
    """The columns of ages that predictions include, with their types."""
    return {age_column_of(lookup.name): "float64" for lookup in lookups if lookup.with_age}


def columns_of_lookups(lookups: Sequence[Lookup]) -> dict[str, Dtype]:
    """The columns that the look-ups add, with their types."""
    return {column: dtype for lookup in lookups for column, dtype in lookup.columns.items()}


class _Redis:
    """Opens look-ups in Redis. They share a connection."""

    def __init__(self, pipeline: Pipeline, store: FeatureStore) -> None:
        assert store.url is not None  # the pipeline file's check requires it
        self._pipeline = pipeline
        password = None if store.password is None else store.password.get_secret_value()
        address = RedisAddress(store.url, store.timeout, store.username, password, store.ca)
        self._connection = RedisConnection(address, pipeline.at("feature_store"))

    def entities(self, section: LookupSection, types: Types, place: str) -> Entities:
        """The entities of a look-up. Raises FeatureStoreError."""
        updated = None
        if section.updated is not None:
            form = Time(section.updated_format, "epoch", whole=False)
            updated = section.updated, form
            types = _with_time(types, section.updated, form, place)
        reader = READERS[section.value](types, place)
        return RedisEntities(self._connection, parse_template(section.key, place), reader, updated)


class _Feast:
    """Opens look-ups in a Feast repository."""

    def __init__(self, pipeline: Pipeline, store: FeatureStore) -> None:
        assert store.repository is not None  # the pipeline file's check requires it
        self._store = FeastStore(store.repository, store.timeout, pipeline.at("feature_store"))

    def entities(self, section: LookupSection, types: Types, place: str) -> Entities:
        """The entities of a look-up. Raises FeatureStoreError."""
        assert section.view is not None  # the pipeline file's check requires it
        return FeastEntities(self._store, section.view, section.key, types, place)


def _with_time(types: Types, path: str, form: Time, place: str) -> Types:
    """The wanted fields with the one that has an entry's time."""
    if types.get(path, form.leaf) != form.leaf:
        raise FeatureStoreError(
            f"{place}: expected field `{path}` to be a time in {form.format} (`updated`), but a model reads it as {types[path]}. "
            f"Name another field, or say in the model's config.yaml `time: {form.format}`."
        )
    try:
        parse_path(path)
    except BadPathError as error:
        raise FeatureStoreError(f"{place}: `updated`: {error}.") from None
    return {**types, path: form.leaf}


def _check_names(pipeline: Pipeline, models: Sequence[ModelVersion]) -> None:
    """Check the look-ups and paths that models name, and that fields have a value for outages if they need one."""
    store = pipeline.feature_store
    names = [] if store is None else [lookup.name for lookup in store.lookups]
    needs_default = store is not None and store.on_outage == "missing"
    problems = Problems()
    for model in models:
        for entry in model.signature.inputs:
            place = f"{entry.mapped_at or model.place}: tensor `{entry.tensor}`"
            for column in entry.fields:
                if (found := looked_up(column)) is None:
                    continue
                with problems:
                    _check_name(place, found.lookup, found.field, names)
                with problems:
                    if needs_default and not _has_default(entry, column):
                        raise PlanError(
                            f"{place}: expected a value for `{found.field}` of look-up `{found.lookup}` while the store is away "
                            f"(feature_store.on_outage: missing), found none. Write `missing:` beside the field."
                        )
    for number, lookup in enumerate(() if store is None else store.lookups):
        with problems:
            if lookup.include_age and lookup.name not in used_lookups(models):
                raise PlanError(
                    f"{pipeline.at('feature_store', 'lookups', number, 'include_age')}: expected a model that takes a field from "
                    f"look-up `{lookup.name}`, found none, so there is no age. Leave the option out."
                )
    problems.raise_all()


def _check_name(place: str, lookup: str, field: str, names: Sequence[str]) -> None:
    if lookup not in names:
        raise PlanError(
            f"{place} takes field `{field}` from the look-up `{lookup}`, which the pipeline file lacks (feature_store.lookups: "
            f"{', '.join(names) or 'none'}). Add it there (`millstream docs feature-lookup`)."
        )
    try:
        parse_path(field)
    except BadPathError as error:
        raise PlanError(f"{place} takes a field from the look-up `{lookup}`, which is no path: {error}.") from None


def _has_default(entry: TensorInput, column: str) -> bool:
    conversion = dict(entry.converted_fields)[column]
    if conversion.splitter is not None:
        return bool(getattr(conversion.splitter, "missing", None) is not None)
    return conversion.missing is not None
