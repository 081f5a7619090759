"""Tokenizers of Hugging Face: turn a text into the IDs of its tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from millstream.inference.conversions import Split, as_texts
from millstream.inference.errors import ModelConfigError
from millstream.schemas.arrays import Mask
from millstream.schemas.column import Column, ListColumn, NumberColumn, StringColumn
from millstream.schemas.packed import Texts

CHARACTERS = (
    100  # of a text that are read for each token that is kept: a token takes up to 250 bytes of memory per character
)


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Makes the list of token IDs of each text, or of each pair of texts.

    Long texts are cut at `max_length` tokens, special tokens included; of a pair, the longer text is cut first.
    """

    path: Path = field(compare=False)  # a `tokenizer.json`
    max_length: int
    missing: str | None  # the text in place of a null; None: a null stays null
    leaf: str = "string"
    takes: tuple[str, ...] = ("string",)
    expected: str = "a text"
    checksum: str = ""  # of the file: another version of the model may have the same tokenizer in another place
    _tokenizer: Any = field(repr=False, compare=False, default=None)

    @classmethod
    def load(cls, path: Path, max_length: int, missing: str | None, place: str) -> "Tokenizer":
        """Read the file, which exists. Raises ModelConfigError, whose message begins with `place`."""
        try:
            from tokenizers import Tokenizer as Loaded  # noqa: PLC0415  (an extra)
        except ImportError:
            raise ModelConfigError(
                f"{place}: a tokenizer needs the package `tokenizers`, which is not installed. Install Millstream with the "
                f"extra `text` (`millstream docs models`)."
            ) from None
        try:
            tokenizer = Loaded.from_file(str(path))
            tokenizer.no_padding()
            tokenizer.enable_truncation(max_length)
        except Exception as error:  # the package raises plain exceptions
            said = " ".join(str(error).split())
            raise ModelConfigError(
                f"{place}: {path} can't be read as a tokenizer. Copy the tokenizer.json that the model was trained "
                f"with. The package tokenizers says: {said}"
            ) from None
        return cls(path, max_length, missing, checksum=sha256(path.read_bytes()).hexdigest(), _tokenizer=tokenizer)

    def split(self, columns: Sequence[Column]) -> Split:
        """See Splitter."""
        texts, masks = zip(*(self._texts(as_texts(column)) for column in columns), strict=True)
        encoded = self._tokenizer.encode_batch_fast(list(texts[0] if len(texts) == 1 else zip(*texts, strict=True)))
        valid = _all_of([mask for mask in masks if mask is not None])
        lengths = np.fromiter((len(entry.ids) for entry in encoded), np.int64, len(encoded))
        if valid is not None:
            encoded = [entry for entry, there in zip(encoded, valid.tolist(), strict=True) if there]
            lengths[~valid] = 0
        count = int(lengths.sum())
        items = np.fromiter((token for entry in encoded for token in entry.ids), np.int64, count)
        return Split(
            ListColumn(NumberColumn(items), lengths, valid),
            lambda: np.fromiter((kind for entry in encoded for kind in entry.type_ids), np.int64, count),
        )

    def _texts(self, texts: StringColumn) -> tuple[list[str], Mask | None]:
        """The beginning of each text, and which of them are not null (None: all)."""
        given, valid = list(Texts(texts.packed)), texts.valid
        if valid is not None and self.missing is not None:
            given = [text if there else self.missing for text, there in zip(given, valid.tolist(), strict=True)]
            valid = None
        return [text[: CHARACTERS * self.max_length] for text in given], valid


def _all_of(masks: Sequence[Mask]) -> Mask | None:
    return np.logical_and.reduce(masks) if masks else None
