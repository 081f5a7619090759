"""Seeded events: their bytes are what their schema says, and the peers' own code reads them."""

from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pytest

from benchmarks.errors import LeftOutError
from benchmarks.load import VECTOR, VECTOR_SCHEMA, WIDE, Vectors, json_events, vector_events, zigzag_varint
from benchmarks.measure import job_of, outputs_of
from benchmarks.peers.scorer import Scorer
from benchmarks.workloads import workload


@pytest.mark.parametrize("vectors", [VECTOR, WIDE])
def test_events_are_avro_of_their_schema(vectors: Vectors) -> None:
    load = vector_events(3, 7, vectors)
    schema = fastavro.parse_schema(VECTOR_SCHEMA)
    for number, value in enumerate(load.values):
        assert value[:5] == vectors.schema_id.to_bytes(5, "big")
        body = BytesIO(value[5:])
        event: Any = fastavro.schemaless_reader(body, schema, None)
        assert event["id"] == f"event-{number:010d}"
        assert len(event["x"]) == vectors.length
        assert not body.read()


@pytest.mark.parametrize(("number", "expected"), [(0, b"\0"), (63, b"\x7e"), (64, b"\x80\x01"), (512, b"\x80\x08")])
def test_counts_are_zigzag_varints(number: int, expected: bytes) -> None:
    assert zigzag_varint(number) == expected


def test_json_events_are_those_of_the_vector_workload() -> None:
    first = msgspec.json.decode(json_events(1, 7).values[0])
    assert (first["id"], len(first["x"])) == ("event-0000000000", VECTOR.length)


@pytest.mark.parametrize("name", ["vector", "flights", "json", "nested", "nested-avro"])
def test_peers_read_events_and_name_them_in_their_predictions(name: str, tmp_path: Path) -> None:
    chosen = workload(name, tmp_path)
    values = chosen.make(20, 1).values
    predictions = Scorer(job_of(chosen, "", "run")).score(values)
    assert [chosen.id_of(one) for one in predictions] == [chosen.id_of(one) for one in values]
    for prediction in predictions:
        (value,) = outputs_of(prediction, chosen.format).values()
        assert 0 <= value <= 1


def test_a_missing_tool_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.environments import rust_of  # noqa: PLC0415

    monkeypatch.setenv("PATH", "")
    with pytest.raises(LeftOutError, match="cargo is not installed"):
        rust_of("rust")
