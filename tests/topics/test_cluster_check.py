"""What a cluster has lost, by its ID and the IDs of its topics."""

from __future__ import annotations

import pytest

from millstream.topics.cluster_check import MISSING_LOOKS, ClusterCheck, ClusterState

BEFORE = ClusterState("one", {"in": "a", "out": "b"})


def check() -> ClusterCheck:
    begun = ClusterCheck("b:9092")
    assert begun.change(BEFORE) is None
    return begun


def test_same_cluster_with_the_same_topics_has_lost_nothing() -> None:
    assert check().change(BEFORE) is None


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (ClusterState("two", {}), "Kafka at b:9092 is another cluster: it was one, and now is two."),
        (
            ClusterState("one", {"in": "c", "out": "b"}),
            "topics were deleted and created anew on b:9092 while this worker ran: in.",
        ),
    ],
)
def test_other_ids_are_told_at_once_with_what_to_do(now: ClusterState, says: str) -> None:
    lost = check().change(now)
    assert lost is not None
    assert lost.startswith(says)
    assert "millstream docs runbook#" in lost


def test_missing_topic_is_told_only_if_it_stays_away() -> None:
    own, without = check(), ClusterState("one", {"out": "b"}, frozenset({"in"}))
    for _ in range(MISSING_LOOKS - 1):
        assert own.change(without) is None
    assert own.change(BEFORE) is None
    for _ in range(MISSING_LOOKS - 1):
        assert own.change(without) is None
    lost = own.change(without)
    assert lost is not None
    assert lost.startswith("topics are gone from b:9092: in.")


def test_topic_whose_id_is_not_told_is_no_loss() -> None:
    own = check()
    assert own.change(ClusterState("one", {"out": "b"})) is None
    assert own.change(ClusterState("one", {"in": "a", "out": "b", "new": "d"})) is None
