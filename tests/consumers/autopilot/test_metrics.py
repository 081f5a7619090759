from pathlib import Path

from millstream.consumers.autopilot.metrics import ALL, AutopilotMetrics, metrics_markdown

PAGE = Path(__file__).parents[3] / "docs" / "rollouts.md"


def test_page_lists_every_metric() -> None:
    assert metrics_markdown().strip() in PAGE.read_text("utf-8")


def test_every_series_is_there_before_its_first_value() -> None:
    """`rate` and `increase` don't see a first count that comes with its series."""
    families = {family.name: family for family in AutopilotMetrics("p").registry.collect()}
    for metric in ALL:
        values = [own.value for own in families[metric.name.removesuffix("_total")].samples if own.name == metric.name]
        if metric.kind == "gauge" and metric.labels:
            assert not values, "there is nothing yet that the labels could name"
        else:
            assert set(values) == {0}, metric.name
