"""The programs of docs/wire-format.md, as they are but for names: an event is sent, predicted and read."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.schemas.records import OWN_SCHEMAS_FOLDER
from tests.consumers.processes import Worker
from tests.consumers.service import FLIGHTS_INPUT, flights_service

if TYPE_CHECKING:
    from tests.broker.choice import Broker
    from tests.consumers.service import Service

PAGE = (Path(__file__).parents[2] / "docs" / "wire-format.md").read_text("utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("kind", "producer", "consumer"), [("avro", 0, 1), ("json", 2, 3)])
def test_event_of_the_pages_producer_reaches_its_consumer(
    kafka: Broker, tmp_path: Path, kind: str, producer: int, consumer: int
) -> None:
    formats = {"input": {**FLIGHTS_INPUT, "format": kind}, "output": {"format": kind}}
    service = flights_service(tmp_path, kafka, **formats)
    for file in (tmp_path / "schemas" / "1-flight-departure.avsc", OWN_SCHEMAS_FOLDER / "1000001-prediction-v1.avsc"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    send, read = (written(service, tmp_path, number) for number in (producer, consumer))
    assert subprocess.run([sys.executable, send], cwd=tmp_path, timeout=60, check=False).returncode == 0
    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait() == 0
    with subprocess.Popen([sys.executable, "-u", read], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as reading:
        end = threading.Timer(60, reading.kill)
        end.start()
        try:
            assert reading.stdout is not None
            line = reading.stdout.readline()
        finally:
            end.cancel()
            reading.kill()
    assert re.fullmatch(r"2013-09-01-UA1545-EWR-0515 flights-delay 1 \{'late_probability': 0\.\d+\}\n", line)


def written(service: Service, folder: Path, number: int) -> Path:
    """A program of the page in a file, with the names of this test's broker, topics and group."""
    text = (
        PROGRAMS[number]
        .replace("127.0.0.1:9092", service.bootstrap)
        .replace("prediction-printer", f"{service.group}-p")
    )
    text = text.replace("flights-departures", service.inputs[0]).replace("flights-predictions", service.output)
    file = folder / f"program-{number}.py"
    file.write_text(text, encoding="utf-8")
    return file
