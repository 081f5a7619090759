from millstream.consumers.comparison.metrics import ALL, ComparisonMetrics


def test_every_counter_is_there_before_its_first_count() -> None:
    """`rate` and `increase` don't see a first count that comes with its series."""
    families = {family.name: family for family in ComparisonMetrics("p").registry.collect()}
    for metric in ALL:
        if metric.kind == "counter":
            values = [s.value for s in families[metric.name.removesuffix("_total")].samples if s.name == metric.name]
            assert values, metric.name
            assert set(values) == {0}
