import math
import re
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

import millstream.consumers.observability.metrics as m
from millstream.consumers.cli.metrics import metrics_markdown
from millstream.consumers.observability.histogram import MAX_BUFFERED_VALUES
from millstream.consumers.observability.histogram import Histogram as OurHistogram
from millstream.consumers.observability.metric import Metric

VALUES = st.lists(st.floats(0, 5000, allow_nan=False), max_size=30)


def exposed(metrics: m.Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """What a scrape reads: sample name and labels -> value."""
    text = generate_latest(metrics.registry).decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples}


def labels(**given: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({"pipeline": "flights", **given}.items()))


def test_every_declared_metric_is_listed_and_no_other() -> None:
    declared = {value for value in vars(m).values() if isinstance(value, Metric)}
    assert set(m.ALL) == declared
    assert len({metric.name for metric in m.ALL}) == len(m.ALL)


@pytest.mark.parametrize("metric", m.ALL, ids=lambda metric: metric.name)
def test_names_follow_prometheus(metric: Metric) -> None:
    assert re.fullmatch(r"millstream_[a-z_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert bool(metric.buckets) == (metric.kind == "histogram")
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert metric.help.endswith(".")


def test_counters_gauges_and_histograms_reach_a_scrape_with_the_pipelines_name() -> None:
    metrics = m.Metrics("flights")
    metrics.count(m.RECORDS_READ, 3, "in")
    metrics.count(m.RECORDS_READ, 2, "in")
    metrics.set(m.LAG, 7, "in", "0")
    metrics.observe(m.STAGE_SECONDS, 0.003, "infer")
    found = exposed(metrics)
    assert found["millstream_records_read_total", labels(topic="in")] == 5
    assert found["millstream_lag_events", labels(topic="in", partition="0")] == 7
    assert found["millstream_stage_seconds_bucket", labels(stage="infer", le="0.0025")] == 0
    assert found["millstream_stage_seconds_bucket", labels(stage="infer", le="0.005")] == 1


def test_forgotten_value_is_gone_and_may_come_back() -> None:
    metrics = m.Metrics("flights")
    for partition in ("0", "1"):
        metrics.set(m.LAG, 7, "in", partition)
    metrics.forget(m.LAG, "in", "0")
    metrics.forget(m.LAG, "in", "0")  # what is gone already is no error
    lags = {key for key in exposed(metrics) if key[0] == "millstream_lag_events"}
    assert lags == {("millstream_lag_events", labels(topic="in", partition="1"))}
    metrics.set(m.LAG, 1, "in", "0")
    assert exposed(metrics)["millstream_lag_events", labels(topic="in", partition="0")] == 1


def test_two_workers_in_a_process_count_apart() -> None:
    one, other = m.Metrics("flights"), m.Metrics("flights")
    one.count(m.TOMBSTONES)
    name = ("millstream_tombstones_total", labels())
    assert (exposed(one)[name], exposed(other)[name]) == (1, 0)


def test_series_whose_labels_are_known_begin_at_zero() -> None:
    """Prometheus' `rate` misses the count that a series begins with."""
    found = exposed(m.Metrics("flights"))
    for reason in m.REASONS:
        assert found["millstream_dead_letters_total", labels(reason=reason)] == 0
    assert found["millstream_paused_partitions", labels()] == 0


@settings(max_examples=25)
@given(st.lists(VALUES, max_size=4))
def test_bulk_histogram_counts_as_prometheus_own_does(batches: list[list[float]]) -> None:
    metrics = m.Metrics("flights")
    own = Histogram("own", "", ("pipeline",), buckets=m.LATENCY_BUCKETS, registry=metrics.registry).labels("flights")
    for values in batches:
        metrics.observe_many(m.END_TO_END, np.array(values, np.float64))
        for value in values:
            own.observe(value)
    found = exposed(metrics)
    for bound in [*map(float, m.LATENCY_BUCKETS), math.inf]:
        le = "+Inf" if math.isinf(bound) else str(bound)
        bulk = found["millstream_end_to_end_seconds_bucket", labels(le=le)]
        assert bulk == found["own_bucket", labels(le=le)]
    assert found["millstream_end_to_end_seconds_count", labels()] == found["own_count", labels()]
    assert found["millstream_end_to_end_seconds_sum", labels()] == pytest.approx(found["own_sum", labels()])


def test_values_observed_one_by_one_are_counted_as_prometheus_own_does() -> None:
    metrics = m.Metrics("flights")
    own = Histogram("own", "", ("pipeline", "stage"), buckets=m.DURATION_BUCKETS, registry=metrics.registry)
    for number in range(3 * MAX_BUFFERED_VALUES + 7):
        stage, seconds = ("infer", "encode")[number % 3 == 0], number / 100
        metrics.observe(m.STAGE_SECONDS, seconds, stage)
        own.labels("flights", stage).observe(seconds)
    found = exposed(metrics)
    own_samples = {key: value for key, value in found.items() if key[0].startswith("own") and "created" not in key[0]}
    assert len(own_samples) == 2 * (len(m.DURATION_BUCKETS) + 3)
    for (name, given_), value in own_samples.items():
        assert found[name.replace("own", "millstream_stage_seconds"), given_] == pytest.approx(value)


def test_no_value_is_lost_or_counted_twice_when_threads_observe_and_a_scrape_reads() -> None:
    histogram = OurHistogram("h", "", ("stage",), m.DURATION_BUCKETS)
    series = histogram.labels("infer")

    def observe() -> None:
        for _ in range(20_000):
            series.observe(1.0)

    threads = [Thread(target=observe) for _ in range(4)]
    for thread in threads:
        thread.start()
    seen = [0]
    while any(thread.is_alive() for thread in threads):
        seen.append(int(series.read()[0][-1]))
    assert seen == sorted(seen)
    counts, total = series.read()
    assert (counts[-1], total) == (80_000, 80_000.0)


def test_reference_page_is_up_to_date() -> None:
    page = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
    introduction = page.split("| metric |")[0]
    assert page == introduction + metrics_markdown(), (
        "docs/metrics.md is not what the code says. Write it again: make docs"
    )
