"""What a stranger needs to use a pipeline: a Kafka client, an Avro library and our `.avsc` files. Nothing of ours runs here
but the worker, in its own process; the programs are those of docs/wire-format.md.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import fastavro
import pytest

from tests.consumers.processes import Worker
from tests.consumers.service import flights_service

if TYPE_CHECKING:
    from tests.broker.choice import Broker

ROOT = Path(__file__).parents[2]
PRODUCER, CONSUMER = re.findall(
    r"^```python\n(.*?)^```$", (ROOT / "docs" / "wire-format.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
# What a test replaces -> how the page's programs have it.
NAMES = {"bootstrap": "127.0.0.1:9092", "events": "flights-departures", "predictions": "flights-predictions"}


def start(folder: Path, program: str, **replaced: str) -> subprocess.Popen[str]:
    """Run a program of the page, in a folder that holds it and the schemas alone, on this test's broker and topics."""
    for old, new in replaced.items():
        program = program.replace(NAMES[old], new)
    file = folder / f"{abs(hash(program))}.py"
    file.write_text(program, encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, "-I", "-u", str(file)], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_programs_of_the_page_send_an_event_and_read_its_prediction(kafka: Broker, tmp_path: Path) -> None:
    service = flights_service(tmp_path, kafka)
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    shutil.copy(ROOT / "examples" / "flights" / "schemas" / "1-flight-departure.avsc", stranger)
    shutil.copy(ROOT / "schemas" / "1000001-prediction-v1.avsc", stranger)
    names = {"bootstrap": kafka.bootstrap, "events": service.inputs[0], "predictions": service.output}
    with Worker(service.file) as worker:
        worker.wait_ready()
        sending = start(stranger, PRODUCER, **names)
        assert sending.wait(30) == 0, sending.communicate()[1]
        # The page's group has a fixed name; a run of its own keeps this test from reading what another has left.
        reading = start(stranger, CONSUMER.replace("prediction-printer", service.group + "-reader"), **names)
        try:
            assert reading.stdout is not None
            line = reading.stdout.readline()
        finally:
            reading.kill()
            reading.communicate()
        assert worker.stop() == 0
    said = re.fullmatch(r"2013-09-01-UA1545-EWR-0515 flights-delay 1 \{'late_probability': (0\.\d+)\}\n", line)
    assert said is not None, line
    assert 0 < float(said[1]) < 1


@pytest.mark.parametrize("name", ["1000001-prediction-v1", "1000002-dead-letter-v1", "1000003-comparison-v1"])
def test_our_schemas_are_avro_by_themselves(name: str) -> None:
    schema = fastavro.schema.load_schema(str(ROOT / "schemas" / f"{name}.avsc"))
    assert isinstance(schema, dict)
    assert schema["type"] == "record"
