"""The event's fields that the keys of look-ups are made of."""

from collections.abc import Iterator, Sequence

from millstream.inference.feature_store.key_template import parse_template
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import lookup_columns
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.lookup_columns import looked_up
from millstream.schemas.wording import Loc


def key_fields(pipeline: Pipeline) -> Iterator[tuple[Loc, str, str]]:
    """The place in the pipeline file, the path and the look-up of each field of a key. Raises FeatureStoreError."""
    store = pipeline.feature_store
    for number, lookup in enumerate(() if store is None else store.lookups):
        place: Loc = ("feature_store", "lookups", number, "key")
        if isinstance(lookup.key, str):
            paths: Sequence[str] = parse_template(lookup.key, pipeline.at(*place)).paths
            yield from ((place, path, lookup.name) for path in paths)
        else:
            yield from (((*place, join_key), path, lookup.name) for join_key, path in lookup.key.items())


def used_lookups(models: Sequence[ModelVersion]) -> set[str]:
    """The look-ups that models name."""
    columns = lookup_columns([model.signature for model in models])
    return {found.lookup for column in columns if (found := looked_up(column)) is not None}
