"""Which events count in a decision: those that are so old that their label must have come by now.

Labels are often slower for one outcome, such as a refund after weeks. If events counted as soon as their label is there, the fast
outcomes would be too many, and the version whose labels are faster would seem better or worse. So an event counts only when it
is mature, even if its label came early, and a label that comes after that counts no longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from millstream.schemas.arrays import Ints, Mask


@dataclass(frozen=True, slots=True)
class Matured:
    """Events sorted by maturity."""

    mature: Mask  # [events]
    labelled: Mask  # [events]: mature, and the label came in time


def matured(event_times: Ints, label_times: Ints, now: int, maturity: int) -> Matured:
    """Sort events by maturity.

    Args:
        event_times: ms since the epoch, [events].
        label_times: when each label came, ms since the epoch; negative: none came, [events].
        now: ms since the epoch. An event from the future, by a clock that is wrong, is not mature.
        maturity: how long a label may take, ms.
    """
    mature = event_times + maturity <= now
    in_time = (label_times >= 0) & (label_times <= event_times + maturity)
    return Matured(mature, np.asarray(mature & in_time))
