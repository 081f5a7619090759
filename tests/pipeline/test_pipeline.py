from __future__ import annotations

import pickle
import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.pipeline.errors import PipelineError
from millstream.pipeline.pipeline import Pipeline
from tests.pipeline.pipeline_files import SMALL, WHOLE, changed, lines_of, load

HUSH = "correct horse"


def test_smallest_file_takes_every_default(tmp_path: Path) -> None:
    pipeline = load(tmp_path, SMALL)
    assert (pipeline.group_id, pipeline.dead_letters.topic) == ("small", "small-dead-letters")
    assert pipeline.input.topics == ("events",)
    assert pipeline.schemas.directory == tmp_path / "schemas"
    assert pipeline.model.repository == tmp_path / "models"
    assert (pipeline.model.gpu_memory, pipeline.model.engine_cache) == (None, tmp_path / "engines")
    assert (pipeline.batch.max_events, pipeline.batch.max_wait, pipeline.batch.max_bytes) == (256, 0.005, 2**20)
    assert (pipeline.limits.in_flight_bytes, pipeline.commit_seconds) == (128 * 2**20, 0.1)
    assert pipeline.output.carry_headers == ("traceparent", "tracestate", "baggage")
    assert pipeline.client_config() == {"bootstrap.servers": "127.0.0.1:9092"}
    assert pipeline.path == tmp_path / "pipeline.yaml"


@pytest.fixture
def whole(tmp_path: Path) -> Pipeline:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "kafka-password").write_text(HUSH + "\n", encoding="utf-8")
    return load(tmp_path, WHOLE, KAFKA_USER="infer", REGISTRY_PASSWORD=HUSH, KAFKA_BOOTSTRAP="a:1,b:2")


def test_field_of_an_input_may_have_options(tmp_path: Path) -> None:
    fields = "{x: [a, {field: b.c, missing: 0}], y: {field: d, type: text}}"
    loaded = load(tmp_path, SMALL.replace("name: m\n", f"name: m\n  inputs: {fields}\n"))
    assert loaded.model.inputs == {"x": ("a", {"field": "b.c", "missing": 0}), "y": {"field": "d", "type": "text"}}


def test_every_option_can_be_set(whole: Pipeline, tmp_path: Path) -> None:
    assert whole.client_config() == {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "SASL_SSL",
        "socket.timeout.ms": "8000",
        "enable.ssl.certificate.verification": "true",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "infer",
        "sasl.password": HUSH,
    }
    registry = whole.schemas.registry
    assert registry is not None
    assert registry.password is not None
    assert registry.password.get_secret_value() == HUSH
    assert registry.ca == tmp_path / "tls" / "ca.pem"
    assert whole.schemas.directory is None
    store = whole.feature_store
    assert store is not None
    assert store.password is not None
    assert (store.password.get_secret_value(), store.timeout, store.ca) == (HUSH, 0.02, tmp_path / "tls" / "ca.pem")
    assert [(one.name, one.key, one.max_age) for one in store.lookups] == [("plane", "plane:{tail_number}", 3600.0)]
    assert whole.group_id == "flights"
    assert whole.input.topics == ("flights-departures", "flights-replays")
    assert whole.input.schema_name == "flight-departure"
    assert whole.model.inputs == {"features": ("a", "b"), "text": "remark"}
    assert whole.model.repository == tmp_path / ".." / "models"
    assert (whole.batch.max_wait, whole.limits.drain_timeout) == (0.0, 60.0)
    assert (whole.model.gpu_memory, whole.model.engine_cache) == (3 * 2**30, tmp_path / "../engines")
    assert (whole.batch.target_p99, whole.batch.cost, whole.batch.max_cost) == (0.08, "remark", 4000)


def test_secrets_are_shown_nowhere(whole: Pipeline) -> None:
    shown = f"{whole!r} {whole} {whole.model_dump()} {whole.model_dump_json()}"
    assert HUSH not in shown
    assert "**********" in shown


def test_secrets_are_not_in_errors_nor_in_their_tracebacks(tmp_path: Path) -> None:
    text = SMALL.replace("  topic: events", "  topics: 5") + "batch:\n  max_wait: soon\n"
    text = text.replace("9092\n", "9092\n  client:\n    sasl.password: ${PW}\n    ssl.key.password: {env: PW}\n")
    text = text.replace(
        "input:", "schemas:\n  registry: {url: 'https://me:correct horse@r', password: [correct horse]}\ninput:"
    )
    with pytest.raises(PipelineError) as caught:
        load(tmp_path, text, PW=HUSH)
    assert len(caught.value.problems) == 4
    assert HUSH not in "".join(traceback.format_exception(caught.value))
    assert HUSH not in repr(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("url", ["https://r/?apikey={}", "https://r/#{}", "https://me:{}@r", "htps://r?apikey={}"])
def test_key_in_the_registrys_url_is_refused_and_not_shown(tmp_path: Path, url: str) -> None:
    with pytest.raises(PipelineError, match=r"schemas\.registry\.url: expected a URL without") as caught:
        load(tmp_path, SMALL.replace("input:", f"schemas:\n  registry: {{url: '{url.format(HUSH)}'}}\ninput:"))
    assert HUSH not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(("content", "secret"), [("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), (" a ", " a ")])
def test_secret_file_loses_one_line_break(tmp_path: Path, content: str, secret: str) -> None:
    (tmp_path / "pw").write_bytes(content.encode())
    pipeline = load(tmp_path, changed("9092\n", "9092\n  client: {sasl.password: {file: pw}}\n"))
    assert pipeline.client_config()["sasl.password"] == secret


@pytest.mark.parametrize("password", ["0123", "1_000", "1:30", "0x1F", "1.10", "1e3", "2013-01-01", "007", "12", "1.5"])
def test_password_in_a_variable_stays_as_written(tmp_path: Path, password: str) -> None:
    pipeline = load(
        tmp_path, changed("9092\n", "9092\n  client:\n    sasl.password: '${PW}'\n    client.id: ${PW}\n"), PW=password
    )
    assert pipeline.client_config() | {"bootstrap.servers": ""} == {
        "bootstrap.servers": "",
        "sasl.password": password,
        "client.id": password,
    }


def test_variables_expand_inside_values_and_take_yaml_types(tmp_path: Path) -> None:
    text = (
        SMALL.replace("127.0.0.1:9092", "${HOST}:${PORT:-9092}") + "  version: ${VERSION}\n  allow_nan: ${NAN:-true}\n"
    )
    text += "group: '$${HOST}'\n"
    pipeline = load(tmp_path, text, HOST="kafka", VERSION="7", NAN="")
    assert pipeline.kafka.bootstrap == "kafka:9092"
    assert (pipeline.model.version, pipeline.model.allow_nan) == (7, True)
    assert pipeline.group == "${HOST}"


@given(value=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
def test_variable_cannot_change_the_structure(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    folder = tmp_path_factory.getbasetemp()
    pipeline = load(folder, SMALL + 'group: "${GROUP}"\n', GROUP=value)
    assert pipeline.group_id == value
    assert pipeline.model_copy(update={"group": None}) == load(folder, SMALL)


def test_section_with_nothing_under_it_takes_its_defaults(tmp_path: Path) -> None:
    empty = load(tmp_path, SMALL + "batch:\n  # max_events: 1\nlimits:\ndead_letters:\nschemas:\n  registry:\n")
    assert empty == load(tmp_path, SMALL)


def test_alias_repeats_a_value(tmp_path: Path) -> None:
    assert load(tmp_path, changed("schema: event", "schema: &e event\n  key: *e")).input.key == "event"


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe"])
def test_secret_file_without_a_secret_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "pw").write_bytes(content)
    found = lines_of(tmp_path, changed("9092\n", "9092\n  client: {sasl.password: {file: pw}}\n"))
    assert found[0].startswith("4: kafka.client.sasl.password: ")
    assert str(tmp_path / "pw") in found[0]


def test_byte_order_mark_is_no_matter(tmp_path: Path) -> None:
    assert load(tmp_path, "\ufeff" + SMALL) == load(tmp_path, SMALL)


def test_pipeline_is_frozen(tmp_path: Path) -> None:
    pipeline = load(tmp_path, SMALL)
    with pytest.raises(ValueError, match="frozen"):
        pipeline.batch.max_events = 1


def test_error_survives_pickling() -> None:
    error = PipelineError(Path("p.yaml"), [])
    assert pickle.loads(pickle.dumps(error)).path == error.path


@pytest.mark.parametrize(
    ("form", "name", "says"),
    [
        ("avro, schema: e", "order.json", "expected `format: json` beside it, found avro"),
        (
            "json",
            "orders-value",
            "expected a file whose name ends in .json, or schemas.registry for the subject orders-value",
        ),
    ],
)
def test_json_schema_needs_json_and_a_file_or_a_registry(tmp_path: Path, form: str, name: str, says: str) -> None:
    file = f"""
name: p
kafka: {{bootstrap: "a:1"}}
input: {{topic: t, format: {form}, json_schema: {name}}}
output: {{topic: o}}
model: {{name: m}}
"""
    with pytest.raises(PipelineError, match=f"input.json_schema: {says}"):
        load(tmp_path, file)
