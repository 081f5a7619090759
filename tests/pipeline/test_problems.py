from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.pipeline import sections
from millstream.pipeline.errors import PipelineError
from millstream.pipeline.loading import load_pipeline
from millstream.pipeline.pipeline import Pipeline
from millstream.pipeline.reference import options
from tests.pipeline.pipeline_files import SMALL, changed, lines_of, load

# What to write in the small file, and the line and the words that the one problem must have.
PROBLEMS = [
    ("name: small", "name: 5", 1, "name: expected text, found the number 5. Write for example: name: my-pipeline"),
    ("name: small", "name: no spaces", 1,
     "name: expected one name, not a path (1 to 200 of the characters a-z A-Z 0-9 . _ -, and not . or ..), found 'no spaces'"),
    ("name: small", "nome: x\nname: y", 1, "nome: unknown key. Did you mean name?"),
    ("name: small\n", "group: x\n", 1, "name: this option is missing. Write for example: name: my-pipeline"),
    ("kafka:\n  bootstrap: 127.0.0.1:9092\n", "", 1,
     "kafka: this section is missing. Write `kafka:` and under it bootstrap."),
    ("127.0.0.1:9092", "http://kafka:1/x", 3,
     "kafka.bootstrap: expected host:port, several separated by commas, found"),
    ("127.0.0.1:9092", "a:1,,b:2", 3, "kafka.bootstrap: expected host:port"),
    ("127.0.0.1:9092", "a:1,b:92922", 3, "kafka.bootstrap: expected a port up to 65535, found 'a:1,b:92922'"),
    ("127.0.0.1:9092", "kafka://a:1", 3, "expected host:port, found 'kafka://a:1': leave out what is before the host"),
    ("127.0.0.1:9092", "http://a:1", 3, "kafka.bootstrap: expected host:port, because Kafka has a protocol of its own, found"),
    ("127.0.0.1:9092", "bob:hunter2@a:1", 3,
     "kafka.bootstrap: expected host:port without a user in it, several separated by commas. Write `sasl.username` and "
     "`sasl.password` under `kafka.client`."),
    ("127.0.0.1:9092", "[a, b]", 3,
     "kafka.bootstrap: expected text, found a list. Write for example: bootstrap: 127.0.0.1:9092"),
    ("127.0.0.1:9092", "", 3, "kafka.bootstrap: expected text, found nothing"),
    ("127.0.0.1:9092", "${NOWHERE}", 3,
     "the environment variable NOWHERE is not set. Set it, or give a default: ${NOWHERE:-value}."),
    ("127.0.0.1:9092", "${NO WHERE}", 3, "expected ${NAME} or ${NAME:-default}, found ${NO WHERE}."),
    ("9092\n", "9092\n  client: {group.id: x}\n", 4,
     "kafka.client.group.id: Millstream sets group.id itself: write `group:`"),
    ("9092\n", "9092\n  client:\n    a: 1\n    acks: 1\n", 6,
     "kafka.client.acks: Millstream sets acks itself: it follows from `delivery`"),
    ("9092\n", "9092\n  client: {enable.auto.commit: true}\n", 4, "how often is `commit_every`"),
    ("9092\n", "9092\n  client: {bootstrap.servers: x}\n", 4, "write the addresses under `kafka.bootstrap`"),
    ("9092\n", "9092\n  client: {auto.offset.reset: latest}\n", 4, "write `input.start`"),
    ("9092\n", "9092\n  client: {error_cb: f}\n", 4, "kafka.client.error_cb: only code can set this property"),
    ("9092\n", "9092\n  client: {a: [1]}\n", 4,
     "kafka.client.a: expected a single value, {file: PATH} or {env: NAME}, found a list."),
    ("9092\n", "9092\n  client: {a: {file: x, env: y}}\n", 4,
     "kafka.client.a: expected a single value, {file: PATH} or {env: NAME}, found other keys."),
    ("9092\n", "9092\n  client: {a: }\n", 4,
     "kafka.client.a: expected a single value, {file: PATH} or {env: NAME}, found nothing."),
    ("9092\n", "9092\n  client: {a: {env: NOWHERE}}\n", 4, "in the environment variable NOWHERE, which is not set."),
    ("9092\n", "9092\n  client: {a: {file: nowhere}}\n", 4, "nowhere: No such file or directory. Check the path."),
    ("9092\n", "9092\n  client: 5\n", 4, "kafka.client: expected a mapping, found the number 5."),
    ("9092\n", "9092\n  client:\n    client.id: x\n    sesion.timeout.ms: 1\n", 6,
     'kafka.client.sesion.timeout.ms: the Kafka client refuses it: No such configuration property: "sesion.timeout.ms". Correct'),
    ("output:\n", "output:\n  include: [{}]\n", 9, "output.include: expected names of fields in the list, found an empty"),
    ("output:\n", "output:\n  include: [a, {field: b, type: text}]\n", 9,
     "output.include: expected names of fields in the list, found a mapping. With types, write a mapping in place of the list"),
    ("9092\n", "9092\n  client: {security_protocol: SSL}\n", 4,
     "names, and no underscores. Write security.protocol."),
    ("9092\n", "9092\n  client: {group.instance.id: a}\n", 4, "Millstream sets group.instance.id itself: write `membership:"),
    ("9092\n", "9092\n  client: {group.protocol: consumer}\n", 4, "write `membership: {protocol: ...}`"),
    ("9092\n", "9092\n  client: {session.timeout.ms: 45s}\n", 4, "kafka.client.session.timeout.ms: expected a number alone"),
    ("9092\n", "9092\n  client:\n    client.id: 6s\n    linger.ms: 1.5\n    fetch.min.bytes: 1MB\n", 7,
     "kafka.client.fetch.min.bytes: expected a number alone, found more behind it"),
    ("9092\n", "9092\n  client: {security.protocol: SASL_SSL}\n", 4,
     "kafka.client.security.protocol: expected `sasl.mechanism` beside it, such as PLAIN"),
    ("9092\n", "9092\n  client: {security.protocol: SSL, ssl.ca.location: none.pem}\n", 4,
     "kafka.client.ssl.ca.location: expected the path of a file, found no file there."),
    ("9092\n", "9092\n  client: {compression.type: gzap}\n", 4, 'kafka.client.compression.type: the Kafka client refuses it'),
    ("9092\n", "9092\n  client: {socket.timeout.ms: 1}\n", 4, "value 1 is outside allowed range 10..300000. Correct it"),
    ("9092\n", "9092\n  client:\n    security.protocol: SASL_SSL\n    sasl.mechanism: PLAIN\n", 5,
     "kafka.client.security.protocol: the Kafka client refuses it: sasl.username and sasl.password must be set."),
    ("9092\n", "9092\n  client: {max.poll.interval.ms: 1000}\n", 4, "kafka.client.max.poll.interval.ms: the Kafka client"),
    ("9092\n", "9092\n  client: {session.timeout.ms: 9000}\nmembership: {protocol: consumer}\n", 4,
     "kafka.client.session.timeout.ms: the Kafka client refuses it"),
    ("9092\n", "9092\n  client: {max.in.flight: 10}\ndelivery: exactly_once\n", 4,
     "kafka.client.max.in.flight: the Kafka client refuses it"),
    ("9092\n", "9092\n  client: {message.timeout.ms: 20000}\n", 4, "Millstream sets message.timeout.ms itself"),
    ("9092\n", "9092\n  client: {isolation.level: read_uncommitted}\n", 4, "Millstream sets isolation.level itself"),
    ("9092\n", "9092\n  client: {plugin.library.paths: ./x.so}\n", 4,
     "kafka.client.plugin.library.paths: a pipeline file may not run code, and plugin.library.paths makes the Kafka client load"),
    ("9092\n", "9092\n  client: {ssl.engine.location: ./x.so}\n", 4, "client.ssl.engine.location: a pipeline file may not run"),
    ("9092\n", "9092\n  client: {ssl.engine.id: x}\n", 4, "kafka.client.ssl.engine.id: a pipeline file may not run code"),
    ("9092\n", "9092\n  client: {sasl.kerberos.kinit.cmd: id}\n", 4,
     "kafka.client.sasl.kerberos.kinit.cmd: a pipeline file may not run code, and sasl.kerberos.kinit.cmd is a command for the"),
    ("9092\n", "9092\n  client: {sasl.kerberos.principal: x;id}\n", 4,
     "kafka.client.sasl.kerberos.principal: expected letters, digits and . _ / @ -, found other characters"),
    ("9092\n", "9092\n  client: {sasl.kerberos.principal: -S}\n", 4, "sasl.kerberos.principal: expected letters, digits"),
    ("9092\n", "9092\n  client: {sasl.kerberos.keytab: $(id)}\n", 4, "kafka.client.sasl.kerberos.keytab: expected letters"),
    ("9092\n", "9092\n  client: {sasl.kerberos.service.name: '`id`'}\n", 4, "sasl.kerberos.service.name: expected letters"),
    ("9092\n", "9092\n  client: {ssl.providers: 'default,/tmp/x.so'}\n", 4, "kafka.client.ssl.providers: expected names of"),
    ("9092\n", "9092\n  client: {offset.store.path: /tmp/x}\n", 4, "Millstream sets offset.store.path itself"),
    ("9092\n", "9092\n  client: {default.topic.config: x}\n", 4, "only code can set this property"),
    ("9092\n", "9092\n  client: {interceptors: x}\n", 4, "only code can set this property"),
    ("9092\n", '9092\n  client: {"plugin.library.paths\\0": ./x.so}\n', 4,
     "kafka.client: this key holds the character U+0000, which is not allowed. Remove it."),
    ("9092\n", '9092\n  client: {client.id: "a\\ud800"}\n', 4, "kafka.client.client.id: this value holds the character U+D800"),
    ("topic: events", "topic: a/b", 5, "input.topic: expected a Kafka topic's name (1 to 249 of"),
    ("topic: events", "topics: [a, ..]", 5, "input.topics[1]: expected a Kafka topic's name"),
    ("topic: events", f"topic: {'x' * 250}", 5, "input.topic: expected a Kafka topic's name"),
    ("topic: events", "topics:\n    - a\n    - 5", 7, "input.topics[1]: expected text, found the number 5."),
    ("topic: events", "topics: []", 5, "input.topics: expected at least one topic, found an empty list. Write"),
    ("name: m\n", "name: m\ncomparison: {task: multiclass, classes: [a]}\n", 12,
     "comparison.classes: expected at least 2 items, found 1."),
    ("topic: events", "topics: [a, a]", 5, "input.topics: expected each name once, found 'a' twice. Remove one."),
    ("topic: events", "topic: events\n  topics: [a]", 4,
     "input: expected `topic` or `topics`, found both. Keep one."),
    ("  topic: events\n", "", 4, "input.topics: this option is missing. Write for example: topics: [feature-events]"),
    ("topic: events", "topic: predictions", 5,
     "input.topic: predictions is also output.topic: the pipeline would read its own"),
    ("topic: events", "topics: [a, small-dead-letters]", 5,
     "input.topics: small-dead-letters is also dead_letters.topic"),
    ("topic: predictions", "topic: small-dead-letters", 9,
     "output.topic: small-dead-letters is output.topic and dead_letters.topic."),
    ("topic: events", "topic: events\n  filter: type = order", 6,
     "input.filter: expected a condition such as `amount >= 1000`, `country == DE` or `country in [DE, AT]`, found"),
    ("topic: events", "topic: events\n  filter: []", 6,
     "input.filter: expected a condition or a list of them, found an empty list."),
    ("topic: events", "topic: events\n  filter: {type: order}", 6, "input.filter: expected a condition such as"),
    ("format: json", "format: xml", 6,
     "input.format: expected avro or json, found 'xml'. Write for example: format: avro"),
    ("format: json", "format: JSON", 6, "input.format: expected avro or json, found 'JSON'. Did you mean `json`?"),
    ("format: json", "format: jsn", 6, "input.format: expected avro or json, found 'jsn'. Did you mean `json`?"),
    ("topic: events", "topics: &a [*a]", 5, "input.topics[0]: this alias (*name) refers to what it is part of."),
    ("format: json", "format: !thing json", 6, "input.format: the YAML tag !thing means nothing here. Remove it."),
    ("schema: event", "schema: event\n  event_id: 5", 8, "input.event_id: expected text, found the number 5."),
    ("schema: event", "schema: event\n  event_time: true", 8, "input.event_time: expected text, found true."),
    ("schema: event", "schema: event\n  start: middle", 8,
     "input.start: expected earliest or latest, found 'middle'."),
    ("schema: event", "schema: event\n  schema: other", 8,
     "input.schema: this key is written twice, on lines 7 and 8. Keep one."),
    ("schema: event", "schema: event\n  ? [a]\n  : b", 8, "input: expected text as a key, found a list or mapping"),
    ("schema: event", "schema: ''", 7, "input.schema: expected text, found ''."),
    ("topic: predictions", "topic: predictions\n  colour: red", 10,
     "output.colour: unknown key. Allowed here: carry_headers, format, include, topic."),
    ("topic: predictions", "topic: predictions\n  carry_headers: x", 10,
     "output.carry_headers: expected a list, found 'x'. Write for example: carry_headers: [traceparent, tracestate, baggage]"),
    ("schema: event", "schema: event\n  group: mine", 8,
     "input.group: unknown key here. It belongs at the top level of the file."),
    ("model:\n", "input.start: latest\nmodel:\n", 10, "input.start: unknown key. Write `input:` and under it `start:`."),
    ("model:\n", "max_wait: 5ms\nmodel:\n", 10, "max_wait: unknown key here. It belongs under `batch:`."),
    ("model:\n", "event_id: id\nmodel:\n", 10, "event_id: unknown key here. It belongs under `input:` or `labels:`."),
    ("model:\n", "catch_up: 5m\nmodel:\n", 10, "catch_up: unknown key here. It belongs under `scaling:`."),
    ("model:\n", "inputs: x\nmodel:\n", 10, "inputs: unknown key here. It belongs under `model:`. Or did you mean input?"),
    ("model:\n", "topic: x\nmodel:\n", 10, "topic: unknown key. Allowed here: batch, "),
    ("name: m\n", "name: ../m\n", 11,
     "model.name: expected one name, not a path (1 to 200 of the characters a-z A-Z 0-9 . _ -, and not . or ..), found '../m'"),
    ("name: m\n", "name: /m\n", 11, "model.name: expected one name, not a path"),
    ("name: m\n", "name: ..\n", 11, "model.name: expected one name, not a path"),
    ("name: m\n", "name: m\nshadows: [{version: 2, model: ../x}]\n", 12, "shadows[0].model: expected one name, not a path"),
    ("name: m\n", "name: m\nshadows: [{version: 2, name: a b}]\n", 12, "shadows[0].name: expected one name, not a path"),
    ("name: m\n", "name: m\n  version: 2147483648\n", 12, "model.version: expected at most 2147483647, found"),
    ("name: m\n", "name: m\nshadows: [{version: 2147483648}]\n", 12, "shadows[0].version: expected at most 2147483647"),
    ("name: m\n", f"name: m\n  threads: {'9' * 5000}\n", 12, "model.threads: expected a whole number, found '999"),
    ("name: m\n", "name: m\n  gpu_memory: 4\n", 12, "model.gpu_memory: expected a size, found 4 without a unit: write 4B or"),
    ("name: m\n", "name: m\n  gpu_memory: 4GiB\n  device: cpu\n", 12,
     "model.gpu_memory: expected a `device` other than cpu beside it. Leave one of the two options out."),
    ("name: m\n", "name: m\n  gpu_memory: 100MiB\n  instances: 2\n", 12,
     "model.gpu_memory: expected at least 64MiB for each of the copies (instances: 2), found 104,857,600 bytes."),
    ("name: m\n", "name: m\n  threads: 1e999\n", 12, "model.threads: expected a whole number, found '1e999'."),
    ("name: m\n", "name: m\nshadows: [{version: 2, sample_rate: .inf}]\n", 12, "sample_rate: expected a number, found '.inf'."),
    ("name: m\n", "name: m\nshadows: [{version: 2, sample_rate: .nan}]\n", 12, "sample_rate: expected a number, found '.nan'."),
    (
        "name: m\n",
        f"name: m\nshadows: [{{version: 2, sample_rate: {'9' * 5000}.0}}]\n",
        12,
        "sample_rate: expected a number, found '999",
    ),
    ("name: m\n", "name: m\n  version: 2024-01-01\n", 12,
     "model.version: expected a whole number, latest or an alias (a name that begins with a letter), found '2024-01-01'."),
    ("name: m\n", "name: !!python/object/apply:os.getcwd []\n", 11, "model.name: the YAML tag tag:yaml.org,2002:python/object/"),
    ("name: m\n", "name: m\n  version: '1'\n", 12,
     "model.version: expected a whole number, latest or an alias (a name that begins with a letter), found '1' in quotes. "
     "Remove the quotes."),
    ("name: m\n", "name: m\n  version: 1.0\n", 12,
     "alias (a name that begins with a letter), found the number 1.0. Write for example: version: 1"),
    ("name: m\n", "name: m\n  threads: 2.0\n", 12,
     "model.threads: expected a whole number, found the number 2.0. Write for example: threads: 2"),
    ("name: m\n", "name: m\n  version: 0\n", 12, "model.version: expected at least 1, found the number 0."),
    ("name: m\n", "name: m\n  threads: true\n", 12,
     "model.threads: expected a whole number, found true. Write for example: threads: 1"),
    ("name: m\n", "name: m\n  threads: 1.5\n", 12, "model.threads: expected a whole number, found the number 1.5."),
    ("name: m\n", "name: m\n  allow_nan: 1\n", 12, "model.allow_nan: expected true or false, found the number 1."),
    ("name: m\n", "name: m\n  device: gpu\n", 12, "model.device: expected auto, cpu, cuda or tensorrt, found 'gpu'."),
    ("name: m\n", "name: m\n  repository: 5\n", 12,
     "model.repository: expected a path, found the number 5. Write for example: repository: models"),
    ("name: m\n", "name: m\n  inputs: {x: 5}\n", 12,
     "model.inputs.x: expected an event field or a list of them, found the number 5."),
    ("name: m\n", "name: m\n  inputs: {x: [a, {missing: 0}]}\n", 12,
     "model.inputs.x: expected an event field or a list of them, found a list. Write [field, field], or {field: name}"),
    ("name: m\n", "name: m\nbatch:\n  max_wait: soon\n", 13,
     "batch.max_wait: expected a duration such as 5ms, 0.5s, 2m, 1h or 7d, found 'soon'. Write for example: max_wait: 5ms"),
    ("name: m\n", "name: m\nbatch:\n  max_wait: 5\n", 13,
     "batch.max_wait: expected a duration, found 5 without a unit: write 5ms or 5s."),
    ("name: m\n", "name: m\nbatch:\n  max_bytes: 4096\n", 13,
     "batch.max_bytes: expected a size, found 4096 without a unit: write 4096B or"),
    ("name: m\n", "name: m\nbatch: 5\n", 12, "batch: expected a mapping, found the number 5."),
    ("name: m\n", "name: m\nbatch:\n  max_events: 60000\n", 13,
     "limits.in_flight_events (100000) must be at least twice batch.max_events (60000)"),
    ("name: m\n", "name: m\nlimits:\n  in_flight_events: 500\n", 13,
     "limits.in_flight_events: limits.in_flight_events (500) must be at least twice"),
    ("name: m\n", "name: m\nlimits:\n  in_flight_bytes: 1MiB\n", 13,
     "must be at least 8 times batch.max_bytes (1048576 bytes)"),
    ("name: m\n", "name: m\nbatch:\n  cost: tokens\n", 13, "batch.cost: batch.cost and batch.max_cost go together"),
    ("name: m\n", "name: m\nbatch:\n  max_cost: 9\n", 13, "batch.cost is not there. Write both or none."),
    ("name: m\n", "name: m\nbatch: {cost: tokens, max_cost: 0}\n", 12, "batch.max_cost: expected at least 1"),
    ("name: m\n", "name: m\ndelivery: exactly_once\nbatch:\n  target_p99: 15ms\n", 14,
     "batch.target_p99: expected more than commit_every (15ms)"),
    ("name: m\n", "name: m\ndelivery: exactly_once\ncommit_every: 20s\n", 13,
     "commit_every: expected at most 5s with exactly_once, found 20s: the broker ends a transaction"),
    ("name: m\n", "name: m\nlimits:\n  stall_after: 0s\n", 13, "limits.stall_after: expected more than 0"),
    ("name: m\n", "name: m\ndelivery: at_most_once\n", 12, "delivery: expected at_least_once or exactly_once, found"),
    ("name: m\n", "name: m\nmembership: {protocol: consumer, static: true}\n", 12, "membership.static: expected false"),
    ("name: m\n", "name: m\nschemas:\n  directory: a\n  registry: {url: 'http://r'}\n", 13,
     "schemas.directory: schemas come from a directory or from a registry, found both."),
    ("name: m\n", "name: m\nschemas:\n  directory:\n", 13, "schemas.directory: expected a path, found nothing."),
    ("name: m\n", "name: m\nschemas:\n  registry:\n    url: r:8081\n", 14,
     "schemas.registry.url: expected a URL that begins with http:// or https://, found 'r:8081'"),
    ("name: m\n", "name: m\nschemas:\n  registry:\n    url: http://r/?apikey=k\n", 14,
     "schemas.registry.url: expected a URL without `?` and `#`"),
    ("name: m\n", "name: m\nschemas:\n  registry:\n    url: http://r\n    username: u\n", 13,
     "schemas.registry.password: username and password go together."),
    ("name: m\n", "name: m\nschemas:\n  registry: {}\n", 13,
     "schemas.registry.url: this option is missing. Write for example: url: https://registry.example:8081"),
    ("name: m\n", 'name: m\n"a\\nb\\e[1m": 1\n', 12, "a\\nb\\x1b[1m: unknown key."),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "words"), PROBLEMS, ids=[row[1][:40] for row in PROBLEMS])
def test_problem_names_its_line_and_what_to_do(tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
    found = lines_of(tmp_path, changed(old, new))
    assert len(found) == 1
    assert found[0].startswith(f"{line}: ")
    assert words in found[0]
    assert found[0].count("Write for example:") <= 1


def test_list_of_wrong_items_is_not_said_to_be_short(tmp_path: Path) -> None:
    found = lines_of(tmp_path, changed("name: m\n", "name: m\ncomparison: {task: multiclass, classes: [1, 2, 3]}\n"))
    assert [line.partition(": ")[2] for line in found] == [
        f"comparison.classes[{at}]: expected text, found the number {at + 1}." for at in range(3)
    ]


def test_all_problems_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = (
        SMALL.replace("9092", "${PORT}").replace("json", "xml")
        + "  nam: x\nbatch:\n  max_wait: soon\n  max_wait: 1s\n  max_events: 0\n"
    )
    found = lines_of(tmp_path, text)
    assert [line.split(":")[0] for line in found] == ["3", "6", "12", "15", "16"]


# Each alias stands for ten of the one before: 10 to the 8th values.
GROWING = b"a: &a [1]\n" + b"".join(
    b"%c: &%c [%s]\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 10)) for c in range(98, 106)
)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty."),
        (b"# only a comment\n", "the file is empty."),
        (b"- a\n- b\n", ":1: expected a mapping, such as `name: my-pipeline`, found a list"),
        (b"version https://git-lfs.github.com/spec/v1\n", "my-pipeline`, found a pointer of Git LFS, not the file"),
        (b"\n\nhello\n", ":3: expected a mapping, such as `name: my-pipeline`, found 'hello'"),
        (b"name: a\nkafka: [1\ngroup: b\n", ":2: not valid YAML at column 8: this bracket isn't closed. Add a comma or `]`."),
        (b"name: {env: ${A}}\n", "Put quotes around a ${NAME} that stands inside { } or [ ]."),
        (b"name: a\n\tkafka: b\n", ":2: not valid YAML at column 1: a tab stands where YAML allows only spaces. Replace it"),
        (b"name: a\nname: *nobody\n", ":2: not valid YAML at column 7: found undefined alias 'nobody'"),
        (b"name: a\n---\nname: b\n", ":2: not valid YAML at column 1: expected a single document in the stream"),
        (b"name: a\ngroup: \xff\n", ":2: expected UTF-8 text, found the byte 0xff. Save the file as UTF-8."),
        (b"name: a\ngroup: \x07\n", ":2: not valid YAML: the character U+0007 is not allowed. Remove it."),
        (b"name: " + b"[" * 600, ":1: the YAML is nested too deeply"),
        (b"name: a\n" + GROWING, "the file has more than 20000 values"),
        (b"name: a\ngroup: \0\n", ":2: not valid YAML: the character U+0000 is not allowed. Remove it."),
        (b'name: a\ngroup: "\\U00110000"\n', ":2: not valid YAML: a number in an escape or a directive is too large."),
        (b"%YAML " + b"9" * 5000 + b".1\n---\nname: a\n", ":1: not valid YAML: a number in an escape or a directive"),
        (b"a: 1\n" * 200, ":2: a: this key is written twice, on lines 1 and 2. Keep one. More than 100 others follow."),
        (b"name: a\n#" + b"a" * 2**18, "expected at most 262144 bytes, found more."),
    ],
)  # fmt: skip
def test_file_that_cannot_be_read_as_a_mapping_is_one_clear_message(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_bytes(content)
    with pytest.raises(PipelineError) as caught:
        load_pipeline(path, {})
    message, *excerpt = str(caught.value).split("\n")
    assert words in message
    assert len(excerpt) in {0, 2}


@pytest.mark.parametrize(
    ("content", "message", "excerpt"),
    [
        ("name: a\nkafka\n  bootstrap: b\n", ":2: not valid YAML at column 1: expected a colon after the key, as in `kafka:`",
         ["kafka", "^"]),
        ("name a\nkafka:\n  bootstrap: b\n", ":1: not valid YAML at column 1: expected a colon after the key, as in `name: a`",
         ["name a", "^"]),
        ("batch:\n  max_events 64\n  # note\n  max_wait: 5ms\n", ":2: not valid YAML at column 3: expected a colon after the key",
         ["  max_events 64", "  ^"]),
        ("name:a\nkafka:\n", ":1: not valid YAML at column 1: expected a space after the colon, as in `name: a`",
         ["name:a", "^"]),
        ("batch:\n\tmax_events: 64\n", ":2: not valid YAML at column 1: a tab stands where", ["→max_events: 64", "^"]),
        ("name: a: b\n", ":1: not valid YAML at column 8: a second `:` stands in one value.", ["name: a: b", "       ^"]),
        ("name: a\n  group: b\n", ":2: not valid YAML at column 3: this line is indented deeper", ["  group: b", "  ^"]),
        ("batch:\n    cost: a\n  max_cost: 1\n", ":3: not valid YAML at column 3: this line doesn't fit the lines above it",
         ["  max_cost: 1", "  ^"]),
        ("name: 'a\ngroup: b\n", ":1: not valid YAML at column 7: this quote isn't closed.", ["name: 'a", "      ^"]),
        ("name: %a\n", ":1: not valid YAML at column 7: a value can't begin with %.", ["name: %a", "      ^"]),
        ("name: " + "a" * 200 + ": b\n", ":1: not valid YAML at column 207: a second `:`", ["a" * 50 + ": b", " " * 50 + "^"]),
        ("name: a\rkafka\r  bootstrap: b\r", ":2: not valid YAML at column 1: expected a colon after the key", ["kafka", "^"]),
        ("name: a\r\nkafka\r\n  bootstrap: b\r\n", ":2: not valid YAML at column 1: expected a colon", ["kafka", "^"]),
        ("# a\u2028# b\x85# c\u2029name: a: b\n", ":4: not valid YAML at column 8: a second `:`", ["name: a: b", "       ^"]),
        ("sasl.password: a: b\n", ":1: not valid YAML at column 17: a second `:`", []),
        ("kafka:\n  bob:hunter2@a\n  client:\n", ":2: not valid YAML at column 3: expected a key with a colon", []),
    ],
)  # fmt: skip
def test_wrong_syntax_is_told_in_plain_words_with_the_line_and_a_caret(
    tmp_path: Path, content: str, message: str, excerpt: list[str]
) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(content)
    with pytest.raises(PipelineError) as caught:
        load_pipeline(path, {})
    said, *lines = str(caught.value).split("\n")
    assert message in said
    assert lines == ["    " + line for line in excerpt]


def test_no_text_is_shown_a_pattern() -> None:
    """Pydantic's own check of a pattern would show the pattern. Names and units say in words what they expect."""
    for model in (Pipeline, *(each for each in vars(sections).values() if isinstance(each, type))):
        fields = getattr(model, "model_fields", {})
        assert not [
            name for name, field in fields.items() if any(getattr(each, "pattern", None) for each in field.metadata)
        ]


def test_missing_file_and_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"nowhere.yaml: cannot read the pipeline file: No such file or directory"):
        load_pipeline(tmp_path / "nowhere.yaml", {})
    with pytest.raises(PipelineError, match="cannot read the pipeline file: Is a directory"):
        load_pipeline(tmp_path, {})


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        (
            "orders/pipeline.yaml",
            "Rename {}/orders/pipeline.yml to pipeline.yaml: in a folder, Millstream looks for this name only.",
        ),
        ("order", "Did you mean `{}/orders`?"),
        ("order/pipeline.yaml", "Did you mean `{}/orders`?"),
        ("other/refund.yml", "Did you mean `{}/other/refunds.yaml`?"),
        ("other/pipeline.yaml", "The folder has events.yaml, refunds.yaml: name the file in place of the folder."),
        ("empty/pipeline.yaml", "Check the path and its permissions."),
        ("nowhere.yaml", "Check the path and its permissions."),
    ],
)
def test_path_that_leads_nowhere_is_told_with_what_may_be_meant(tmp_path: Path, path: str, advice: str) -> None:
    tmp_path = tmp_path / "a" / "b" / "c"  # the search goes up, and other tests leave pipelines in folders beside
    for name in ("orders", "other", "empty"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("orders/pipeline.yml", "other/refunds.yaml", "other/events.yaml", "other/refund.txt"):
        (tmp_path / name).touch()
    with pytest.raises(PipelineError) as refused:
        load_pipeline(tmp_path / path, {})
    said = f"{tmp_path / path}: cannot read the pipeline file: No such file or directory. "
    assert str(refused.value) == said + advice.format(tmp_path)


def test_mistyped_path_in_our_own_folder_is_corrected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "orders.yaml").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PipelineError, match=r"Did you mean `orders\.yaml`\?$"):
        load_pipeline(Path("order.yaml"), {})


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
# YAML takes keys of up to 1,024 characters, also in JSON, which writes some characters as 12.
KEYS = st.text(max_size=80) | st.sampled_from([step for option in options() for step in option.path.split(".")])


@settings(max_examples=60)
@given(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner)))
def test_any_yaml_is_a_pipeline_error_and_nothing_else(tmp_path_factory: pytest.TempPathFactory, data: object) -> None:
    with pytest.raises(PipelineError) as caught:
        load(tmp_path_factory.getbasetemp(), json.dumps(data))  # YAML, written another way
    assert str(caught.value).count("\n") + 1 == len(caught.value.problems)


def test_each_property_that_the_kafka_client_refuses_is_told_and_no_secret_with_it(tmp_path: Path) -> None:
    client = "client:\n    acl: 1\n    security.protocol: {env: HUSH}\n    linger.ms: soon\n"
    found = lines_of(tmp_path, changed("9092\n", f"9092\n  {client}"), HUSH="correct horse")
    assert [line.split(": ")[:2] for line in found] == [
        ["5", "kafka.client.acl"],
        ["6", "kafka.client.security.protocol"],
        ["7", "kafka.client.linger.ms"],
    ]
    assert "correct horse" not in " ".join(found)


def test_trial_of_the_kafka_client_connects_nowhere(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        client = (
            "{security.protocol: SASL_SSL, sasl.mechanism: OAUTHBEARER, sasl.oauthbearer.method: OIDC, debug: all, "
            f"sasl.oauthbearer.client.id: a, sasl.oauthbearer.token.endpoint.url: 'http://{address}/token'}}"
        )
        load(tmp_path, SMALL.replace("127.0.0.1:9092\n", f"{address}\n  client: {client}\n"))
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()


def test_secret_that_the_kafka_client_quotes_in_part_is_not_shown(tmp_path: Path) -> None:
    """It cuts long values off, and a message has one line."""
    for secret in ("correct horse" * 100, "correct\nhorse"):
        (tmp_path / "hush").write_text(secret, encoding="utf-8")
        client = "client: {compression.type: {file: hush}}"
        (found,) = lines_of(tmp_path, changed("9092\n", f"9092\n  {client}\n"))
        assert found == (
            "4: kafka.client.compression.type: the Kafka client refuses it: its message quotes a secret and is not shown. "
            "Correct it, or leave it out."
        )


def test_secret_that_ends_for_libraries_of_c_before_its_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hush").write_bytes(b"correct\0horse")
    (found,) = lines_of(tmp_path, changed("9092\n", "9092\n  client: {sasl.password: {file: hush}}\n"))
    assert "the secret in the file hush holds the character U+0000" in found
    assert "correct" not in found


def test_properties_that_could_run_code_are_allowed_where_their_values_can_not(tmp_path: Path) -> None:
    client = (
        "{sasl.kerberos.principal: kafka/host-1.example@EXAMPLE, sasl.kerberos.keytab: /etc/keys/a b.keytab, "
        "ssl.providers: 'default,legacy', sasl.kerberos.service.name: kafka}"
    )
    load(tmp_path, changed("9092\n", f"9092\n  client: {client}\n"))
