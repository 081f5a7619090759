"""Keeps the events of a step, each once, with their labels. What is kept doesn't depend on how the topics were read.

If there are too many events, those of a sample of keys are kept: in each variant apart, so that a candidate with a small share
keeps all of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from millstream.consumers.evaluation.rows import HASH_BITS, LABEL_ROW, NONE, Rows, is_sampled

if TYPE_CHECKING:
    from millstream.schemas.arrays import Ints, Mask

_SLACK_MS: Final = 600_000
"""A prediction may be written so much later than it was made: while the broker is away, for example."""
_LABELS_TO_EVENTS: Final = 4  # most labels without an event, as a multiple of the most events
_LEAST_MERGE: Final = 50_000  # events or labels that are worth a merge
_LABEL_FIELDS: Final = ("label", "reward", "labelled", "label_position")


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is kept, and which labels count."""

    events: int  # most of all variants together
    maturity: int  # ms that a label may come after its prediction
    early: int  # ms that a label may come before it


class HeldEvents:
    """The events of a step and their labels."""

    def __init__(self, dtype: np.dtype[np.void], variants: int, bounds: Bounds) -> None:
        """Args:
        dtype: of `event_row`.
        variants: how many there are.
        bounds: of memory and of times.
        """
        self._bounds = bounds
        self._quota = max(bounds.events // variants, 1)
        self._rows: Rows = np.empty(0, dtype)  # ascending by ID, each once
        self._new: list[Rows] = []
        self._new_labels: list[Rows] = []
        self._counts = [0, 0]  # of both lists
        self._waiting: Rows = np.empty(0, LABEL_ROW)  # labels without an event so far
        self._levels = [0] * variants
        self.dropped_labels = 0  # because there were too many

    @property
    def sampled(self) -> tuple[float, ...]:
        """The share of each variant's keys that is kept."""
        return tuple(0.5**level for level in self._levels)

    def add(self, rows: Rows) -> None:
        """Take events, in any order."""
        rows = self._of_sample(rows)
        if len(rows):
            self._new.append(rows)
            self._counts[0] += len(rows)

    def add_labels(self, rows: Rows) -> None:
        """Take labels, in any order."""
        if len(rows):
            self._new_labels.append(rows)
            self._counts[1] += len(rows)

    def is_due(self) -> bool:
        """Whether enough is new for `settle`, so that its cost per event stays small."""
        held = len(self._rows), len(self._rows) + len(self._waiting)
        return any(new > max(_LEAST_MERGE, count // 4) for new, count in zip(self._counts, held, strict=True))

    def settle(self, read_until: int) -> Rows:
        """Merge what is new. Returns all events, ascending by ID.

        Args:
            read_until: all records of events before this time were read, ms since the epoch. Labels that can't have an event
                any more are dropped.
        """
        if self._new:
            self._rows = _each_once(np.concatenate([self._rows, *self._new]))
            self._new, self._counts[0] = [], 0
            self._thin()
        self._match(np.concatenate([self._waiting, *self._new_labels]), read_until)
        self._new_labels, self._counts[1] = [], 0
        return self._rows

    def _of_sample(self, rows: Rows) -> Rows:
        if not any(self._levels):
            return rows
        kept = np.zeros(len(rows), np.bool_)
        for variant, level in enumerate(self._levels):
            kept |= (rows["variant"] == variant) & is_sampled(rows["hash"], level)
        return rows[kept]

    def _thin(self) -> None:
        """Halve the sample of each variant that has too many events. The level depends only on the events."""
        before = list(self._levels)
        for variant in range(len(self._levels)):
            hashes = self._rows["hash"][self._rows["variant"] == variant]
            while len(hashes) > self._quota and self._levels[variant] < HASH_BITS:
                self._levels[variant] += 1
                hashes = hashes[is_sampled(hashes, self._levels[variant])]
        if self._levels != before:
            self._rows = self._of_sample(self._rows)

    def _match(self, labels: Rows, read_until: int) -> None:
        places, found = _places(self._rows["id"], labels["id"])
        self._take(places[found], labels[found])
        waiting = labels[~found & (labels["time"] >= read_until - self._bounds.early - _SLACK_MS)]
        most = _LABELS_TO_EVENTS * self._bounds.events
        if len(waiting) > most:
            self.dropped_labels += len(waiting) - most
            waiting = waiting[np.lexsort((waiting["position"], waiting["time"]))][-most:]
        self._waiting = waiting

    def _take(self, places: Ints, labels: Rows) -> None:
        """Give events their labels. The first label counts, of those that come in time."""
        after = labels["time"] - self._rows["time"][places]
        good = (after >= -self._bounds.early) & (after <= self._bounds.maturity)
        places, labels = places[good], labels[good]
        order = np.lexsort((labels["position"], labels["time"], places))
        places, labels = places[order], labels[order]
        firsts = _firsts(places)
        places, labels = places[firsts], labels[firsts]
        known = self._rows["labelled"][places]
        sooner = (known == NONE) | (labels["time"] < known)
        sooner |= (labels["time"] == known) & (labels["position"] < self._rows["label_position"][places])
        places, labels = places[sooner], labels[sooner]
        for name, own in zip(_LABEL_FIELDS, ("value", "reward", "time", "position"), strict=True):
            self._rows[name][places] = labels[own]


def _places(ids: Ints, wanted: Ints) -> tuple[Ints, Mask]:
    """Where each wanted ID is in the ascending IDs, and whether it is there."""
    if not len(ids):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    places = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return places, ids[places] == wanted


def _firsts(ordered: Ints) -> Mask:
    """Where a new value begins."""
    new = np.ones(len(ordered), np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    return new


def _each_once(rows: Rows) -> Rows:
    """The first record of each event, ascending by ID. It keeps a label that a later record already had."""
    rows = rows[np.argsort(rows["id"], kind="stable")]
    new = _firsts(rows["id"])
    if new.all():
        return rows
    repeated = ~new
    repeated[:-1] |= ~new[1:]
    places = np.flatnonzero(repeated)
    again = rows[places]
    again = again[np.lexsort((again["position"], again["written"], again["id"]))]
    firsts = np.flatnonzero(_firsts(again["id"]))
    for start, end in zip(firsts.tolist(), [*firsts[1:].tolist(), len(again)], strict=True):
        if len(labelled := np.flatnonzero(again["labelled"][start:end] != NONE)):
            for name in _LABEL_FIELDS:
                again[name][start] = again[name][start + labelled[0]]
    rows[places] = again
    return rows[new]
