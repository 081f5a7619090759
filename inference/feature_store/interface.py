"""How a store gives the features of some entities, such as customers."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from millstream.schemas.arrays import Mask
from millstream.schemas.dtypes import Dtype
from millstream.schemas.table import Table


class Keys(NamedTuple):
    """The keys of some events."""

    keys: Sequence[Hashable | None]  # of each event; None: a part of its key is null
    wrong: Mapping[int, str]  # row of an event whose key can't be used -> why


class Entries(NamedTuple):
    """The store's entries for some keys, one row per key."""

    table: Table  # the wanted fields; all are null if the store has no entry
    is_there: Mask  # whether the store has an entry
    wrong: Mapping[int, str]  # row of an entry that can't be read -> why; its fields may have any values
    updated: npt.NDArray[np.float64] | None  # when each was written, seconds since 1970; NaN and None: not known


class Entities(Protocol):
    """One kind of entity in a store. One thread calls it."""

    @property
    def paths(self) -> Sequence[str]:
        """The event's fields that the key is made of."""

    @property
    def columns(self) -> Mapping[str, Dtype]:
        """The wanted fields and their types, as every table of entries has them."""

    def keys(self, events: Table) -> Keys:
        """The keys of these events, which have the columns `paths`."""

    def read(self, keys: Sequence[Any]) -> Entries:
        """The entries of these keys. None is the key of no entry. If all are None, the store isn't asked.

        Raises:
            FeatureStoreUnavailable: the store doesn't answer in time. Ask again later.
        """

    def check(self) -> str:
        """Ask the store as for an event. Returns a text about it for people. Raises FeatureStoreUnavailable."""

    def close(self) -> None:
        """Close the connection."""
