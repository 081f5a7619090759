"""How a rollout chose the variant of each row of a batch, for the encoders of predictions and dead letters."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from millstream.schemas.arrays import Ints
from millstream.schemas.avro.varint import varint
from millstream.schemas.avro.write import NULL, VALUE, text

_JSON = msgspec.json.Encoder()


class RolloutChoice(NamedTuple):
    """How a rollout chose the variant for an event. The schema prediction-v3 documents the fields."""

    id: str
    revision: int
    assigned: str
    propensity: float  # 0 to 1
    randomised: bool
    model_ms: float


class RowChoices(NamedTuple):
    """The choices for the rows of a batch. Rows of one variant usually have the same choice, so each is there once."""

    choices: Sequence[RolloutChoice | None]  # None: there was no rollout
    of_rows: Ints  # for each row, the index of its choice in `choices`

    def take(self, rows: Ints) -> "RowChoices":
        """The choices of these rows."""
        return RowChoices(self.choices, self.of_rows[rows])

    def between(self, start: int, stop: int) -> "RowChoices":
        """The choices of the rows from `start` to `stop`."""
        return RowChoices(self.choices, self.of_rows[start:stop])

    def at(self, row: int) -> RolloutChoice | None:
        """The choice of one row."""
        return self.choices[int(self.of_rows[row])]


def avro_choice(choice: RolloutChoice | None) -> bytes:
    """The field `rollout` in Avro."""
    if choice is None:
        return NULL
    known = VALUE + text(choice.id) + varint(choice.revision) + text(choice.assigned)
    return known + struct.pack("<d?d", choice.propensity, choice.randomised, choice.model_ms)


def json_choice(choice: RolloutChoice | None) -> bytes:
    """The field `rollout` in JSON."""
    return _JSON.encode(None if choice is None else choice._asdict())
