"""The job on a real broker, with records in each of its topics that nobody honest writes: it counts them and goes on."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from confluent_kafka import Producer

from millstream.consumers.comparison.chunks import LABEL_ROW, Chunk
from millstream.consumers.comparison.join import WRITER_NUMBERS
from millstream.consumers.comparison.names import app_name
from millstream.consumers.supervision.child import reported_port, scrape
from millstream.schemas.comparisons import ComparisonEncoder, Pair, PrimaryRows, Variant
from millstream.schemas.records import COMPARISON
from millstream.schemas.row_models import RowModels
from tests.broker.clients import produce
from tests.broker.raw_batch import ZSTD, send_batch
from tests.comparison.scene import MINUTE, START, Events, Job, Scene, check, comparison_scene
from tests.comparison.test_partials import a_partial

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

pytest.importorskip("faust", reason="the comparison job's packages: make .venv/.comparison")
pytestmark = pytest.mark.durable
FAR = 2**62


def forged(events: Events, primary: tuple[str, int], shadow: Variant, outputs: Any = None) -> list[bytes]:
    """Comparisons of other models, or with other outputs."""
    encoder = ComparisonEncoder(COMPARISON.reserved_id, "p", shadow=shadow)
    rows = len(events.ids)
    given = {"p": events.primary} if outputs is None else {"p": outputs}
    latency = np.full(rows, np.nan)
    primaries = PrimaryRows(RowModels([primary]), given, latency)
    return encoder.encode(events.ids, [None] * rows, events.times, primaries, given, latency)


def hostile_comparisons(scene: Scene) -> int:
    """Write them; returns how many are of models that the file does not name."""
    topic, few = scene.pipeline.comparison.topic, Events.make(1, seed=9)
    known = Variant("delay", 2)
    pairs = [("delay", n, Variant("delay", n)) for n in range(3, 1003)]
    pairs += [("\x1b[31m", 1, known), ("delay", 1, Variant("delay", 2, "\x1b[2J"))]
    values = [forged(few, (model, version), shadow)[0] for model, version, shadow in pairs]
    times = [-(2**63), -1, FAR, 2**63 - 1]
    odd = Events(
        ["odd"] * 4, np.array(times, np.int64), few.primary.repeat(4), few.shadow.repeat(4), few.labels.repeat(4)
    )
    values += forged(odd, ("delay", 1), known)
    values += [b"", b"junk", values[0][:-1], values[0] + b"\0", b"\0\xff\xff\xff\xff" + values[0][5:]]
    values += [b"\0" + values[0][1:5] + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"]
    produce(scene.bootstrap, topic, [(None, value) for value in values], partition=0)
    send_batch(scene.bootstrap, topic, [None, values[0]], name=b"\xff", key=b"\xff")
    send_batch(scene.bootstrap, topic, [bytes(90 << 20)], codec=ZSTD)
    return len(pairs) + 1


def aborted_comparisons(scene: Scene, events: Events) -> None:
    """Comparisons that would count, in a transaction that is taken back."""
    producer = Producer({"bootstrap.servers": scene.bootstrap, "transactional.id": f"aborts-{scene.pipeline.name}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in forged(events, ("delay", 1), Variant("delay", 2)):
        producer.produce(scene.pipeline.comparison.topic, value, b"k", 0)
    producer.flush(30)
    producer.abort_transaction(30)


def hostile_state(scene: Scene) -> None:
    """Write to the topics that are the job's own."""
    name = app_name(scene.pipeline)
    bomb = zlib.compress(bytes(50 << 20))
    pair = [["delay", 1, "primary"], ["delay", 2, "shadow"]]
    import msgspec  # noqa: PLC0415

    window = START - START % (60 * MINUTE)
    parts: list[Any] = [
        b"",
        b"junk",
        b"\xdd\xff\xff\xff\xff",
        msgspec.msgpack.encode([window, pair, 0, bomb]),
        msgspec.msgpack.encode([window, pair, FAR, a_partial().pack()]),
        msgspec.msgpack.encode([FAR, pair, 0, a_partial().pack()]),
        msgspec.msgpack.encode([window, [["x", 1, "primary"], ["y", 2, "z"]], 0, a_partial().pack()]),
        None,
    ]
    labels = np.zeros(3, LABEL_ROW)
    labels["value"] = [np.nan, np.inf, 7]
    rows = np.zeros(0, LABEL_ROW)
    closing = Chunk("labels", 1, FAR, FAR, 0, rows).pack()
    chunk = Chunk("labels", WRITER_NUMBERS, 0, 0, 0, rows, (Pair(Variant("x", 1), Variant("y", 1)),)).pack()
    produce(scene.bootstrap, f"{name}-parts", [(b"k", part) for part in parts], partition=0)
    produce(
        scene.bootstrap, f"{name}-labels", [(b"k", v) for v in (b"x", b"y" * 25, None, labels.tobytes())], partition=0
    )
    chunks = [(b"0/1", closing), (b"0/x", closing), (b"0/" + b"9" * 5000, closing), (b"0/3", b"junk"), (b"\xff", chunk)]
    produce(scene.bootstrap, f"{name}-chunks-changelog", chunks, partition=0)
    produce(scene.bootstrap, f"{name}-parts-changelog", [(b"0/1/2/x", p) for p in parts[1:4]], partition=0)


@pytest.mark.full
def test_hostile_records_of_every_topic_are_counted_and_the_results_are_exact(tmp_path: Path, kafka: Broker) -> None:
    scene, events = comparison_scene(tmp_path, kafka), Events.make(2000)
    labels = scene.pipeline.labels
    assert labels is not None
    with Job(scene, "--metrics-port", "0") as job:
        job.wait_for(lambda: job.metric("millstream_comparison_update_seconds") > 0, "at work")
        scene.compare(events.part(0, 1000))
        aborted_comparisons(scene, Events.make(30, seed=11))
        strangers = hostile_comparisons(scene)
        hostile_state(scene)
        for value in (b"", b"junk", b'{"event": "a", "happened": NaN}', b"[" * 10_000, b"\0\0\0\0\1\xff"):
            send_batch(kafka.bootstrap, labels.topic, [value], name=b"\xff", key=b"\xff")
        scene.label(events.ids[:1000], events.labels[:1000].tolist())
        job.wait_for_results(events=1000, labelled=1000)
        job.wait_for(lambda: job.left_out("unknown_pair") >= strangers + 1, "rid of unknown pairs")
        job.wait_for(lambda: job.left_out("damaged") >= 7 + 2 + 3, "rid of damaged records")
        assert job.left_out("bad_batch") == 1
        assert job.left_out("ahead") == 2
        assert job.left_out("late") == 2
        port = reported_port(job.log)
        assert port is not None
        series = [line for line in (scrape(port) or "").splitlines() if line.startswith("millstream_evaluation{")]
        assert 0 < len(series) < 100
        assert job.stop() == 0
        assert "Traceback" not in job.log
        assert job.log.replace("\n", "").isprintable()
        assert len(job.log.splitlines()) < 40
    with Job(scene, "--metrics-port", "0") as job:  # which finds the hostile changelogs
        rest = events.part(1000, 2000)
        scene.compare(rest)
        scene.label(rest.ids, rest.labels.tolist())
        rows = job.wait_for_results(events=2000, labelled=2000, duplicates=0, repeated_labels=0)
        assert job.left_out("damaged") >= 4 + 1
        assert job.stop() == 0
        assert "Traceback" not in job.log
    for row in rows:
        check(row, events)
        assert not row["final"] or row["window_start"] < START + 3 * 60 * MINUTE
