import logging
import os
from pathlib import Path

import pytest

from millstream.inference.errors import ModelConfigError
from millstream.inference.repository import load_version
from millstream.inference.signature import TensorInput, TensorOutput
from millstream.schemas.wording import dotted

GOOD = """
description: late or not
inputs:
  - {tensor: numbers, fields: [distance, delay], dtype: float32}
  - {tensor: embedding, field: text_vector, dtype: float32, shape: [4, 8]}
outputs:
  - {tensor: late_probability}
  - {tensor: "variable:0", name: reason}
batch_sizes: [64, 8, 8]
"""

# Each alias stands for ten of the one before: 10 to the 8th values.
LAUGHS = "a: &a [1]\n" + "".join(f"{chr(c)}: &{chr(c)} [{','.join([f'*{chr(c - 1)}'] * 10)}]\n" for c in range(98, 106))


def put(repository: Path, config: str | bytes = GOOD, *, version: str = "1", model: bool = True) -> Path:
    folder = repository / "late" / version
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_bytes(config.encode() if isinstance(config, str) else config)
    if model:
        (folder / "model.onnx").touch()
    return folder


def test_config_becomes_a_signature(tmp_path: Path) -> None:
    folder = put(tmp_path)
    found = load_version(tmp_path, "late")
    assert found.signature.inputs == (
        TensorInput("numbers", ("distance", "delay"), array=False, dtype="float32", shape=(2,)),
        TensorInput("embedding", ("text_vector",), array=True, dtype="float32", shape=(4, 8)),
    )
    assert found.signature.outputs == (
        TensorOutput("late_probability", "late_probability"),
        TensorOutput("variable:0", "reason"),
    )
    assert found.signature.fields == ["distance", "delay", "text_vector"]
    assert found.batch_sizes == (8, 64)
    assert found.file == folder / "model.onnx"
    assert found.place == f"model late version 1 ({folder / 'config.yaml'})"


def test_one_of_several_versions_must_be_named(tmp_path: Path) -> None:
    for version in ("9", "10", "draft"):
        put(tmp_path, version=version)
    assert load_version(tmp_path, "late", 9).version == 9
    with pytest.raises(ModelConfigError) as refused:
        load_version(tmp_path, "late", named_at="p.yaml:7: model")
    assert str(refused.value) == (
        f"p.yaml:7: model: expected a `version`, because model `late` has several in {tmp_path / 'late'}; found none. Name the "
        "one that makes the predictions: write `version: 10` under `model:` (there: 9, 10)."
    )


def test_version_that_cannot_be_used_is_not_advised(tmp_path: Path) -> None:
    put(tmp_path, version="1")
    put(tmp_path, "inputs: [", version="2")
    (tmp_path / "late" / "3").mkdir()
    with pytest.raises(ModelConfigError, match=r"write `version: 1` under `model:` \(there: 1, 2, 3\)"):
        load_version(tmp_path, "late")


def test_pipeline_may_map_other_fields(tmp_path: Path) -> None:
    put(tmp_path)
    found = load_version(tmp_path, "late", fields={"numbers": ["km", "minutes"], "embedding": "vector"})
    assert [entry.fields for entry in found.signature.inputs] == [("km", "minutes"), ("vector",)]


def test_pipeline_may_fill_a_tensor_by_an_array_in_place_of_scalars(tmp_path: Path) -> None:
    put(tmp_path, "inputs: [{tensor: x, fields: [a, b], dtype: float32, shape: [2]}]\noutputs: [{tensor: y}]")
    (entry,) = load_version(tmp_path, "late", fields={"x": "both"}).signature.inputs
    assert entry == TensorInput("x", ("both",), array=True, dtype="float32", shape=(2,))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            {"colour": "red"},
            r"p.yaml:7: colour: expected an input of the model \(embedding, numbers, says .* found colour",
        ),
        (
            {"numbers": "pair"},
            "p.yaml:7: numbers: tensor `numbers` is filled by the array field `pair`: give its `shape`",
        ),
        (
            {"embedding": ["a", "b"]},
            r"p.yaml:7: embedding: tensor `embedding` has shape \[4, 8\], 32 values an event, but 2 fields",
        ),
    ],
)
def test_wrong_mapping_in_the_pipeline_is_refused(
    tmp_path: Path, fields: dict[str, str | list[str]], says: str
) -> None:
    folder = put(tmp_path)
    with pytest.raises(ModelConfigError, match=says) as refused:
        load_version(tmp_path, "late", fields=fields, mapped_at=lambda *loc: f"p.yaml:7: {dotted(loc)}")
    assert str(folder / "config.yaml") in str(refused.value)


def test_missing_repository_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError) as refused:
        load_version(tmp_path / "models", "late")
    assert str(tmp_path / "models") in str(refused.value)
    assert "no such folder" in str(refused.value)


def test_missing_model_lists_what_is_there(tmp_path: Path) -> None:
    put(tmp_path)
    with pytest.raises(ModelConfigError) as refused:
        load_version(tmp_path, "early")
    assert str(refused.value) == (
        f"model repository {tmp_path} has no model `early` (there: late). Put it at {tmp_path / 'early'}/1/."
    )


def test_folder_in_place_of_the_models_file_is_named_as_one(tmp_path: Path) -> None:
    folder = put(tmp_path)
    (folder / "model.onnx").unlink()
    (folder / "model.onnx").mkdir()
    with pytest.raises(ModelConfigError, match=r"model\.onnx is a folder: expected the model's file there"):
        load_version(tmp_path, "late")


def test_missing_version_lists_what_is_there(tmp_path: Path) -> None:
    put(tmp_path, version="2")
    put(tmp_path, version="10")
    with pytest.raises(ModelConfigError, match=r"no version 3 in .*late \(there: 2, 10\)"):
        load_version(tmp_path, "late", 3)


@pytest.mark.parametrize(("there", "version", "to"), [("v1", 1, "1"), ("v1", None, "1"), ("version-2", 2, "2")])
def test_folder_that_is_not_named_by_a_number_is_told(tmp_path: Path, there: str, version: int | None, to: str) -> None:
    put(tmp_path, version=there)
    with pytest.raises(ModelConfigError, match=f"by its number alone, .* `{there}`: if .* rename it to `{to}`"):
        load_version(tmp_path, "late", version)


def test_folder_that_is_meant_as_no_version_is_not_told(tmp_path: Path) -> None:
    for name in (".git", "..data"):
        (tmp_path / "late" / name).mkdir(parents=True)
    with pytest.raises(ModelConfigError, match=r"\(there: none\)\.$"):
        load_version(tmp_path, "late", 3)
    put(tmp_path, version="2")
    put(tmp_path, version="archive")
    with pytest.raises(ModelConfigError, match=r"\(there: 2\)\.$"):
        load_version(tmp_path, "late", 3)
    put(tmp_path, version="v3")
    with pytest.raises(ModelConfigError, match=r"\(there: 2\)\..* `v3`: if .* rename it to `3`"):
        load_version(tmp_path, "late", 3)


def test_model_without_a_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "late" / "latest").mkdir(parents=True)
    with pytest.raises(ModelConfigError, match=r"no version in .*late \(there: none\)"):
        load_version(tmp_path, "late")


@pytest.mark.parametrize("beside", ["model.onnx", "config.pbtxt", None])
def test_config_of_another_ending_is_to_be_renamed(tmp_path: Path, beside: str | None) -> None:
    folder = put(tmp_path, model=False)
    config = folder / "config.yaml"
    config.rename(folder / "config.yml")
    if beside is not None:
        (folder / beside).touch()
    with pytest.raises(ModelConfigError) as refused:
        load_version(tmp_path, "late")
    assert str(refused.value).startswith(f"{config} is missing: ")
    assert f"Rename {folder / 'config.yml'} to config.yaml: in a folder, Millstream looks for this name only." in str(
        refused.value
    )


def test_missing_files_are_named(tmp_path: Path) -> None:
    folder = put(tmp_path, model=False)
    with pytest.raises(ModelConfigError, match=r"expected one of model.onnx, .* model.py in") as refused:
        load_version(tmp_path, "late")
    assert str(folder) in str(refused.value)
    assert "found no other file." in str(refused.value)
    (folder / "pump.bin").touch()
    (folder / "model.onnx").symlink_to(folder / "nothing")
    with pytest.raises(ModelConfigError, match=r"found model.onnx, a link that leads nowhere, pump.bin\."):
        load_version(tmp_path, "late")
    (folder / "model.onnx").unlink()
    (folder / "v1.onnx").touch()
    with pytest.raises(
        ModelConfigError, match=r"found pump.bin, v1.onnx\. If v1.onnx is the model, rename it to model.onnx\."
    ):
        load_version(tmp_path, "late")
    (folder / "model.onnx").touch()
    (folder / "config.yaml").unlink()
    with pytest.raises(ModelConfigError, match=r"maps event fields .* \(`millstream docs models`\)") as refused:
        load_version(tmp_path, "late")
    assert str(folder / "config.yaml") in str(refused.value)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("", "expected `inputs:` and `outputs:`, found nothing"),
        (
            "name: late\nkafka: {bootstrap: b}\ninput: {topic: t}\noutput: {topic: p}\n",
            r"config\.yaml: expected the config.yaml of a model, found a pipeline file\. Write the model's `inputs:`[^\n]*$",
        ),
        ("- late", r"expected `inputs:` and `outputs:`, found a list"),
        ("inputs: [", r":1: can't be read: not valid YAML at column 10: while parsing"),
        (b"\xff\xfe\x00", ":1: can't be read: expected UTF-8 text, found the byte 0xff"),
        ("outputs: [{tensor: y}]", ":1: inputs: this option is missing"),
        ("inputs: []\noutputs: []", ":2: outputs: expected at least one, found an empty list."),
        ("colour: red", ":1: colour: unknown key. Allowed here: description, executor, inputs,"),
        (GOOD + "batch_size: [1]", ":10: batch_size: unknown key. Did you mean batch_sizes?"),
        (GOOD.replace("dtype", "dtpye", 1), r":4: inputs\[0\].dtpye: unknown key. Did you mean dtype\?"),
        (GOOD + "batch_sizes: [1]", ":10: batch_sizes: this key is written twice, on lines 9 and 10. Keep one."),
        (
            GOOD.replace("tensor: late", "tensor: a, tensor: late"),
            r":7: outputs\[0\].tensor: this key is written twice, on lines 7 and 7.",
        ),
        (GOOD + "length_buckets: many", ":10: length_buckets: expected a list, found 'many'."),
        (GOOD + "length_buckets: [a]", r":10: length_buckets\[0\]: expected a whole number, found 'a'."),
        (
            GOOD.replace("dtype: float32}", "dtype: float32, pad: [1]}"),
            r":4: inputs\[0\].pad: expected a number or a text, found a list.",
        ),
        ("batch_sizes: [8, 1000000000]", r":1: batch_sizes\[1\]: expected at most 65536, found the number 1000000000."),
        ("a: &a [*a]", r":1: a\[0\]: this alias \(\*name\) refers to what it is part of. Write the value out."),
        ("inputs: " + "[" * 2000, "nested too deeply"),
        ("a: 1\ninputs: " + "[" * 2000, ":2: can't be read: the YAML is nested too deeply"),
        (f"batch_sizes: [{'9' * 5000}]", r":1: batch_sizes\[0\]: expected a whole number of fewer digits, found '999"),
        ("batch_sizes: [1e999]", r":1: batch_sizes\[0\]: expected a whole number, found '1e999'."),
        (
            "inputs: [{tensor: x, field: a, max_length: 4, pad: .inf, dtype: float32}]\noutputs: [{tensor: y}]",
            r":1: inputs\[0\]: `pad` is a value of the dtype, a finite number here, found '.inf'",
        ),
        (
            "inputs: [{tensor: x, field: a, max_length: 4, pad: .nan, dtype: float32}]\noutputs: [{tensor: y}]",
            r":1: inputs\[0\]: `pad` is a value of the dtype, a finite number here, found '.nan'",
        ),
        ("length_buckets: [2024-99-99]", r":1: length_buckets\[0\]: expected a whole number, found '2024-99-99'."),
        ("length_buckets: [!!int x]", r":1: length_buckets\[0\]: expected a whole number, found 'x'."),
        ("mask: !!bool x", ":1: mask: unknown key"),
        ("a: 1\nb: !!timestamp x", ":2: b: unknown key"),
        (
            "a: 1\nb: !!python/object/apply:os.getcwd []",
            ":2: b: the YAML tag .*python/object/apply:os.getcwd means nothing here",
        ),
        ("? [a]\n: b", ":1: can't be read: expected text as a key, found a list or mapping"),
        (LAUGHS, r"\.yaml:\d: can't be read: the file has more than 20000 values"),
        ("- " + LAUGHS.replace("\n", "\n  "), "more than 20000 values"),
        ("a: 1\nb: \0", ":2: can't be read: not valid YAML: the character U\\+0000 is not allowed"),
        ('a: 1\n"b\\0": 1', ":2: .*this key holds the character U\\+0000"),
        ('a: "\\U00110000"', ":1: can't be read: not valid YAML: a number in an escape or a directive is too large"),
        (
            "a: 1\n" * 200,
            ":2: .*a: this key is written twice, on lines 1 and 2. Keep one. More than 100 others follow.",
        ),
        ("#" * 2**18 + "#", "can't be read: expected at most 262144 bytes"),
        ("inputs: [{tensor: x, dtype: int64}]", r":1: inputs\[0\]: write either `field`"),
        ("inputs: [{tensor: x, field: a, fields: [b], dtype: int64}]", r"inputs\[0\]: write either `field`"),
        (
            "inputs: [{tensor: x, fields: [], dtype: int64}]",
            r"inputs\[0\].fields: expected at least one, found an empty list.",
        ),
        ("inputs: [{tensor: x, fields: [a], dtype: int8}]", "dtype `int8` is not one of float16, float32, float64"),
        ("inputs: [{tensor: x, field: a, dtype: int64, shape: [-1, 2]}]", r"shape \[-1, 2\] is the shape of one event"),
        ("batch_sizes: [0]", r":1: batch_sizes\[0\]: expected at least 1, found the number 0."),
    ],
)
def test_wrong_config_is_refused_with_its_place(tmp_path: Path, config: str | bytes, says: str) -> None:
    folder = put(tmp_path, config)
    with pytest.raises(ModelConfigError, match=says) as refused:
        load_version(tmp_path, "late")
    lines = [
        line for line in str(refused.value).splitlines() if not line.startswith("    ")
    ]  # without those of the file
    assert all(line.startswith(str(folder / "config.yaml")) for line in lines)


@pytest.mark.parametrize(
    ("inputs", "outputs", "says"),
    [
        (
            "{tensor: x, field: a, dtype: int64}",
            "",
            r":1: inputs\[0\]: tensor `x` is filled by the array field `a`: give",
        ),
        ("{tensor: x, fields: [a, b], dtype: int64, shape: [3]}", "", r"3 values an event, but 2 fields .* \(a, b\)"),
        (
            "{tensor: x, fields: [a], dtype: int64}, {tensor: x, fields: [b], dtype: int64}",
            "",
            r":1: inputs\[1\]: tensor x is there twice",
        ),
        (
            "{tensor: x, fields: [a], dtype: int64}",
            ", {tensor: z, name: y}",
            r":2: outputs\[1\]: output y is there twice",
        ),
    ],
)
def test_mapping_that_contradicts_itself_is_refused(tmp_path: Path, inputs: str, outputs: str, says: str) -> None:
    folder = put(tmp_path, f"inputs: [{inputs}]\noutputs: [{{tensor: y}}{outputs}]")
    with pytest.raises(ModelConfigError, match=says) as refused:
        load_version(tmp_path, "late")
    assert str(folder / "config.yaml") in str(refused.value)


def test_config_that_is_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    folder = put(tmp_path)
    (folder / "config.yaml").unlink()
    os.mkfifo(folder / "config.yaml")
    with pytest.raises(ModelConfigError, match=r"config.yaml can't be read: expected a file, found something else"):
        load_version(tmp_path, "late")


def test_padding_may_have_an_exponent(tmp_path: Path) -> None:
    put(
        tmp_path, "inputs: [{tensor: x, field: a, max_length: 4, pad: -1.0e+9, dtype: float32}]\noutputs: [{tensor: y}]"
    )
    assert load_version(tmp_path, "late").signature.inputs[0].pad == -1e9


def test_folder_whose_number_no_prediction_holds_is_no_version(tmp_path: Path) -> None:
    put(tmp_path, version="2147483648")
    put(tmp_path, version="7")
    assert load_version(tmp_path, "late").version == 7


def test_every_problem_of_a_config_is_told_at_once(tmp_path: Path) -> None:
    put(tmp_path, "inputs: [{tensor: x, dtype: int64}]\noutputs: []\ncolour: red")
    with pytest.raises(ModelConfigError) as refused:
        load_version(tmp_path, "late")
    assert len(str(refused.value).splitlines()) == 3


@pytest.mark.parametrize(
    ("file", "executor"),
    [("model.onnx", "onnx"), ("model.pt2", "torch"), ("model.pt", "torch"), ("model.py", "python")],
)
def test_models_file_says_what_runs_it(tmp_path: Path, file: str, executor: str) -> None:
    folder = put(tmp_path, model=False)
    (folder / file).touch()
    found = load_version(tmp_path, "late")
    assert (found.file, found.executor) == (folder / file, executor)


def test_config_says_which_of_several_files_runs(tmp_path: Path) -> None:
    folder = put(tmp_path, GOOD + "executor: python\n")
    (folder / "model.py").touch()
    assert load_version(tmp_path, "late").executor == "python"


@pytest.mark.parametrize(
    ("config", "files", "says"),
    [
        (GOOD, ["model.py"], r"has several models: model.onnx, model.py. Say in config.yaml .*`executor: onnx`"),
        (GOOD, ["model.pt", "model.pt2"], r"has several models: model.onnx, model.pt2, model.pt"),
        (
            GOOD + "executor: torch",
            [],
            r"`executor: torch` needs one file model.pt2 or model.pt beside it, and there is model.onnx",
        ),
        (GOOD + "executor: torch", ["model.pt", "model.pt2"], r"`executor: torch` needs one file"),
        (
            GOOD + "executor: triton",
            [],
            ":10: executor: expected onnx, torch, python, kserve, openai or mlflow, found 'triton'.",
        ),
    ],
)
def test_doubt_about_what_runs_a_model_is_refused(tmp_path: Path, config: str, files: list[str], says: str) -> None:
    folder = put(tmp_path, config)
    for file in files:
        (folder / file).touch()
    with pytest.raises(ModelConfigError, match=says) as refused:
        load_version(tmp_path, "late")
    assert str(folder) in str(refused.value)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (
            GOOD.replace("[4, 8]", "[3, 600, 600]").replace("[64", "[4096"),
            ":9: batch_sizes: .* 4096 events of 1080000 values",
        ),
        (
            GOOD.replace("[4, 8]", "[30000, 30000]").replace("batch_sizes: [64, 8, 8]", ""),
            r":5: inputs\[1\]: .* 1 events of",
        ),
    ],
)
def test_batch_that_no_memory_holds_is_refused_before_it_is_made(tmp_path: Path, config: str, says: str) -> None:
    put(tmp_path, config)
    with pytest.raises(ModelConfigError, match=says):
        load_version(tmp_path, "late")


VARYING = "inputs: [{tensor: x, field: a, longest: 4, dtype: float32}]\noutputs: [{tensor: y}]\nlengths: [2, 4]\n"


def test_option_under_its_former_name_works_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(tmp_path, VARYING)
    with caplog.at_level(logging.WARNING):
        version = load_version(tmp_path, "late")
    assert (version.signature.max_length, version.length_buckets) == (4, (2, 4))
    said = [record.getMessage() for record in caplog.records]
    assert [line.partition("config.yaml:")[2] for line in said] == [
        "3: lengths is now length_buckets; the former name works in this version only",
        "1: inputs[0].longest is now max_length; the former name works in this version only",
    ]


def test_present_names_give_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(tmp_path, VARYING.replace("longest", "max_length").replace("lengths", "length_buckets"))
    with caplog.at_level(logging.WARNING):
        load_version(tmp_path, "late")
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("longest: 4", "longest: a"), r":1: inputs\[0\]\.max_length: expected a whole number"),
        (("lengths: [2, 4]", "lengths: [2, b]"), r":3: length_buckets\[1\]: expected a whole number"),
        (
            ("longest: 4", "longest: 4, max_length: 4"),
            r":1: inputs\[0\]\.longest: expected one of longest and max_length",
        ),
        (
            ("lengths: [2, 4]", "lengths: [2]\nlength_buckets: [4]"),
            ":3: lengths: expected one of lengths and length_buckets",
        ),
    ],
)
def test_what_is_wrong_under_a_former_name_is_told_with_its_line(
    tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    put(tmp_path, VARYING.replace(*change))
    with pytest.raises(ModelConfigError, match=said):
        load_version(tmp_path, "late")
