"""A pipeline over JSON events of one text, `{"id": "e0", "text": "hi"}`, with a model on a server with OpenAI's API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from tests.consumers.service import Service, write_service
from tests.inference.executors.openai.models import write_config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.broker.choice import Broker


def llm_service(
    folder: Path,
    kafka: Broker,
    url: str,
    *,
    request: Mapping[str, Any] | None = None,
    outputs: tuple[str, ...] = ("text",),
    server: Mapping[str, Any] | None = None,
    **sections: Any,
) -> Service:
    """A pipeline for events such as `{"id": "e0", "text": "hi"}`."""
    write_config(folder / "models", url, request, outputs=outputs, server=server)
    defaults: dict[str, Any] = {
        "input": {"format": "json", "event_id": "id"},
        "model": {"name": "llm"},
        "output": {"format": "json"},
    }
    return write_service(folder, kafka, **defaults | sections)


def send(service: Service, texts: Sequence[str], key: str | None = None) -> None:
    """Write an event of each text, `e0` and so on, over all partitions; with a key, into one."""
    producer = Producer({"bootstrap.servers": service.bootstrap, "acks": "all"})
    for at, text in enumerate(texts):
        value = json.dumps({"id": f"e{at}", "text": text}).encode()
        producer.produce(service.inputs[0], value, key=key or f"e{at}", partition=0 if key else at % 4)
        producer.poll(0)
    assert producer.flush(30) == 0
