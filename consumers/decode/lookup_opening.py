"""Opens the look-ups of a pipeline in its feature store."""

from collections.abc import Mapping, Sequence

from millstream.consumers.problems import Problems
from millstream.inference.errors import FeatureStoreError
from millstream.inference.feature_store.fallback import Fallback
from millstream.inference.feature_store.feast_entities import FeastEntities, FeastStore
from millstream.inference.feature_store.interface import Entities
from millstream.inference.feature_store.key_template import parse_template
from millstream.inference.feature_store.lookup import Lookup
from millstream.inference.feature_store.redis_connection import RedisAddress, RedisConnection
from millstream.inference.feature_store.redis_entities import READERS, RedisEntities
from millstream.inference.times import Time
from millstream.pipeline.feature_store_section import FeatureStore, LookupSection
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.errors import BadPathError
from millstream.schemas.paths import parse_path

Types = Mapping[str, str]
"""Wanted path within an entry -> the type of its value, see `Reader.leaf`."""


def opened_lookups(
    pipeline: Pipeline, store: FeatureStore, used: Sequence[tuple[int, LookupSection]], wanted: Mapping[str, Types]
) -> list[Lookup]:
    """Open look-ups. The store isn't asked yet.

    Args:
        pipeline: the pipeline file's settings.
        store: the feature store.
        used: the look-ups, each with its number in the pipeline file.
        wanted: look-up -> the fields that models take from it.

    Raises:
        FeatureStoreError: the store or a look-up is set up wrongly.
    """
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
