"""A worker whose instance ID another process takes on another machine, whose locks it doesn't see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.consumers.processes import Worker
from tests.consumers.python_service import answered, python_service, send

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker


@pytest.mark.durable
def test_static_member_that_is_fenced_ends_at_once(kafka: Broker, tmp_path: Path) -> None:
    service = python_service(tmp_path, kafka, "return {'y': inputs['x'][:, 0]}", membership={"static": True})
    with Worker(service.file, "--instance-id", "a") as first:
        first.wait_ready()
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        with Worker(service.file, "--instance-id", "a", env={"TMPDIR": str(tmp_path / "elsewhere")}) as second:
            assert first.wait() == 1
            assert "the Kafka consumer can't go on: Fatal error: Broker: Static consumer fenced" in first.log
            send(service, range(5))
            service.wait_written(5)
            assert second.stop() == 0
    assert sorted(answered(service)) == [f"e{number}" for number in range(5)]
