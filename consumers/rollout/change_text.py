"""Says a change of a rollout in words, for logs, commands and reports. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.consumers.rollout.slots import percent
from millstream.pipeline.printable import printable

if TYPE_CHECKING:
    from millstream.consumers.rollout.record import RolloutRecord


def change_text(record: RolloutRecord) -> str:
    """The change that led to a record, on one line without its time."""
    mark = ", an emergency" if record.emergency else ""
    shares = ", ".join(
        f"{own.name} (version {own.version}) {percent(share)}"
        for own, share in zip(record.variants, record.shares, strict=True)
    )
    return printable(
        f"revision {record.revision}: {record.action} by {record.by}{mark}: {shares}, {record.state} ({record.reason})"
    )
