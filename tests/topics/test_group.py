"""What is left of asking a group's coordinator that is away."""

import gc
import os
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from millstream.pipeline.loading import load_pipeline
from millstream.topics import group
from millstream.topics.local.ports import free_ports
from tests.pipeline.pipeline_files import SMALL


def clients() -> int:
    return sum(isinstance(one, AdminClient) for one in gc.get_objects())


def test_client_of_a_question_that_timed_out_is_gone_without_the_garbage_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late answer to such a question ends the process (librdkafka), and a worker collects hardly ever."""
    monkeypatch.setattr(group, "ANSWER_TIMEOUT", 0.1)
    file = tmp_path / "pipeline.yaml"
    file.write_text(SMALL)
    (port,) = free_ports(1)
    gc.collect()
    gc.disable()
    try:
        before = clients()
        group.refuse_foreign_group(
            {"bootstrap.servers": f"127.0.0.1:{port}"}, load_pipeline(file, os.environ), "a-group"
        )
        assert clients() == before
    finally:
        gc.enable()
