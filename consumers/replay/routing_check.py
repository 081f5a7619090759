"""Checks that predictions went to the variants that routing gives: the same keys get the same variants. Pure.

Each prediction of a pipeline with a rollout names the revision of the control record that its worker followed. The check routes
the prediction's key by that record again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from millstream.consumers.rollout.routing import route
from millstream.schemas.ids import float_text
from millstream.schemas.routing_keys import routing_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.consumers.rollout.record import RolloutRecord
    from millstream.schemas.arrays import Floats

EXAMPLES: Final = 5  # of mismatches that are told
_TOLERANCE: Final = 1e-9  # of a propensity: it is written as a double

Prediction = tuple["bytes | None", dict[str, Any]]
"""The key of a prediction's record, and the prediction."""


@dataclass(slots=True)
class RoutingCheck:
    """Counts what it finds."""

    records: Mapping[tuple[str, int], RolloutRecord]  # (rollout's ID, revision) -> the control record
    every: int = 1  # only predictions of every such event come to `add`
    singles: frozenset[str] = (
        frozenset()
    )  # fields whose floats have 32 bits in the events: predictions have them with 64
    problem: str = ""  # why the control topic can't be read; empty if it can
    checked: int = 0
    mismatches: int = 0
    while_loading: int = (
        0  # of those checked: by a worker that was loading a version, so that the baseline had its events
    )
    without_record: Counter[str] = field(
        default_factory=Counter
    )  # `ID revision N` -> predictions; the topic lacks the record
    without_field: Counter[str] = field(
        default_factory=Counter
    )  # fields that overrides name, with commas -> predictions without them
    examples: list[str] = field(default_factory=list)  # of mismatches: sentences

    @classmethod
    def of(
        cls,
        records: Iterable[RolloutRecord],
        every: int = 1,
        *,
        singles: frozenset[str] = frozenset(),
        problem: str = "",
    ) -> RoutingCheck:
        """A check by these control records; of those with one revision, the first one counts."""
        found: dict[tuple[str, int], RolloutRecord] = {}
        for record in records:
            found.setdefault((record.rollout, record.revision), record)
        return cls(found, every, singles, problem)

    @property
    def seen(self) -> int:
        """Predictions that a rollout routed."""
        return self.checked + self.without_record.total() + self.without_field.total()

    def add(self, predictions: Iterable[Prediction]) -> None:
        """Check predictions. Those without the field `rollout` don't count."""
        by_record: defaultdict[tuple[str, int], list[Prediction]] = defaultdict(list)
        for key, prediction in predictions:
            if (choice := prediction.get("rollout")) is not None:
                by_record[choice["id"], choice["revision"]].append((key, prediction))
        for name, some in by_record.items():
            record = self.records.get(name)
            if record is None:
                self.without_record[f"{name[0]} revision {name[1]}"] += len(some)
            else:
                self._check(record, some)

    def _check(self, record: RolloutRecord, predictions: Sequence[Prediction]) -> None:
        plan = record.plan()
        named = [override.field for override in plan.fields]
        known: list[Prediction] = []
        keys: list[bytes] = []
        for each in predictions:
            event, key = each[1].get("event") or {}, routing_key(each[0], str(each[1]["event_id"]))
            missing = [name for name in named if name not in event]
            if not missing or key in plan.keys:
                known.append(each)
                keys.append(key)
            else:
                self.without_field[", ".join(missing)] += 1
        if not known:
            return
        fields = {
            name: [_text((each[1].get("event") or {}).get(name), is_single=name in self.singles) for each in known]
            for name in named
        }
        routed = route(plan, keys, fields)
        shares = plan.shares
        for each, place, randomised in zip(known, routed.variant.tolist(), routed.randomised.tolist(), strict=True):
            choice, variant = each[1]["rollout"], record.variants[place].name
            self.checked += 1
            same = (choice["assigned"], choice["randomised"]) == (variant, randomised)
            if same and abs(choice["propensity"] - shares[place]) <= _TOLERANCE:
                continue
            if _is_while_loading(record, choice, variant, shares):
                self.while_loading += 1
                continue
            self.mismatches += 1
            if len(self.examples) < EXAMPLES:
                self.examples.append(_example(each, variant, float(shares[place]), randomised=randomised))


def _is_while_loading(record: RolloutRecord, choice: Mapping[str, Any], variant: str, shares: Floats) -> bool:
    """Whether a worker that loads a version chose so: the baseline has the events of this version, and none is randomised."""
    if choice["randomised"]:
        return False
    assigned = choice["assigned"]
    place = next((at for at, own in enumerate(record.variants) if own.name == assigned), None)
    if place is None or abs(choice["propensity"] - shares[place]) > _TOLERANCE:
        return False
    return assigned == variant or place == record.baseline


def _text(value: Any, *, is_single: bool) -> str | None:
    """A field's value as overrides name it, and as workers compare it (`texts_of`): a number in decimal, `true` or `false`.

    Args:
        value: in a prediction.
        is_single: whether it has 32 bits in the event, if it is a float.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return float_text(np.float32(value) if is_single else np.float64(value))
    return None if value is None or isinstance(value, list) else str(value)


def _example(prediction: Prediction, variant: str, share: float, *, randomised: bool) -> str:
    choice = prediction[1]["rollout"]
    return (
        f"event {prediction[1]['event_id']}, rollout {choice['id']} revision {choice['revision']}: expected {variant} with a "
        f"propensity of {share:g}{'' if randomised else ' by an override'}, found {choice['assigned']} with "
        f"{choice['propensity']:g}{'' if choice['randomised'] else ', not randomised'}"
    )
