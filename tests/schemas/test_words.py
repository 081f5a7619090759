"""Words are found in a list as a dict finds them, compiled or not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.schemas.compiled import compiled
from millstream.schemas.packed import Packed
from millstream.schemas.times import LIBRARY
from millstream.schemas.words import Words
from tests.native import with_native

TEXTS = st.binary(max_size=3) | st.sampled_from([b"", b"card", b"carp", b"car", b"card\0", "größer".encode()])


@pytest.mark.parametrize("way", ["compiled", "python"])
@given(st.lists(TEXTS, unique=True), st.lists(TEXTS))
def test_place_is_that_of_the_same_word(way: str, words: list[bytes], texts: list[bytes]) -> None:
    with with_native(on=way == "compiled"):
        if way == "compiled":
            compiled(LIBRARY, "find_words")  # a machine that runs this has a compiler
        places = Words(words).places(Packed.of([*texts, *words])[: len(texts)])
    assert places.dtype == np.int64
    assert places.tolist() == [words.index(text) if text in words else -1 for text in texts]
