"""A model whose close() never comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.consumers.processes import Worker
from tests.consumers.python_service import answered, python_service, send

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker


@pytest.mark.broker
def test_close_that_hangs_is_told_and_not_waited_for(kafka: Broker, tmp_path: Path) -> None:
    service = python_service(tmp_path, kafka, "return {'y': inputs['x'][:, 0]}", limits={"drain_timeout": "1s"})
    (model,) = tmp_path.glob("models/number/1/model.py")
    model.write_text(model.read_text() + "    def close(self):\n        time.sleep(1000)\n")
    send(service, range(3))
    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait(60) == 0
        assert (
            "a model's close() has not come back within 1 s (limits.drain_timeout): nothing waits for it" in worker.log
        )
        assert "totals: 3 events read, 3 predicted" in worker.log
    assert len(answered(service)) == 3
