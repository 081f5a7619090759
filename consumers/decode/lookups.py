"""Opens the look-ups that a pipeline file describes and its models use."""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from millstream.consumers.decode.lookup_keys import used_lookups
from millstream.consumers.errors import PlanError
from millstream.consumers.problems import Problems
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import lookup_columns
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.dtypes import Dtype
from millstream.schemas.errors import BadPathError
from millstream.schemas.lookup_columns import age_column_of, looked_up
from millstream.schemas.paths import parse_path

if TYPE_CHECKING:
    from millstream.inference.feature_store.lookup import Lookup


def open_lookups(pipeline: Pipeline, models: Sequence[ModelVersion]) -> "list[Lookup]":
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
    # Imported here, because few pipelines have a feature store.
    from millstream.consumers.decode.lookup_opening import opened_lookups  # noqa: PLC0415

    return opened_lookups(pipeline, store, used, wanted)


def included_ages(lookups: "Sequence[Lookup]") -> dict[str, Dtype]:
    """The columns of ages that predictions include, with their types."""
    return {age_column_of(lookup.name): "float64" for lookup in lookups if lookup.with_age}


def columns_of_lookups(lookups: "Sequence[Lookup]") -> dict[str, Dtype]:
    """The columns that the look-ups add, with their types."""
    return {column: dtype for lookup in lookups for column, dtype in lookup.columns.items()}


def _check_names(pipeline: Pipeline, models: Sequence[ModelVersion]) -> None:
    """Check the look-ups and paths that models name, and that fields have a value for outages if they need one."""
    store = pipeline.feature_store
    names = [] if store is None else [lookup.name for lookup in store.lookups]
    needs_default = store is not None and store.on_outage == "missing"
    problems = Problems()
    for model in models:
        for entry in model.signature.inputs:
            place = f"{entry.mapped_at or model.place}: tensor `{entry.tensor}`"
            for column, conversion in entry.reads:
                if (found := looked_up(column)) is None:
                    continue
                with problems:
                    _check_name(place, found.lookup, found.field, names)
                with problems:
                    if needs_default and conversion.in_place_of_null is None:
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
