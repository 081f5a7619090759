"""The checker finds each kind of error, wherever it is, and finds nothing if there is none."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.faults.checker import RIGHT, Result, Sent, check

KEYS = st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=1, max_size=30)


def sent_by_key(keys: list[bytes]) -> list[Sent]:
    """Events of these keys in turn; a key's partition is its own."""
    numbers = {key: count() for key in keys}
    offsets = {key: count() for key in keys}
    return [Sent(f"e{at}", key, next(numbers[key]), key[0], next(offsets[key])) for at, key in enumerate(keys)]


def answered(sent: list[Sent], topic: str = "predictions") -> list[Result]:
    return [Result(event.id, event.key, topic, 0, at) for at, event in enumerate(sent)]


def ends(sent: list[Sent]) -> dict[int, int]:
    return {event.partition: event.offset + 1 for event in sent}


@given(KEYS)
def test_one_result_each_in_order_is_right(keys: list[bytes]) -> None:
    sent = sent_by_key(keys)
    assert check(sent, answered(sent), ends(sent)) == RIGHT
    assert str(RIGHT) == "nothing is wrong"


@given(KEYS, st.data())
def test_missing_result_is_lost(keys: list[bytes], data: st.DataObject) -> None:
    sent = sent_by_key(keys)
    gone = data.draw(st.sampled_from(sent))
    verdict = check(sent, [result for result in answered(sent) if result.id != gone.id], {})
    assert verdict == replace(RIGHT, lost=(gone.id,))


@given(KEYS, st.data())
def test_missing_result_below_the_committed_offset_is_skipped(keys: list[bytes], data: st.DataObject) -> None:
    sent = sent_by_key(keys)
    gone = data.draw(st.sampled_from(sent))
    results = [result for result in answered(sent) if result.id != gone.id]
    assert check(sent, results, {gone.partition: gone.offset + 1}).skipped == (gone.id,)
    assert check(sent, results, {gone.partition: gone.offset}).skipped == ()


@given(KEYS, st.data())
def test_repeated_result_is_doubled_and_no_disorder(keys: list[bytes], data: st.DataObject) -> None:
    sent = sent_by_key(keys)
    first = data.draw(st.integers(0, len(sent) - 1))
    again = sent[first : data.draw(st.integers(first + 1, len(sent)))]
    results = answered(sent[: first + len(again)] + again + sent[first + len(again) :])
    assert check(sent, results, ends(sent)) == replace(RIGHT, doubled=tuple(event.id for event in again))


def test_result_in_the_other_topic_too_is_doubled() -> None:
    sent = sent_by_key([b"a", b"a"])
    assert check(sent, answered(sent) + answered(sent[:1], "letters"), ends(sent)).doubled == ("e0",)


@given(KEYS, st.data())
def test_swapped_results_of_a_key_are_reordered(keys: list[bytes], data: st.DataObject) -> None:
    assume(len(keys) > len(set(keys)))
    sent = sent_by_key(keys)
    key = data.draw(st.sampled_from(sorted({key for key in keys if keys.count(key) > 1})))
    places = [at for at, event in enumerate(sent) if event.key == key]
    one, other = data.draw(st.permutations(places))[:2]
    swapped = list(sent)
    swapped[one], swapped[other] = sent[other], sent[one]
    assert check(sent, answered(swapped), ends(sent)) == replace(RIGHT, reordered=(key,))


def test_key_in_two_partitions_is_reordered() -> None:
    sent = sent_by_key([b"a", b"a"])
    first, second = answered(sent)
    assert check(sent, [first, replace(second, partition=1)], ends(sent)) == replace(RIGHT, reordered=(b"a",))


def test_result_under_another_key_is_reordered() -> None:
    sent = sent_by_key([b"a"])
    assert check(sent, [replace(answered(sent)[0], key=b"b")], ends(sent)) == replace(RIGHT, reordered=(b"b",))


def test_result_of_no_event_is_unknown() -> None:
    sent = sent_by_key([b"a"])
    stranger = Result("x", b"a", "predictions", 0, 1)
    assert check(sent, [*answered(sent), stranger], ends(sent)) == replace(RIGHT, unknown=("x",))


def test_order_of_predictions_and_of_dead_letters_is_not_compared() -> None:
    sent = sent_by_key([b"a", b"a", b"a"])
    results = answered(sent[2:]) + answered(sent[:2], "letters")
    assert check(sent, results, ends(sent)) == RIGHT


def test_load_that_repeats_ids_is_refused() -> None:
    sent = sent_by_key([b"a"])
    with pytest.raises(ValueError, match="same id"):
        check(sent * 2, [], {})


def test_verdict_says_how_many_and_names_some() -> None:
    sent = sent_by_key([b"a"] * 5)
    assert str(check(sent, [], {})) == "5 lost: ('e0', 'e1', 'e2')"
