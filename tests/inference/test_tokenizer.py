from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from millstream.inference.errors import ModelConfigError
from millstream.inference.features import to_tensors
from millstream.inference.repository import load_version
from millstream.inference.signature import Signature, check_fields
from millstream.inference.varying import padded_to
from tests.inference.test_repository import put
from tests.schemas.tables import table_of

if TYPE_CHECKING:
    from pathlib import Path

INPUTS = """inputs:
  - {tensor: input_ids, field: title, tokenizer: tokenizer.json, dtype: int64, max_length: 4, missing: MISSING}
  - {tensor: attention_mask, mask: true, dtype: int64}
outputs: [{tensor: y}]
"""
WORDS = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3, "red": 4, "bird": 5}
needs_tokenizers = pytest.mark.skipif(find_spec("tokenizers") is None, reason="needs the extra `text`")


def signature_of(repository: Path, missing: str = "reject") -> Signature:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors  # noqa: PLC0415

    tokenizer = Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 1), ("[SEP]", 2)])
    tokenizer.enable_padding(length=16)  # the file's own padding and truncation don't count
    tokenizer.save(str(put(repository, INPUTS.replace("MISSING", missing)) / "tokenizer.json"))
    return load_version(repository, "late").signature


PAIRS = """inputs:
  - {tensor: input_ids, field: title, pair: answer, tokenizer: tokenizer.json, dtype: int64, max_length: 6, missing: MISSING}
  - {tensor: attention_mask, mask: true, dtype: int64}
  - {tensor: token_type_ids, token_types: true, dtype: int32}
outputs: [{tensor: y}]
"""


def pairs_of(repository: Path, missing: str = "reject", inputs: str = PAIRS) -> Signature:
    """The signature of a model that takes pairs of texts."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors  # noqa: PLC0415

    tokenizer = Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    single, pair, special = "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", 1), ("[SEP]", 2)]
    tokenizer.post_processor = processors.TemplateProcessing(single, pair, special)
    tokenizer.save(str(put(repository, inputs.replace("MISSING", missing)) / "tokenizer.json"))
    return load_version(repository, "late").signature


def pairs(titles: list[str | None], answers: list[str | None]) -> Any:
    return table_of({"title": "string", "answer": "string"}, title=titles, answer=answers)


@needs_tokenizers
def test_token_types_tell_the_text_of_each_token_and_are_padded_with_0(tmp_path: Path) -> None:
    signature = pairs_of(tmp_path)
    check_fields(signature, {"title": "string", "answer": "string"}, "model", "schema")
    assert signature.paths == {"title": "string", "answer": "string"}
    found = to_tensors(pairs(["a", "a red bird red"], ["bird", "red"]), signature.inputs, allow_nan=False)
    padded = padded_to(signature.inputs, found.tensors, 6)
    assert padded["input_ids"].tolist() == [[1, 3, 2, 5, 2, 0], [1, 3, 4, 2, 4, 2]]
    assert padded["token_type_ids"].tolist() == [[0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1]]
    assert padded["attention_mask"].tolist() == [[1, 1, 1, 1, 1, 0], [1] * 6]
    assert padded["token_type_ids"].dtype == "int32"


@needs_tokenizers
def test_token_types_of_single_texts_are_0(tmp_path: Path) -> None:
    signature = pairs_of(tmp_path, inputs=PAIRS.replace("pair: answer, ", ""))
    found = to_tensors(texts("a", None, "red bird"), signature.inputs, allow_nan=False)
    padded = padded_to(signature.inputs, found.tensors, 6)
    assert padded["input_ids"].tolist() == [[1, 3, 2, 0, 0, 0], [1, 4, 5, 2, 0, 0]]
    assert padded["token_type_ids"].tolist() == [[0] * 6] * 2


@needs_tokenizers
def test_pair_without_one_of_its_texts_does_not_fit_and_the_field_is_named(tmp_path: Path) -> None:
    found = to_tensors(pairs(["a", None, "a"], [None, "red", "red"]), pairs_of(tmp_path).inputs, allow_nan=False)
    assert [(one.row, one.error) for one in found.unfit] == [
        (0, "field `answer` is absent or null, but tensor `input_ids` needs a text"),
        (1, "field `title` is absent or null, but tensor `input_ids` needs a text"),
    ]
    assert found.tensors["input_ids"].items.tolist() == [1, 3, 2, 4, 2]
    assert found.tensors["token_type_ids"].items.tolist() == [0, 0, 0, 1, 1]


@needs_tokenizers
def test_another_text_stands_in_place_of_a_missing_one_of_a_pair(tmp_path: Path) -> None:
    found = to_tensors(pairs(["a"], [None]), pairs_of(tmp_path, "bird").inputs, allow_nan=False)
    assert found.tensors["input_ids"].items.tolist() == [1, 3, 2, 5, 2]


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        (INPUTS.replace("mask: true", "token_types: true").replace("tokenizer: tokenizer.json, ", ""), "found none"),
        (PAIRS.replace("dtype: int32", "dtype: float32"), "`token_types` are 0 and 1: expected one of the dtypes"),
        (PAIRS.replace("tokenizer: tokenizer.json, ", ""), "`pair` is the field with the second text of a `tokenizer`"),
        (PAIRS.replace("token_types: true", "token_types: true, field: x"), "or `mask: true`, or `token_types: true`"),
    ],
    ids=["no tokenizer", "floats", "pair alone", "two sources"],
)
@needs_tokenizers
def test_wrong_token_types_and_pairs_are_told(tmp_path: Path, inputs: str, says: str) -> None:
    with pytest.raises(ModelConfigError, match=says):
        pairs_of(tmp_path, "0" if "tokenizer:" not in inputs else "reject", inputs)


def texts(*titles: str | None) -> Any:
    return table_of({"title": "string"}, title=titles)


@needs_tokenizers
def test_texts_become_ids_that_are_cut_and_masked(tmp_path: Path) -> None:
    signature = signature_of(tmp_path)
    check_fields(signature, {"title": "string"}, "model", "schema")
    found = to_tensors(texts("a bird", "", "a red bird", "blue"), signature.inputs, allow_nan=False)
    padded = padded_to(signature.inputs, found.tensors, 4)
    assert padded["input_ids"].tolist() == [[1, 3, 5, 2], [1, 2, 0, 0], [1, 3, 4, 2], [1, 0, 2, 0]]
    assert padded["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 0]]


@needs_tokenizers
def test_event_without_the_text_does_not_fit(tmp_path: Path) -> None:
    found = to_tensors(texts("a", None, "bird"), signature_of(tmp_path).inputs, allow_nan=False)
    assert [(one.row, one.error) for one in found.unfit] == [
        (1, "field `title` is absent or null, but tensor `input_ids` needs a text")
    ]
    assert found.tensors["input_ids"].items.tolist() == [1, 3, 2, 1, 5, 2]


@needs_tokenizers
def test_another_text_stands_in_place_of_a_missing_one(tmp_path: Path) -> None:
    found = to_tensors(texts("a", None), signature_of(tmp_path, "red").inputs, allow_nan=False)
    assert found.tensors["input_ids"].items.tolist() == [1, 3, 2, 1, 4, 2]


@needs_tokenizers
def test_path_is_a_text(tmp_path: Path) -> None:
    signature = signature_of(tmp_path)
    assert signature.paths == {"title": "string"}
    with pytest.raises(ModelConfigError, match=r"takes a text from the event's field `title`, but .* has int64 there"):
        check_fields(signature, {"title": "int64"}, "model", "schema")


@needs_tokenizers
def test_file_that_is_no_tokenizer_is_told(tmp_path: Path) -> None:
    (put(tmp_path, INPUTS.replace("MISSING", "reject")) / "tokenizer.json").write_text("{}")
    with pytest.raises(
        ModelConfigError, match=r"inputs\[0\].tokenizer: .*tokenizer.json can't be read as a tokenizer. Copy "
    ):
        load_version(tmp_path, "late")


@pytest.mark.skipif(find_spec("tokenizers") is not None, reason="the package is installed")
def test_missing_package_is_told(tmp_path: Path) -> None:
    (put(tmp_path, INPUTS.replace("MISSING", "reject")) / "tokenizer.json").write_text("{}")
    with pytest.raises(
        ModelConfigError, match=r":2: inputs\[0\].tokenizer: a tokenizer needs the package `tokenizers`"
    ):
        load_version(tmp_path, "late")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            ("max_length: 4", "shape: [4]"),
            "expected `field`, `max_length` and one of the dtypes int32, int64 beside it",
        ),
        (("dtype: int64, max", "dtype: float32, max"), "found dtype float32"),
        (
            ("missing: MISSING", "missing: 3"),
            "missing: expected reject or the text that stands in place of a missing one",
        ),
        (("tokenizer: tokenizer.json", "tokenizer: none.json"), "tokenizer: expected a file, found none at"),
    ],
)
def test_wrong_options_are_told(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    inputs = INPUTS.replace(*change).replace("MISSING", "reject")
    if "shape" in inputs:
        inputs = inputs.replace("  - {tensor: attention_mask, mask: true, dtype: int64}\n", "")
    (put(tmp_path, inputs) / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelConfigError, match=says):
        load_version(tmp_path, "late")


@needs_tokenizers
def test_inputs_are_equal_if_the_tokenizers_files_are(tmp_path: Path) -> None:
    first, second = signature_of(tmp_path / "a"), signature_of(tmp_path / "b")
    assert first.inputs == second.inputs
    file = tmp_path / "b" / "late" / "1" / "tokenizer.json"
    file.write_text(file.read_text().replace('"bird"', '"crow"'))
    assert load_version(tmp_path / "b", "late").signature.inputs != first.inputs
