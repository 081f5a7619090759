"""The record of a rollout on the control topic: schema rollout-v1, with its encoding. docs/rollout-rules.md has test vectors."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, get_args

import fastavro

from millstream.consumers.rollout.routing import FieldOverride, RoutingPlan
from millstream.consumers.rollout.slots import Ranges, SlotRange, shares_of
from millstream.pipeline.rollout_section import Strategy
from millstream.pipeline.shares import SLOTS
from millstream.schemas.avro.types import parsed
from millstream.schemas.datums import DatumsOf
from millstream.schemas.errors import BadSchemaError, NotWireFormat, UnknownSchema
from millstream.schemas.records import ROLLOUT
from millstream.schemas.store import Schema
from millstream.schemas.wire import frame

if TYPE_CHECKING:
    from millstream.schemas.store import SchemaStore

_SCHEMA: Final = parsed(Schema(ROLLOUT.reserved_id, ROLLOUT.name, ROLLOUT.definition))
STRATEGIES: Final[tuple[str, ...]] = get_args(Strategy)
_MOST: Final = 2**53
"""No revision and no time is as large: the next one must fit into the schema, and into JSON."""


class BadRolloutError(ValueError):
    """A record of the control topic is no rollout, or not a possible one.

    Raised by `RolloutDecoder.decode` and `encode_rollout`. A reader keeps its last state and shows the message with the record's
    offset.
    """


@dataclass(frozen=True, slots=True)
class RolloutVariant:
    """A model version that may answer events."""

    name: str
    model: str
    version: int


@dataclass(frozen=True, slots=True)
class RolloutRecord:
    """The state of a pipeline's rollout, and the change that led to it. The schema rollout-v1 documents the fields."""

    pipeline: str
    revision: int
    replaces: int
    change_id: str
    at: int  # ms since the epoch
    by: str
    action: str
    reason: str
    rollout: str  # the salt of the routing
    strategy: str
    state: str
    variants: tuple[RolloutVariant, ...]  # the baseline first
    ranges: Ranges
    mode: str = "act"
    emergency: bool = False
    before_state: str = ""
    before_shares: tuple[int, ...] = ()
    keys: tuple[tuple[bytes, int], ...] = ()
    fields: tuple[FieldOverride, ...] = ()
    strategy_state: str = "{}"

    @property
    def key(self) -> bytes:
        """The record's key."""
        return self.pipeline.encode()

    @property
    def shares(self) -> tuple[int, ...]:
        """The slots of each variant, of 10,000."""
        return shares_of(self.ranges, len(self.variants))

    @property
    def baseline(self) -> int:
        """The index of the variant that is the baseline now: after a promotion, the one with all events."""
        return self.shares.index(max(self.shares)) if self.state == "promoted" else 0

    def plan(self) -> RoutingPlan:
        """What workers route by."""
        return RoutingPlan(self.rollout, self.ranges, len(self.variants), dict(self.keys), self.fields)


def encode_rollout(record: RolloutRecord, schema_id: int) -> bytes:
    """The record in the wire format. Values of an override are written in their alphabetical order.

    Raises:
        BadRolloutError: nobody could read it. Once it is written, compaction would remove the record before it.
    """
    check_record(record)
    datum = asdict(record)
    datum["variants"] = [asdict(variant) for variant in record.variants]
    datum["ranges"] = [{"slots": slots, "variant": variant} for slots, variant in record.ranges]
    datum["keys"] = [{"key": key, "variant": variant} for key, variant in record.keys]
    datum["fields"] = [
        {"field": own.field, "values": sorted(own.values), "variant": own.variant} for own in record.fields
    ]
    out = io.BytesIO()
    out.write(frame(schema_id))
    fastavro.schemaless_writer(out, _SCHEMA, datum)
    return out.getvalue()


class RolloutDecoder:
    """Decodes records with the schemas that they were written with."""

    def __init__(self, store: SchemaStore) -> None:
        self._datums = DatumsOf(store, _SCHEMA)

    def decode(self, value: bytes) -> RolloutRecord:
        """The record.

        Raises:
            BadRolloutError: the value is no rollout, or not a possible one.
            SchemaUnavailable: the schema can't be had at the moment.
        """
        try:
            datum = self._datums.one(value)
        except (NotWireFormat, UnknownSchema, BadSchemaError) as error:
            raise BadRolloutError(
                f"expected a record of the schema {ROLLOUT.name} ({error}): only Millstream may write to the control topic"
            ) from error
        record = _record(datum)
        check_record(record)
        return record


def _record(datum: dict[str, Any]) -> RolloutRecord:
    return RolloutRecord(
        **datum
        | {
            "before_shares": tuple(datum["before_shares"]),
            "variants": tuple(RolloutVariant(**own) for own in datum["variants"]),
            "ranges": tuple(SlotRange(**own) for own in datum["ranges"]),
            "keys": tuple((own["key"], own["variant"]) for own in datum["keys"]),
            "fields": tuple(
                FieldOverride(own["field"], frozenset(own["values"]), own["variant"]) for own in datum["fields"]
            ),
        }
    )


def check_record(record: RolloutRecord) -> None:
    """Raises BadRolloutError for a state in which events could not be routed or changes not be told apart."""
    variants = range(len(record.variants))
    named = [variant for _, variant in (*record.ranges, *record.keys)] + [own.variant for own in record.fields]
    slots = [own.slots for own in record.ranges]
    names = [own.name for own in record.variants]
    texts = [record.rollout, *names, *(own.model for own in record.variants)]
    for is_wrong, expected, found in (
        (not record.variants, "at least one variant", "none"),
        (sum(slots) != SLOTS or min(slots, default=0) < 1, f"ranges of {SLOTS} slots together", f"{sum(slots)}"),
        (any(own not in variants for own in named), f"variants from 0 to {len(variants) - 1}", f"{sorted(set(named))}"),
        (len(set(names)) < len(names), "each variant once", f"{names}"),
        (not all(own.isprintable() for own in texts), "names without control characters", f"{texts}"),
        (
            not 0 <= record.replaces < record.revision < _MOST,
            "a revision above the one it replaces",
            f"{record.revision} after {record.replaces}",
        ),
        (abs(record.at) >= _MOST, "a time in ms since the epoch", f"{record.at}"),
        (record.strategy not in STRATEGIES, f"a strategy of {', '.join(STRATEGIES)}", repr(record.strategy)),
        (record.mode not in ("act", "advise"), "the mode act or advise", repr(record.mode)),
        (not _is_json(record.strategy_state), "a strategy's state in JSON", repr(record.strategy_state[:80])),
    ):
        if is_wrong:
            raise BadRolloutError(
                f"rollout of {record.pipeline}, revision {record.revision}: expected {expected}, found {found}: "
                "start the rollout anew"
            )


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
