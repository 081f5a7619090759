"""Entities in any online store of Feast: the features of one feature view."""

import datetime as dt
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from millstream.inference.casts import Cast
from millstream.inference.errors import FeatureStoreError, FeatureStoreUnavailable
from millstream.inference.feature_store.interface import Entries, Keys
from millstream.inference.feature_store.timed_calls import TimedCalls
from millstream.inference.sources.secrets import redacted
from millstream.schemas.arrays import Ints
from millstream.schemas.column import Column, StringColumn, column_of
from millstream.schemas.dtypes import Dtype, ListOf
from millstream.schemas.failures import failure_of
from millstream.schemas.ids import ids_of
from millstream.schemas.packed import Texts
from millstream.schemas.paths import Every, parse_path
from millstream.schemas.table import Table
from millstream.schemas.wording import meant

T = TypeVar("T")

DTYPES: dict[str, Dtype] = {
    "INT32": "int32",
    "INT64": "int64",
    "FLOAT32": "float32",
    "FLOAT64": "float64",
    "BOOL": "boolean",
    "STRING": "string",
    "UNIX_TIMESTAMP": "float64",  # seconds since 1970
}
"""Name of Feast's type -> the type of its column."""
_INT_KEYS = ("INT32", "INT64")


class FeastStore:
    """A Feast repository. Its look-ups share it, and one thread uses it."""

    def __init__(self, repository: Path, timeout: float, place: str) -> None:
        """Args:
        repository: the folder with `feature_store.yaml`.
        timeout: seconds that a request may take.
        place: of the section in the pipeline file, for messages.

        Raises:
            FeatureStoreError: Feast isn't installed, or can't open the repository.
        """
        self._repository, self._place = repository, place
        try:
            feast: Any = import_module("feast")
        except ImportError as error:
            raise FeatureStoreError(
                f"{place}: a feature store of type feast needs the package feast, which can't be imported ({error}). Install it: "
                f"pip install 'millstream[feast]'"
            ) from None
        if not (repository / "feature_store.yaml").is_file():
            raise FeatureStoreError(f"{place}: expected a file feature_store.yaml in {repository}, found none.")
        try:
            self._store: Any = feast.FeatureStore(repo_path=str(repository))
        except Exception as error:  # Feast raises errors of many packages
            raise FeatureStoreError(f"{place}: Feast can't open {repository}: {_said(error)}") from error
        self._calls = TimedCalls(timeout)

    def view(self, name: str, place: str) -> Any:
        """A feature view. Raises FeatureStoreError if it isn't in the registry, or the registry can't be read."""
        try:
            names = sorted(view.name for view in self._store.list_feature_views())
            view = self._store.get_feature_view(name) if name in names else None
        except Exception as error:
            raise FeatureStoreError(f"{place}: Feast can't read its registry: {_said(error)}") from error
        if view is None:
            raise FeatureStoreError(
                f"{place}: expected a feature view of {self._repository} (there: {', '.join(names) or 'none'}), found {name}."
                f"{meant(name, names)} If it is new, run `feast apply` first."
            )
        return view

    def features(self, references: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
        """The values of features for entities, and the time of each under the feature's name and `__ts`.

        Raises:
            TimeoutError: Feast takes too long.
            Exception: what Feast raises.
        """

        def ask() -> dict[str, list[Any]]:
            answer = self._store.get_online_features(features=list(references), entity_rows=list(rows))
            found: dict[str, list[Any]] = answer.to_dict(include_event_timestamps=True)
            return found

        return self._calls.call(ask)

    def unavailable(self, error: Exception) -> FeatureStoreUnavailable:
        """What to raise if Feast raises `error` for all entities."""
        return FeatureStoreUnavailable(
            f"the feature store of {self._repository} (Feast) doesn't answer: {_said(error)}"
        )


class FeastEntities:
    """See `Entities`. A key is the values of the view's join keys."""

    def __init__(
        self, store: FeastStore, view: str, paths: Mapping[str, str], types: Mapping[str, str], place: str
    ) -> None:
        """Args:
        store: the repository.
        view: the name of a feature view.
        paths: join key -> path of the event's field that has its value.
        types: wanted paths; each is a feature's name, with `[]` behind it for a list.
        place: of the look-up, for messages.

        Raises:
            FeatureStoreError: the view isn't there, or has other join keys or features.
        """
        self._store = store
        found = store.view(view, place)
        self._keys = _join_keys(found, paths, place)  # join key -> whether it is a whole number
        self.paths = list(paths.values())
        self._path_of = dict(paths)
        self._names = {path: _name_of(path, place) for path in types}
        self.columns: Mapping[str, Dtype] = {path: _dtype(found, path, self._names[path], place) for path in types}
        self._references = [f"{view}:{name}" for name in dict.fromkeys(self._names.values())]

    def keys(self, events: Table) -> Keys:
        """See Entities."""
        wrong: dict[int, str] = {}
        parts = []
        for join_key, is_int in self._keys.items():
            path = self._path_of[join_key]
            parts.append(_key_values(events[path], path, join_key, is_int, wrong))
        keys = [None if None in key else key for key in zip(*parts, strict=True)]
        return Keys(keys, wrong)

    def read(self, keys: Sequence[tuple[Any, ...] | None]) -> Entries:
        """See Entities."""
        places = [row for row, key in enumerate(keys) if key is not None]
        wrong: dict[int, str] = {}
        values: dict[str, list[Any]] = {name: [None] * len(keys) for name in self._names.values()}
        updated = np.full(len(keys), np.nan)
        for some, found in self._found(places, keys, wrong):
            for name, column in values.items():
                for row, value in zip(some, found[name], strict=True):
                    column[row] = _plain(value)
            times = found[f"{next(iter(values))}__ts"]
            updated[some] = [seconds or np.nan for seconds in map(_seconds, times)]
        is_there = np.zeros(len(keys), np.bool_)
        for column in values.values():
            is_there |= np.fromiter((value is not None for value in column), np.bool_, len(keys))
        table = Table({path: column_of(values[self._names[path]], dtype) for path, dtype in self.columns.items()})
        return Entries(table, is_there, wrong, updated)

    def _found(
        self, places: Sequence[int], keys: Sequence[tuple[Any, ...] | None], wrong: dict[int, str]
    ) -> list[tuple[Sequence[int], dict[str, list[Any]]]]:
        """The values at some places. If Feast refuses a key, it is found by halving, and added to `wrong`."""
        if not places:
            return []
        try:
            return [(places, self._ask([keys[row] for row in places]))]
        except Exception as error:
            if failure_of(error) == "wait" or not self._works():
                raise self._store.unavailable(error) from error
            if len(places) == 1:
                wrong[places[0]] = f"Feast refuses the key {keys[places[0]]}: {_said(error)}"
                return []
        middle = len(places) // 2
        return [*self._found(places[:middle], keys, wrong), *self._found(places[middle:], keys, wrong)]

    def _ask(self, keys: Sequence[tuple[Any, ...] | None]) -> dict[str, list[Any]]:
        rows = [dict(zip(self._keys, key or (), strict=True)) for key in keys]
        return self._store.features(self._references, rows)

    def _blank(self) -> tuple[Any, ...]:
        return tuple(0 if is_int else "" for is_int in self._keys.values())

    def _works(self) -> bool:
        """Whether the store answers for an ordinary key. If so, another key is at fault."""
        try:
            self._ask([self._blank()])
        except Exception:
            return False
        return True

    def check(self) -> str:
        """See Entities."""
        try:
            self._ask([self._blank()])
        except Exception as error:
            raise self._store.unavailable(error) from error
        return f"answers for {', '.join(self._references)}"

    def close(self) -> None:
        """See Entities. Feast's stores have no such call."""


def _join_keys(view: Any, paths: Mapping[str, str], place: str) -> dict[str, bool]:
    """The view's join keys, and whether each is a whole number. Raises FeatureStoreError if `paths` has others."""
    types = {column.name: column.dtype for column in view.entity_columns}
    if set(types) != set(paths):
        raise FeatureStoreError(
            f"{place}: expected the join keys of the view {view.name} under `key` ({', '.join(sorted(types)) or 'none'}), found "
            f"{', '.join(sorted(paths))}. Name each with the path of an event field."
        )
    for name, dtype in types.items():
        if getattr(dtype, "name", "") not in (*_INT_KEYS, "STRING"):
            raise FeatureStoreError(
                f"{place}: expected a join key of Feast's type {', '.join(_INT_KEYS)} or STRING, and {name} is "
                f"{_type_name(dtype)}. Use another view."
            )
    return {name: dtype.name in _INT_KEYS for name, dtype in types.items()}


def _name_of(path: str, place: str) -> str:
    steps = parse_path(path).steps
    if len(steps) > 2 or (len(steps) == 2 and steps[1] is not Every.ITEM):
        raise FeatureStoreError(
            f"{place}: expected the name of a feature, with `[]` behind it for a list, found the path `{path}`."
        )
    return str(steps[0])


def _dtype(view: Any, path: str, name: str, place: str) -> Dtype:
    """The type of a feature's column. Raises FeatureStoreError if the view lacks it, or there is no such column."""
    features = {feature.name: feature.dtype for feature in view.features}
    if name not in features:
        raise FeatureStoreError(
            f"{place}: expected a feature of the view {view.name} (there: {', '.join(sorted(features))}), found {name}, which a "
            f"model's config.yaml names.{meant(name, list(features))}"
        )
    items = getattr(features[name], "base_type", None)
    dtype = DTYPES.get(getattr(features[name] if items is None else items, "name", ""))
    if dtype is None:
        raise FeatureStoreError(
            f"{place}: expected a feature of one of the types {', '.join(DTYPES)} or an array of these, and {name} is "
            f"{_type_name(features[name])}. Leave it out."
        )
    if path.endswith("[]") != (items is not None):
        advice = f"write `{name}`" if items is None else f"write `{name}[]`"
        raise FeatureStoreError(f"{place}: feature {name} is {_type_name(features[name])}: {advice} in config.yaml.")
    return dtype if items is None else ListOf(dtype)


def _type_name(dtype: Any) -> str:
    return str(getattr(dtype, "name", dtype))


def _key_values(column: Column, path: str, join_key: str, is_int: bool, wrong: dict[int, str]) -> list[Any]:
    """The values of a join key in the type that Feast has for it; None for a null."""
    if not is_int:
        texts: Sequence[Any] = ids_of(column)
    elif isinstance(column, StringColumn):
        cast = Cast("text", "int")
        converted = cast.convert(column, _no_times)
        for row in () if converted.wrong is None else np.flatnonzero(converted.wrong).tolist():
            found = Texts(column.packed)[row][:60]
            wrong.setdefault(
                row, f"field `{path}`: expected {cast.expected}, for the join key {join_key}, found {found!r}"
            )
        texts = converted.column.to_list()
    else:
        texts = [None if value is None else int(value) for value in column.to_list()]
    if column.valid is None:
        return list(texts)
    return [value if there else None for value, there in zip(texts, column.valid.tolist(), strict=True)]


def _no_times() -> Ints:
    raise AssertionError("a cast needs no times")


def _plain(value: Any) -> Any:
    """The value with seconds since 1970 in place of times, also in a list."""
    if isinstance(value, list):
        return list(map(_plain, value))
    return _seconds(value) if isinstance(value, dt.datetime) else value


def _seconds(value: Any) -> float:
    if isinstance(value, dt.datetime):
        return (value if value.tzinfo else value.replace(tzinfo=dt.UTC)).timestamp()
    return float(value)


def _said(error: Exception) -> str:
    text = redacted(str(error))  # Feast quotes feature_store.yaml
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
