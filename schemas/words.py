"""Finds texts in a list of words, many per call.

`texts.c` finds them. If it is not compiled, Python looks up one by one.
"""

import ctypes
from collections.abc import Sequence
from itertools import repeat

import numpy as np

from millstream.schemas.arrays import Ints
from millstream.schemas.compiled import compiled
from millstream.schemas.interleave import addresses_of
from millstream.schemas.packed import Packed
from millstream.schemas.times import LIBRARY


class Words:
    """A list of words."""

    def __init__(self, words: Sequence[bytes]) -> None:
        """Args:
        words: without duplicates.
        """
        self._places = {word: place for place, word in enumerate(words)}
        in_order = sorted(words, key=lambda word: (len(word), word))  # as `texts.c` searches
        self._place_of = np.array([*(self._places[word] for word in in_order), -1])  # the last is for -1
        self._addresses, self._kept = addresses_of([Packed.of(in_order)])

    def places(self, texts: Packed) -> Ints:
        """The place of each text in the list; -1 if it isn't there."""
        try:
            function = compiled(LIBRARY, "find_words")
        except LookupError:
            return np.fromiter(map(self._places.get, texts, repeat(-1)), np.int64, len(texts))
        found = np.empty(len(texts), np.int64)
        addresses, _kept = addresses_of([texts])
        words = ctypes.c_void_p(self._addresses.ctypes.data), ctypes.c_int64(len(self._places))
        given = ctypes.c_void_p(addresses.ctypes.data), ctypes.c_int64(len(texts))
        function(*words, *given, ctypes.c_void_p(found.ctypes.data))
        return self._place_of[found]
