"""Features are joined to events: each key once, nulls where there are none, ages; by option, nulls while the store is away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from millstream.inference.errors import FeatureStoreUnavailable
from millstream.inference.feature_store.fallback import Fallback
from millstream.inference.feature_store.interface import Entries, Keys
from millstream.inference.feature_store.lookup import Lookup
from millstream.schemas.dtypes import Dtype
from millstream.schemas.table import Table
from tests.schemas.tables import table_of

NOW = 1000.0


@dataclass
class Shelf:
    """A store in a dict: key -> (orders, when it was written). An event's key is its field `id`."""

    entries: dict[str, tuple[float | None, float]]
    wrong: dict[str, str] = field(default_factory=dict)  # key -> why its entry can't be read
    wrong_keys: dict[int, str] = field(default_factory=dict)
    is_away: bool = False
    asked: list[list[str | None]] = field(default_factory=list)
    paths: Sequence[str] = ("id",)
    columns: Mapping[str, Dtype] = field(default_factory=lambda: {"orders": "float64"})

    def keys(self, events: Table) -> Keys:
        return Keys(events["id"].to_list(), self.wrong_keys)

    def read(self, keys: Sequence[Any]) -> Entries:
        if any(key is not None for key in keys):
            self.asked.append(list(keys))
            if self.is_away:
                raise FeatureStoreUnavailable("the shelf doesn't answer")
        orders = [self.entries.get(key, (None, 0.0))[0] for key in keys]
        return Entries(
            table_of(dict(self.columns), orders=orders),
            np.array([key in self.entries for key in keys]),
            {row: self.wrong[key] for row, key in enumerate(keys) if key in self.wrong},
            np.array([self.entries.get(key, (None, np.nan))[1] for key in keys]),
        )

    def check(self) -> str:
        return "there"

    def close(self) -> None:
        pass


def events(*ids: str | None) -> Table:
    return table_of({"id": "string"}, id=ids)


def lookup(shelf: Shelf, **options: Any) -> Lookup:
    return Lookup("customer", shelf, clock=lambda: NOW, **options)


def orders(table: Table) -> list[Any]:
    return table["[customer].orders"].to_list()


def test_each_key_is_asked_once_and_events_keep_their_order() -> None:
    shelf = Shelf({"a": (1.0, 990.0), "b": (2.0, 900.0)})
    found = lookup(shelf).join(events("b", "a", None, "b", "c"))
    assert orders(found.table) == [2.0, 1.0, None, 2.0, None]
    assert found.table["id"].to_list() == ["b", "a", None, "b", "c"]
    assert shelf.asked == [[None, "b", "a", "c"]]
    assert found.report.outcomes == {"found": 3, "missing": 2, "stale": 0, "invalid": 0}
    assert found.report.ages.tolist() == [100.0, 10.0, 100.0]
    assert not found.wrong


def test_no_events_have_the_columns_too() -> None:
    shelf = Shelf({})
    found = lookup(shelf).join(events())
    assert orders(found.table) == []
    assert shelf.asked == []


def test_old_entry_counts_as_missing() -> None:
    shelf = Shelf({"new": (1.0, 990.0), "old": (2.0, 989.0), "ageless": (3.0, np.nan), "future": (4.0, 2000.0)})
    found = lookup(shelf, max_age=10.0).join(events("new", "old", "ageless", "future", "none"))
    assert orders(found.table) == [1.0, None, None, 4.0, None]
    assert found.report.outcomes == {"found": 2, "missing": 1, "stale": 2, "invalid": 0}
    assert found.report.ages.tolist() == [10.0, 0.0]


def test_wrong_entry_and_wrong_key_are_told_for_each_event_that_has_it() -> None:
    shelf = Shelf({"a": (1.0, 990.0), "bad": (None, 990.0)}, wrong={"bad": "no number"}, wrong_keys={3: "no key"})
    found = lookup(shelf).join(events("bad", "a", "bad", "c"))
    assert found.wrong == {0: "no number", 2: "no number", 3: "no key"}
    assert orders(found.table)[1] == 1.0
    assert "c" not in shelf.asked[0]
    assert found.report.outcomes == {"found": 1, "missing": 0, "stale": 0, "invalid": 3}


def test_store_that_is_away_is_the_callers_without_a_fallback() -> None:
    with pytest.raises(FeatureStoreUnavailable):
        lookup(Shelf({}, is_away=True)).join(events("a"))


def test_wrong_key_is_told_also_while_the_store_is_away() -> None:
    one = lookup(Shelf({}, wrong_keys={1: "no key"}, is_away=True), fallback=Fallback())
    found = one.join(events("a", "b"))
    assert found.wrong == {1: "no key"}
    assert found.report.outcomes == {"unavailable": 1, "invalid": 1}


def test_with_a_fallback_features_are_missing_and_the_store_is_asked_ever_more_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    now = 0.0
    shelf = Shelf({"a": (1.0, 990.0)}, is_away=True)
    one = lookup(shelf, fallback=Fallback(lambda: now))
    asked_at: list[float] = []
    for tick in range(300):
        now = tick / 10
        found = one.join(events("a", "b"))
        assert orders(found.table) == [None, None]
        assert found.report.outcomes == {"unavailable": 2, "invalid": 0}
        if len(shelf.asked) > len(asked_at):
            asked_at.append(now)
    assert asked_at == pytest.approx([0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 12.7, 22.7], abs=0.11)
    assert [record.getMessage() for record in caplog.records] == [
        "the shelf doesn't answer; features count as missing until it does (feature_store.on_outage: missing)"
    ]
    now = 40.0
    one.join(events(None))  # asks for nothing, so it shows nothing about the store
    assert len(caplog.records) == 1
    shelf.is_away = False
    assert orders(one.join(events("a")).table) == [1.0]
    assert orders(one.join(events("a")).table) == [1.0]
    assert caplog.records[-1].getMessage() == "the feature store answers again, after 40 s"
