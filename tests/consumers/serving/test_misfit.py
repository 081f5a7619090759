"""Which differences between two versions keep the newer one from taking the place of the older."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from millstream.consumers.serving.misfit import misfit
from millstream.inference.repository import ModelVersion, load_version
from tests.consumers.serving.versions import write_version

if TYPE_CHECKING:
    from pathlib import Path

CONFIG: dict[str, Any] = {
    "inputs": [
        {"tensor": "x", "field": "x", "dtype": "float32", "shape": [3]},
        {
            "tensor": "kind",
            "fields": [{"field": "kind", "vocabulary": ["a", "b"], "unknown": 0}, "number"],
            "dtype": "int64",
            "shape": [2],
        },
    ],
    "outputs": [{"tensor": "score", "name": "score"}, {"tensor": "other", "name": "other"}],
}


def versions(folder: Path, change: Any) -> tuple[ModelVersion, ModelVersion]:
    """Version 1, and version 2 with a change."""
    config = deepcopy(CONFIG)
    change(config)
    write_version(folder / "m", 1, config=CONFIG)
    write_version(folder / "m", 2, config=config)
    return load_version(folder, "m", 1), load_version(folder, "m", 2)


def nothing(_config: dict[str, Any]) -> None: ...


def description(config: dict[str, Any]) -> None:
    config["description"] = "retrained"
    config["batch_sizes"] = [8]


def other_order(config: dict[str, Any]) -> None:
    config["inputs"].reverse()
    config["outputs"].reverse()


@pytest.mark.parametrize("change", [nothing, description, other_order])
def test_version_that_is_filled_alike_and_answers_alike_fits(tmp_path: Path, change: Any) -> None:
    assert misfit(*versions(tmp_path, change)) is None


def shape(config: dict[str, Any]) -> None:
    config["inputs"][0]["shape"] = [4]


def dtype(config: dict[str, Any]) -> None:
    config["inputs"][0]["dtype"] = "float64"


def field(config: dict[str, Any]) -> None:
    config["inputs"][0]["field"] = "customer.x"


def more_inputs(config: dict[str, Any]) -> None:
    config["inputs"].append({"tensor": "z", "fields": ["z"], "dtype": "float32", "shape": [1]})


def vocabulary(config: dict[str, Any]) -> None:
    config["inputs"][1]["fields"][0]["vocabulary"] = ["b", "a"]


def missing(config: dict[str, Any]) -> None:
    config["inputs"][1]["fields"][1] = {"field": "number", "missing": 7}


def output(config: dict[str, Any]) -> None:
    config["outputs"][1]["name"] = "another"


def fewer_outputs(config: dict[str, Any]) -> None:
    del config["outputs"][1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (shape, "input `x`: expected shape 3 as in version 1, found 4."),
        (dtype, "input `x`: expected dtype float32 as in version 1, found float64."),
        (field, "input `x`: expected fields x as in version 1, found customer.x."),
        (more_inputs, "expected the inputs kind, x of version 1, found kind, x, z."),
        (vocabulary, "input `kind`: its values are converted otherwise than in version 1"),
        (missing, "input `kind`: its values are converted otherwise than in version 1"),
        (output, "expected the outputs other, score of version 1, found another, score."),
        (fewer_outputs, "expected the outputs other, score of version 1, found score."),
    ],
)
def test_first_difference_is_named_with_the_file_and_what_to_do(tmp_path: Path, change: Any, said: str) -> None:
    message = misfit(*versions(tmp_path, change))
    assert message is not None
    assert message.startswith(f"model m version 2 ({tmp_path / 'm' / '2' / 'config.yaml'}): ")
    assert said in message
    assert "Restart the workers to change over to it" in message


def test_tokenizer_of_another_folder_with_the_same_content_fits(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    config = {
        "inputs": [
            {
                "tensor": "tokens",
                "field": "text",
                "tokenizer": "tokenizer.json",
                "dtype": "int64",
                "max_length": 8,
            }
        ],
        "outputs": [{"tensor": "score", "name": "score"}],
    }
    words = tokenizers.models.WordLevel({"a": 0, "b": 1, "[UNK]": 2}, unk_token="[UNK]")
    swapped = tokenizers.models.WordLevel({"b": 0, "a": 1, "[UNK]": 2}, unk_token="[UNK]")
    for number, model in ((1, words), (2, words), (3, swapped)):
        write_version(tmp_path / "m", number, config=config)
        tokenizers.Tokenizer(model).save(str(tmp_path / "m" / str(number) / "tokenizer.json"))
    first, same, other = (load_version(tmp_path, "m", number) for number in (1, 2, 3))
    assert misfit(first, same) is None
    assert "its values are converted otherwise" in (misfit(first, other) or "")
    assert yaml.safe_load(same.file.with_name("config.yaml").read_text()) == config
