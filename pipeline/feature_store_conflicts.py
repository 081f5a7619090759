"""Finds values of the section `feature_store` that are valid alone, but not together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.pipeline.feature_store_section import FeatureStore, LookupSection
    from millstream.pipeline.pipeline import Pipeline
    from millstream.schemas.wording import Loc

_SECTION = "feature_store"
_OF_REDIS = ("url", "username", "password", "ca")
_LOOKUP_OF_REDIS = ("value", "updated", "updated_format")


def feature_store_conflicts(pipeline: Pipeline) -> Iterator[tuple[Loc, str]]:
    """Yield the places of such values, with the problem."""
    store = pipeline.feature_store
    if store is None:
        return
    yield from _store_conflicts(store)
    names = [lookup.name for lookup in store.lookups]
    for number, lookup in enumerate(store.lookups):
        place = (_SECTION, "lookups", number)
        if lookup.name in names[:number]:
            yield (*place, "name"), f"another look-up is called {lookup.name} too. Give each a name of its own."
        conflicts = _lookup_of_feast_conflicts if store.type == "feast" else _lookup_of_redis_conflicts
        yield from (((*place, option), problem) for option, problem in conflicts(lookup))


def _store_conflicts(store: FeatureStore) -> Iterator[tuple[Loc, str]]:
    foreign = _OF_REDIS if store.type == "feast" else ("repository",)
    other = "redis" if store.type == "feast" else "feast"
    needed, example = ("repository", "features") if store.type == "feast" else ("url", "redis://127.0.0.1:6379/0")
    for option in foreign:
        if getattr(store, option) is not None:
            yield (_SECTION, option), f"only a store of type {other} has this option, found {store.type}. Leave it out."
    if getattr(store, needed) is None:
        yield (_SECTION, needed), f"this option is missing. Write for example: {needed}: {example}"
    if store.username is not None and store.password is None:
        yield (_SECTION, "username"), "expected a `password` beside it, found none. Write both, or leave the user out."


def _lookup_of_feast_conflicts(lookup: LookupSection) -> Iterator[tuple[str, str]]:
    for option in _LOOKUP_OF_REDIS:
        if option in lookup.model_fields_set:
            yield option, "only a store of type redis has this option, found feast. Leave it out."
    if lookup.view is None:
        yield "view", "expected the name of a feature view, found none. Write for example: view: customer_stats"
    if isinstance(lookup.key, str):
        yield (
            "key",
            "expected join keys with the paths of event fields. Write for example: key: {customer_id: customer.id}",
        )


def _lookup_of_redis_conflicts(lookup: LookupSection) -> Iterator[tuple[str, str]]:
    if lookup.view is not None:
        yield "view", "only a store of type feast has this option, found redis. Leave it out."
    if not isinstance(lookup.key, str):
        yield "key", 'expected a text, found a mapping. Write for example: key: "customer:{customer.id}"'
    if lookup.updated is None and "updated_format" in lookup.model_fields_set:
        yield "updated_format", "expected `updated` beside it, found none. Write both, or leave this out."
    for option in ("max_age", "include_age") if lookup.updated is None else ():
        if getattr(lookup, option):
            yield (
                option,
                "expected `updated` beside it, which says when an entry was written; found none. Write both or none.",
            )
