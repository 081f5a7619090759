"""Packed byte strings are the strings that they were made of, however they lie in the buffer."""

from __future__ import annotations

import random
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.schemas.interleave import Piece, interleave
from millstream.schemas.packed import Chained, Packed, Picked, Texts

STRINGS = st.one_of(
    st.lists(st.binary(max_size=5), max_size=6),
    st.integers(0, 4).flatmap(lambda width: st.lists(st.binary(min_size=width, max_size=width), max_size=6)),
)
PLACES = st.integers(-8, 8) | st.none()


@given(STRINGS)
def test_as_a_sequence_they_are_the_strings(strings: list[bytes]) -> None:
    packed = Packed.of(strings)
    assert list(packed) == strings
    assert [packed[place] for place in range(len(packed))] == strings
    assert packed.longest == max(map(len, strings), default=0)
    assert Packed.of(packed) is packed


@given(STRINGS, PLACES, PLACES)
def test_a_slice_is_of_the_same_strings(strings: list[bytes], start: int | None, stop: int | None) -> None:
    assert list(Packed.of(strings)[start:stop]) == strings[start:stop]


@given(STRINGS)
def test_each_lies_in_the_buffer_where_it_says(strings: list[bytes]) -> None:
    packed = Packed.of(strings)
    whole = packed.buffer.tobytes()
    starts, lengths = packed.starts.tolist(), packed.lengths.tolist()
    assert [whole[start : start + length] for start, length in zip(starts, lengths, strict=True)] == strings


@given(st.integers(0, 5), st.integers(1, 5), st.randoms())
def test_rows_of_a_table_are_its_strings(rows: int, width: int, random: np.random.RandomState) -> None:
    cells = np.array([random.randint(0, 255) for _ in range(rows * width)], np.uint8).reshape(rows, width)
    assert list(Packed.table(cells)) == [row.tobytes() for row in cells]


def test_strings_of_one_width_that_do_not_lie_end_to_end() -> None:
    packed = Packed(np.frombuffer(b"aa-bb", np.uint8), np.array([0, 3]), np.array([2, 2]))
    assert list(packed) == [b"aa", b"bb"]


def test_it_keeps_the_objects_it_was_made_of_and_a_slice_does_not() -> None:
    strings = [b"ab" * 1000, b"c" * 1000]
    packed = Packed.of(strings)
    assert packed[0] is strings[0]
    assert [one is other for one, other in zip(packed, strings, strict=True)] == [True, True]
    assert packed[:][0] is not strings[0]
    assert list(packed[:]) == strings


@given(STRINGS, PLACES, PLACES)
def test_end_to_end_they_are_one_string(strings: list[bytes], start: int | None, stop: int | None) -> None:
    assert bytes(Packed.of(strings)[start:stop].whole) == b"".join(strings[start:stop])


def test_end_to_end_without_what_lies_between() -> None:
    apart = Packed(np.frombuffer(b"aa-b", np.uint8), np.array([0, 3]), np.array([2, 1]))
    assert bytes(apart.whole) == b"aab"


@given(STRINGS, PLACES, PLACES)
def test_a_table_is_of_strings_of_one_width(strings: list[bytes], start: int | None, stop: int | None) -> None:
    sliced = strings[start:stop]
    cells = Packed.of(strings)[start:stop].cells
    if cells is None:
        assert len(set(map(len, sliced))) != 1 or not sliced[0]
    else:
        assert [row.tobytes() for row in cells] == sliced


@given(st.lists(STRINGS, min_size=1, max_size=4), PLACES, PLACES)
def test_parts_end_to_end(parts: list[list[bytes]], start: int | None, stop: int | None) -> None:
    packed = [Packed.of(part)[start:stop] for part in parts]
    assert list(Packed.concat(packed)) == [string for part in parts for string in part[start:stop]]


@given(st.lists(STRINGS, min_size=1, max_size=4), PLACES, PLACES)
def test_a_chain_is_the_strings_of_its_parts(parts: list[list[bytes]], start: int | None, stop: int | None) -> None:
    strings = [string for part in parts for string in part]
    chain = Chained([Packed.of(part) for part in parts])
    assert chain[:].parts is not chain.parts
    assert [string for part in chain[:].parts for string in part] == strings
    assert list(chain[start:stop]) == strings[start:stop]
    assert [chain[place] for place in range(len(chain))] == list(chain) == strings
    assert b"".join(strings) == bytes(chain.whole)


def test_a_chain_copies_nothing_until_somebody_wants_one_buffer() -> None:
    chain = Chained([Packed.of([b"a", b"bc"]), Packed.of([b"d"])])
    assert (len(chain), chain.longest, len(chain[:])) == (3, 2, 3)
    assert not {"buffer", "starts"} & vars(chain).keys()
    assert chain.starts.tolist() == [0, 1, 3]
    assert chain.buffer.tobytes() == b"abcd"
    with pytest.raises(AttributeError):
        _ = chain.other


@given(STRINGS, st.randoms())
def test_those_in_another_order(strings: list[bytes], chance: random.Random) -> None:
    order = list(range(len(strings)))
    chance.shuffle(order)
    moved = Packed.of(strings).reordered(np.array(order, np.int64))
    assert list(moved) == [strings[place] for place in order]
    assert bytes(moved.whole) == b"".join(moved)


def test_long_strings_in_another_order_take_little_memory() -> None:
    strings = [bytes([number]) * 200_000 for number in range(20)]
    packed = Packed.of(strings)
    tracemalloc.start()
    try:
        moved = packed.reordered(np.arange(19, -1, -1))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert list(moved) == strings[::-1]
    assert peak < 3 * 20 * 200_000


@given(STRINGS, st.sets(st.integers(0, 5)))
def test_those_at_some_places(strings: list[bytes], places: set[int]) -> None:
    rows = sorted(place for place in places if place < len(strings))
    taken = Packed.of(strings).take(np.array(rows, np.int64))
    wanted = [strings[row] for row in rows]
    assert list(taken) == wanted
    assert bytes(taken.whole) == b"".join(wanted)
    assert list(Packed.concat([taken, taken])) == wanted * 2


TEXTS = st.lists(st.one_of(st.text(max_size=5), st.sampled_from(["ab", "cd", "\u00e9f", "a\0", "x" * 100])), max_size=6)


@given(TEXTS, PLACES, PLACES)
def test_texts_are_the_texts(texts: list[str], start: int | None, stop: int | None) -> None:
    made = Texts.of(texts)
    assert list(made) == texts
    assert len(made) == len(texts)
    assert [made[place] for place in range(len(texts))] == texts
    assert made.characters().tolist() == list(map(len, texts))
    assert list(made[start:stop]) == texts[start:stop]
    assert made[start:stop].characters().tolist() == list(map(len, texts[start:stop]))
    assert list(Texts.concat([made, made[start:stop]])) == texts + texts[start:stop]
    assert list(made.take(np.arange(0, len(texts), 2))) == texts[::2]
    assert Texts.of(made) is made


@pytest.mark.parametrize(("wrong", "error"), [(["a", 1], TypeError), (["a", "\ud800"], UnicodeEncodeError)])
def test_what_is_no_text(wrong: list[str], error: type[Exception]) -> None:
    with pytest.raises(error):
        Texts.of(wrong)


@given(st.lists(st.binary(max_size=3), min_size=1, max_size=4), st.data())
def test_picked_strings_are_those_at_the_places(strings: list[bytes], data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, len(strings) - 1), max_size=6))
    picked, expected = Picked(strings, np.array(places, np.int64)), [strings[place] for place in places]
    assert list(picked) == [picked[row] for row in range(len(picked))] == expected
    assert bytes(picked.whole) == b"".join(expected)
    start, stop = data.draw(PLACES), data.draw(PLACES)
    assert list(picked[start:stop]) == expected[start:stop]
    rows = np.array(
        data.draw(st.lists(st.sampled_from(range(len(places))), max_size=6) if places else st.just([])), np.int64
    )
    assert list(picked.take(rows)) == list(picked.reordered(rows)) == [expected[row] for row in rows]
    assert list(Packed.concat([picked, Packed.of([b"x"])])) == [*expected, b"x"]
    pieces: list[Piece] = [b"<", picked, b">"]
    assert list(interleave(pieces, len(picked))) == [b"<" + string + b">" for string in expected]
