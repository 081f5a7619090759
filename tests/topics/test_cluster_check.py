"""What a cluster has lost, by its ID and its topics."""

from __future__ import annotations

import pytest

from millstream.topics.cluster_check import MISSING_LOOKS, ClusterCheck, ClusterState

BEFORE = ClusterState("one", {"in": 4, "out": 4, "another's": 4})


def check() -> ClusterCheck:
    begun = ClusterCheck("b:9092", ["in", "out", "unseen"])
    assert begun.change(BEFORE) is None
    return begun


@pytest.mark.parametrize("partitions", [{"in": 4, "out": 4}, {"in": 8, "out": 4, "another's": 1, "new": 1}])
def test_what_is_there_or_is_of_others_is_no_loss(partitions: dict[str, int]) -> None:
    own = check()
    for _ in range(2 * MISSING_LOOKS):
        assert own.change(ClusterState("one", partitions)) is None


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (ClusterState("two", {}), "Kafka at b:9092 is another cluster: it was one, and now is two."),
        (ClusterState("one", {"in": 2, "out": 4}), "topics were deleted and created anew on b:9092"),
    ],
)
def test_other_cluster_and_fewer_partitions_are_told_at_once_with_what_to_do(now: ClusterState, says: str) -> None:
    lost = check().change(now)
    assert lost is not None
    assert lost.startswith(says)
    assert "millstream docs runbook#" in lost


def test_missing_topic_is_told_only_if_it_stays_away() -> None:
    own, without = check(), ClusterState("one", {"out": 4})
    for _ in range(MISSING_LOOKS - 1):
        assert own.change(without) is None
    assert own.change(BEFORE) is None
    for _ in range(MISSING_LOOKS - 1):
        assert own.change(without) is None
    lost = own.change(without)
    assert lost is not None
    assert lost.startswith("topics are gone from b:9092: in.")
