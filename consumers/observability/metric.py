"""The declaration of a metric."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric's declaration. Each also carries the label `pipeline`."""

    name: str
    kind: str  # counter, gauge or histogram
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
