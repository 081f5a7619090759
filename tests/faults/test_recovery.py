"""How long readers see no results when a worker ends, on any machine. `recovery.py` measures it on a quiet machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.recovery import CASES, Case, silence_of

if TYPE_CHECKING:
    from tests.broker.choice import Broker

# For a busy machine, on which rebalances, starts and commits take longer.
FACTOR, MORE = 2, 5.0  # the latter in seconds


@pytest.mark.durable
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_silence_is_bounded(kafka: Broker, case: Case) -> None:
    silence, starts = silence_of(case, kafka.bootstrap, seed=1601)
    assert silence < FACTOR * case.aim + MORE + max(starts, default=0.0)
