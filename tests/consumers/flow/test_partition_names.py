import re

from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.flow.partition_names import ranges_of

PARTITIONS = st.lists(st.tuples(st.sampled_from(["a", "a-1", "b"]), st.integers(0, 30)))


def test_thousand_partitions_are_one_range() -> None:
    assert ranges_of(("events", number) for number in range(1000)) == "events/0-999"


def test_gaps_and_topics_begin_anew() -> None:
    found = ranges_of([("b", 0), ("a", 7), ("a", 3), ("a", 4), ("b", 1), ("a", 3)])
    assert found == "a/3-4, a/7, b/0-1"
    assert ranges_of([]) == "nothing"


@given(PARTITIONS)
def test_ranges_name_exactly_the_partitions(partitions: list[tuple[str, int]]) -> None:
    named = []
    for name in ranges_of(partitions).split(", ") if partitions else []:
        found = re.fullmatch(r"(.+)/(\d+)(?:-(\d+))?", name)
        assert found is not None
        first, last = int(found[2]), int(found[3] or found[2])
        named += [(found[1], number) for number in range(first, last + 1)]
    assert named == sorted(set(partitions))
