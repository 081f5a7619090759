"""Full batches of a fast model that run as one, on a real broker."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.consumers.processes import Worker
from tests.consumers.python_service import answered, python_service, send

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

OF_A_BACKLOG = 3000


@pytest.mark.parametrize("delivery", ["at_least_once", pytest.param("exactly_once", marks=pytest.mark.durable)])
def test_offsets_of_batches_whose_outputs_do_not_go_together_are_committed(
    kafka: Broker, tmp_path: Path, delivery: str
) -> None:
    # As numpy types texts: by the longest one of the batch.
    texts = 'return {"y": np.array(["x" * (int(x) // 100 + 1) for x in inputs["x"][:, 0]])}'
    service = python_service(tmp_path, kafka, texts, delivery=delivery, batch={"max_events": 64, "max_wait": "5ms"})
    send(service, range(OF_A_BACKLOG))
    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait() == 0
    assert service.committed() == service.input_ends()
    assert Counter(answered(service)) == Counter(f"e{number}" for number in range(OF_A_BACKLOG))
