"""Dead letters made by hand, and written as a worker writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.schemas.dead_letters import DeadLetter
from tests.broker.clients import produce
from tests.schemas.letters import encoded

if TYPE_CHECKING:
    from collections.abc import Iterable


def a_letter(**fields: Any) -> DeadLetter:
    """A dead letter that differs from all others only in `fields`."""
    return DeadLetter(
        **{
            "reason": "undecodable",
            "error": "bad",
            "pipeline": "p",
            "topic": "in",
            "partition": 0,
            "offset": 0,
            "timestamp": 5,
            "failed_at": 1_700_000_000_000,
            "key": b"k",
            "value": b"v",
            **fields,
        }
    )


def write_letters(bootstrap: str, topic: str, letters: Iterable[DeadLetter], *, partition: int = 0) -> None:
    """Write them into one partition of a dead-letter topic, in order."""
    produce(bootstrap, topic, [(letter.key, encoded(letter)) for letter in letters], partition=partition)
