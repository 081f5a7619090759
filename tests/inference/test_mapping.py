"""What config.yaml and the pipeline file say of fields and outputs becomes the signature."""

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millstream.inference.conversions import Conversion
from millstream.inference.entries import file_beside
from millstream.inference.errors import ModelConfigError
from millstream.inference.features import to_tensors
from millstream.inference.repository import load_version
from millstream.inference.signature import Signature, TensorOutput, check_fields
from millstream.inference.times import Time
from millstream.schemas.wording import dotted
from tests.inference.test_repository import put
from tests.schemas.tables import table_of

OUTPUTS = "outputs: [{tensor: y}]\n"
OF_FILE = "fields: [{field: f, vocabulary: v.txt}], dtype: int64"


def signature_of(
    repository: Path, inputs: str, outputs: str = OUTPUTS, fields: dict[str, Any] | None = None, **files: str
) -> Signature:
    folder = put(repository, f"inputs:\n  - {inputs}\n{outputs}")
    for name, text in files.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return load_version(repository, "late", fields=fields, mapped_at=lambda *loc: f"p.yaml:7: {dotted(loc)}").signature


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 12\n"


def tensor_of(signature: Signature, dtype: Any, values: list[Any]) -> list[Any]:
    """The elements that the first field's values become."""
    path = signature.fields[0]
    found = to_tensors(table_of({path: dtype}, **{path: values}), signature.inputs, allow_nan=False)
    assert not found.unfit
    elements: list[Any] = found.tensors["x"].reshape(-1).tolist()
    return elements


def test_path_alone_is_taken_as_it_is(tmp_path: Path) -> None:
    (entry,) = signature_of(tmp_path, "{tensor: x, fields: [customer.age, {field: km}], dtype: float32}").inputs
    assert (entry.fields, entry.conversions) == (("customer.age", "km"), ())


@pytest.mark.parametrize(
    ("options", "tensor", "dtype", "value", "becomes"),
    [
        ("missing: nan", "float32", "float64", None, math.nan),
        ("missing: .nan", "float64", "float64", None, math.nan),
        ("missing: -1", "float32", "float64", None, -1.0),
        ("missing: nan", "float16", "float64", None, math.nan),
        ("missing: -65504", "float16", "float64", None, -65504.0),
        ("type: text", "float16", "string", "33.5", 33.5),
        ("missing: -1", "int32", "int64", None, -1),
        ("missing: true", "bool", "boolean", None, True),
        ("missing: nan", "string", "string", None, "nan"),
        ("missing: ''", "string", "string", None, ""),
        ("type: text", "float32", "string", "33.5", 33.5),
        ("type: text", "int64", "string", "33", 33),
        ("type: text", "bool", "string", "true", True),
        ("type: number", "int64", "float64", 33.0, 33),
        ("type: int", "bool", "int32", 1, True),
        ("type: boolean", "int64", "boolean", True, 1),
        ("type: boolean", "float32", "boolean", True, 1.0),
        ("time: iso8601", "float64", "string", "1970-01-02T00:00:00Z", 86400.0),
        ("time: days, as: epoch", "float64", "int64", 1, 86400.0),
        ("time: days, as: month", "int64", "float64", 31.5, 2),
        ("time: milliseconds, as: weekday", "int64", "int64", 0, 3),
        ("as: month", "int64", "string", "2026-05-01", 5),
        ("vocabulary: [no, se, 7]", "int64", "string", "7", 2),
        ("vocabulary: ['no', se, 7], unknown: 0", "int64", "int64", 8, 0),
        ("vocabulary: words.txt", "int64", "string", "two", 1),
        ("vocabulary: [no, 'true', '0.5'], type: any", "int64", "mixed", "true", 1),
        ("vocabulary: [se, dk], unknown: missing, missing: nan", "float32", "string", "fi", math.nan),
        ("vocabulary: [se, dk], unknown: missing, missing: 7", "int64", "string", "fi", 7),
        ("missing: 1.50", "float32", "float64", None, 1.5),
        ("missing: -1e9", "float64", "float64", None, -1e9),
    ],
)
def test_option_of_a_field_converts_it(
    tmp_path: Path, options: str, tensor: str, dtype: str, value: Any, becomes: Any
) -> None:
    options = options.replace("[no,", "['no',")
    text = f"{{tensor: x, fields: [{{field: f, {options}}}], dtype: {tensor}}}"
    signature = signature_of(tmp_path, text, words="one\r\ntwo\r\nthree\r\n")
    check_fields(signature, {"f": dtype}, "model", "schema")
    np.testing.assert_equal(tensor_of(signature, dtype, [value]), [becomes])


def test_features_become_float16_and_those_beyond_its_range_are_rejected(tmp_path: Path) -> None:
    signature = signature_of(tmp_path, "{tensor: x, fields: [km, {field: rank, missing: 0}], dtype: float16}")
    values: dict[str, Any] = {"km": [0.1, 65504.0, 1e6, 1.0], "rank": [1, None, 2, 70_000]}
    found = to_tensors(table_of({"km": "float32", "rank": "int64"}, **values), signature.inputs, allow_nan=False)
    assert found.tensors["x"].dtype == np.float16
    assert found.tensors["x"].tolist() == [[float(np.float16(0.1)), 1.0], [65504.0, 0.0]]
    assert [each.error for each in found.unfit] == [
        "field `km` is 1000000.0, too large for float16, which tensor `x` does not take",
        "field `rank` is 70000, too large for float16, which tensor `x` does not take",
    ]


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (
            "{tensor: x, fields: [{field: f, missing: 70000}], dtype: float16}",
            r"missing: expected reject or nan or a number up to 65504, found the number 70000",
        ),
        (
            "{tensor: x, field: f, shape: [3], pad: 70000, dtype: float16}",
            r"`pad` is a value of the dtype, for float16 at most 65504, found the number 70000",
        ),
    ],
)
def test_value_in_the_config_that_float16_cannot_hold_is_refused(tmp_path: Path, entry: str, says: str) -> None:
    with pytest.raises(ModelConfigError, match=says):
        signature_of(tmp_path, entry)


def test_options_of_an_array_field_stand_beside_it(tmp_path: Path) -> None:
    signature = signature_of(
        tmp_path,
        "{tensor: x, field: 'items[].colour', vocabulary: [red, blue], unknown: 9, missing: 8, dtype: int64, shape: [4], "
        "pad: 7, truncate: true}",
    )
    assert signature.fields == ["items[].colour"]
    path = signature.fields[0]
    table = table_of({path: signature_list("string")}, **{path: [["blue", "black", None], ["red"] * 5]})
    found = to_tensors(table, signature.inputs, allow_nan=False)
    assert found.tensors["x"].tolist() == [[1, 9, 8, 7], [0, 0, 0, 0]]


@pytest.mark.parametrize(("written", "pad"), [("1.50", 1.5), ("-1e9", -1e9), ("-1.0E+9", -1e9)])
def test_padding_may_be_any_decimal_number(tmp_path: Path, written: str, pad: float) -> None:
    (entry,) = signature_of(tmp_path, f"{{tensor: x, field: f, max_length: 3, pad: {written}, dtype: float64}}").inputs
    assert entry.pad == pad


def test_value_that_a_vocabulary_lacks_may_be_missing(tmp_path: Path) -> None:
    signature = signature_of(
        tmp_path,
        "{tensor: x, field: f, vocabulary: [a, b], unknown: missing, missing: nan, dtype: float32, shape: [3]}",
    )
    table = table_of({"f": signature_list("string")}, f=[["b", "c", None]])
    found = to_tensors(table, signature.inputs, allow_nan=False)
    np.testing.assert_array_equal(found.tensors["x"], np.array([[1, np.nan, np.nan]], np.float32))
    replaced = {source.option: (values.number, values.examples) for source, values in found.replaced.sources.items()}
    assert replaced["unknown"] == (1, ("c",))


def signature_list(items: str) -> Any:
    from millstream.schemas.dtypes import ListOf  # noqa: PLC0415

    return ListOf(items)


@pytest.mark.parametrize("path", ["items[0].price", "tags[]", "items[-1]", 'attributes["my.key"]'])
def test_path_with_brackets_inside_brackets_needs_quotes(tmp_path: Path, path: str) -> None:
    with pytest.raises(ModelConfigError, match=r":2: .* Put quotes around a path with \[ \] that stands inside"):
        signature_of(tmp_path, f"{{tensor: x, fields: [{path}], dtype: float32}}")
    quoted = f"{{tensor: x, fields: ['{path}', {{field: '{path}'}}], dtype: float32}}"
    assert signature_of(tmp_path / "quoted", quoted).fields == [path]


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("{field: f, misssing: 0}", r":2: inputs\[0\].fields\[0\].misssing: unknown key. Did you mean missing\?"),
        ("{field: f, colour: 0}", r"unknown key. Allowed here: missing, type, time, as, vocabulary"),
        ("{missing: 0}", r"inputs\[0\].fields\[0\].field: this option is missing"),
        ("3", r"inputs\[0\].fields\[0\]: expected the path of a field, or a mapping with `field`, found the number 3"),
        (
            "{field: f, missing: [0]}",
            r"fields\[0\].missing: expected reject, nan or a value of the tensor, found a list",
        ),
        ("{field: f, missing: none}", r"fields\[0\].missing: expected reject or nan or a number, found 'none'"),
        ("{field: f, missing: true}", r"fields\[0\].missing: expected reject or nan or a number, found true"),
        (
            "{field: f, vocabulary: [a, b], missing: b}",
            r"missing: expected reject or the index .*, found 'b'\. Write 1, the index of this entry\.",
        ),
        ("{field: f, vocabulary: [a, b], missing: c}", r"missing: expected reject or nan or a number, found 'c'"),
        (
            "{field: f, type: float32}",
            r"fields\[0\].type: .* found 'float32'. The tensor's type is the input's `dtype: float32`\.",
        ),
        ("{field: f, type: date}", r"fields\[0\].type: expected text, number, int, boolean or any, found 'date'"),
        (
            "{field: f, time: minutes}",
            r"fields\[0\].time: expected iso8601, seconds, milliseconds, microseconds or days, found 'minutes'\. A duration is a "
            r"plain number: leave `time` out\.",
        ),
        (
            "{field: f, time: days}",
            r"fields\[0\]: expected `as` beside `time: days`, such as .* A duration in days is a plain",
        ),
        ("{field: f, time: [minutes]}", r"fields\[0\].time: expected iso8601, seconds, .* found a list\."),
        ("{field: f, as: year}", r"fields\[0\].as: expected epoch, hour, weekday, .* found 'year'"),
        (
            "{field: f, type: int, as: hour}",
            r"fields\[0\]: expected one of type, time, .* found type and time: keep one",
        ),
        ("{field: f, unknown: 0}", r"fields\[0\]: `unknown` is the index of values that the `vocabulary` lacks"),
        (
            "{field: f, vocabulary: 3}",
            r"vocabulary: expected the name of a file or a list of texts, found the number 3",
        ),
        ("{field: f, vocabulary: []}", r"fields\[0\].vocabulary: expected at least one entry, found none"),
        (
            "{field: f, vocabulary: [no]}",
            r"vocabulary: expected texts or whole numbers, found false at entry 1. Put a text such as no",
        ),
        (
            "{field: f, vocabulary: [a, b: c]}",
            r"vocabulary: expected texts or whole numbers, found a mapping at entry 2. A text with a colon in it needs quotes",
        ),
        (
            "{field: f, vocabulary: [a, b, a]}",
            r"vocabulary: expected each entry once, found 'a' at entry 1 and at entry 3",
        ),
        ("{field: f, vocabulary: none.txt}", r"vocabulary: expected a file, found none at .*none.txt"),
        ("{field: f, vocabulary: ../x}", r"vocabulary: expected the name of a file in .*late/1, found '../x'"),
        ("{field: f, vocabulary: /etc/passwd}", r"vocabulary: expected the name of a file in"),
        (
            "{field: f, vocabulary: gap.txt}",
            r"vocabulary: expected an entry at line 2, found an empty text. If .* a list",
        ),
        (
            "{field: f, vocabulary: blank.txt}",
            r"vocabulary: expected entries without .*, found 'DE ' at line 1 of .*. Remove it. If",
        ),
        (
            "{field: f, vocabulary: pointer.txt}",
            r"vocabulary: expected entries in .*pointer.txt, found a pointer of Git LFS, not",
        ),
        (
            "{field: f, tokenizer: t.json}",
            r"fields\[0\].tokenizer: a tokenizer makes a list of token IDs: .* no `max_length`",
        ),
    ],
)
def test_wrong_option_of_a_field_is_told_with_its_place(tmp_path: Path, entry: str, says: str) -> None:
    with pytest.raises(ModelConfigError, match=says) as refused:
        signature_of(
            tmp_path,
            f"{{tensor: x, fields: [{entry}], dtype: float32}}",
            gap="a\n\nb\n",
            blank="DE \r\nFR\n",
            pointer=POINTER,
        )
    assert str(refused.value).startswith(str(tmp_path / "late" / "1" / "config.yaml:2: inputs[0]"))


def test_what_is_no_file_in_place_of_a_vocabulary_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "late" / "1"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "pipe.txt")
    (folder / "folder.txt").mkdir()
    (folder / "loop.txt").symlink_to("loop.txt")
    (folder / "gone.txt").symlink_to("none.txt")
    for name, found in {
        "pipe": "something else, such as a named pipe",
        "folder": "a folder",
        "loop": "a link that leads to no file",
        "gone": "a link that leads to no file",
    }.items():
        with pytest.raises(ModelConfigError) as refused:
            file_beside(f"{name}.txt", folder, "vocabulary")
        assert str(refused.value) == (
            f"vocabulary: expected a file at {folder / name}.txt, found {found}. Put the file itself there."
        )


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (
            "fields: [{field: f, missing: 0.5}], dtype: int64",
            r"missing: expected reject or a whole number of int64, found",
        ),
        (
            "fields: [{field: f, missing: 2147483648}], dtype: int32",
            r"missing: expected reject or a whole number of int32",
        ),
        (
            "fields: [{field: f, missing: 1}], dtype: bool",
            r"missing: expected reject or true or false, found the number 1",
        ),
        ("fields: [{field: f, missing: 1}], dtype: string", r"missing: expected reject or a text, found the number 1"),
        (
            "fields: [{field: f, type: int}], dtype: string",
            r"type: expected text or any for a tensor of type string, found int",
        ),
        (
            "fields: [{field: f, time: seconds}], dtype: bool",
            r"time: `time` makes a number of a time: expected one of the",
        ),
        (
            "fields: [{field: f, as: hour}], dtype: string",
            r"as: `as` makes a number of a time: expected one of the dtypes",
        ),
        ("fields: [{field: f, vocabulary: [a]}], dtype: bool", r"vocabulary: a vocabulary makes an index of a value"),
        (
            "fields: [f], missing: 0, dtype: int64",
            r"`missing`: options of one field stand beside `field`, or in an entry of",
        ),
        ("fields: [f], as: hour, dtype: int64", r"`as`: options of one field stand beside `field`"),
        ("fields: [f], truncate: true, dtype: int64", r"`truncate` stands beside a `field`"),
        ("fields: [f], pad: 0, dtype: int64", r"`pad` is a value of the dtype, and stands beside a `field`"),
        ("field: f, max_length: 3, pad: 1e999, dtype: float32", r"`pad` is a value of the dtype, a finite number here"),
        (
            "fields: [{field: f, missing: 1e999}], dtype: float32",
            r"missing: expected reject or nan or a number, found '1e999'",
        ),
        (
            "fields: [{field: f, vocabulary: [a], unknown: nan}], dtype: float32",
            r"unknown: expected the index of other values, or missing, found 'nan'. For NaN, write `unknown: missing` and",
        ),
        (
            "fields: [{field: f, vocabulary: [a], unknown: other}], dtype: float32",
            r"unknown: expected the index of other values, or missing, found 'other'\.$",
        ),
        (
            "fields: [{field: f, vocabulary: [a], unknown: nan}], dtype: float32",
            r"write `unknown: missing` and `missing: nan`\.$",
        ),
        (
            "fields: [{field: f, missing: NULL}], dtype: float32",
            r"missing: expected reject, nan or .* found null or no value",
        ),
        (
            "fields: [{field: f, vocabulary: [a], unknown: missing}], dtype: float32",
            r"unknown: `unknown: missing` makes other values missing ones: expected `missing` beside it, such as",
        ),
    ],
)
def test_option_that_does_not_fit_the_tensor_is_told(tmp_path: Path, entry: str, says: str) -> None:
    with pytest.raises(ModelConfigError, match=says):
        signature_of(tmp_path, f"{{tensor: x, {entry}}}")


def test_mistakes_of_several_inputs_and_outputs_are_told_together(tmp_path: Path) -> None:
    inputs = (
        "inputs:\n  - {tensor: x, fields: [{field: f, vocabulary: []}], dtype: int64}\n"
        "  - {tensor: y, fields: [{field: f, missing: true}], dtype: int64}\n"
    )
    put(tmp_path, f"{inputs}outputs:\n  - {{tensor: p, classes: [no]}}\n")
    with pytest.raises(ModelConfigError) as refused:
        load_version(tmp_path, "late")
    places = [line.partition(": ")[2].partition(": ")[0] for line in str(refused.value).splitlines()]
    assert places == ["inputs[0].fields[0].vocabulary", "inputs[1].fields[0].missing", "outputs[0].classes"]


def test_link_that_leads_out_of_the_models_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secrets.txt").write_text("a\n", encoding="utf-8")
    folder = put(tmp_path, f"inputs:\n  - {{tensor: x, {OF_FILE}}}\n{OUTPUTS}")
    (folder / "v.txt").symlink_to(tmp_path / "secrets.txt")
    with pytest.raises(ModelConfigError, match=r"vocabulary: expected a file in .*late/1, found at .*v.txt a link to "):
        load_version(tmp_path, "late")


def test_link_within_the_models_folder_and_to_it_is_followed(tmp_path: Path) -> None:
    folder = put(tmp_path / "stored", f"inputs:\n  - {{tensor: x, {OF_FILE}}}\n{OUTPUTS}")
    (folder / "v-2.txt").write_text("a\n", encoding="utf-8")
    (folder / "v.txt").symlink_to("v-2.txt")
    (tmp_path / "late").symlink_to(folder.parent, target_is_directory=True)
    assert load_version(tmp_path, "late").signature.fields == ["f"]


@pytest.mark.parametrize(
    ("before", "given"),
    [
        ("type: text", {"time": "seconds", "as": "hour"}),
        ("time: iso8601, as: weekday", {"type": "int"}),
        ("vocabulary: [a], unknown: 3", {"time": "iso8601"}),
        ("as: hour", {"vocabulary": ["a"], "unknown": 1}),
    ],
)
def test_pipeline_replaces_one_conversion_by_another(tmp_path: Path, before: str, given: dict[str, Any]) -> None:
    kept = "missing: -1"
    expected = ", ".join(f"{name}: {value}" for name, value in given.items())
    (replaced,) = signature_of(
        tmp_path,
        f"{{tensor: x, fields: [{{field: f, {before}, {kept}}}], dtype: int64}}",
        fields={"x": [{"field": "g", **given}]},
    ).inputs
    (written,) = signature_of(
        tmp_path / "other", f"{{tensor: x, fields: [{{field: g, {expected}, {kept}}}], dtype: int64}}"
    ).inputs
    assert replaced == written


def test_pipeline_changes_a_part_of_a_conversion(tmp_path: Path) -> None:
    (entry,) = signature_of(
        tmp_path,
        "{tensor: x, field: f, time: seconds, as: hour, dtype: int64, shape: [1]}",
        fields={"x": {"field": "g", "as": "day"}},
    ).inputs
    assert entry.conversions == (Conversion(Time("seconds", "day", whole=True)),)


def test_pipeline_renames_a_field_that_keeps_its_options(tmp_path: Path) -> None:
    signature = signature_of(
        tmp_path,
        "{tensor: x, fields: [{field: km, missing: -1}, age], dtype: float32}",
        fields={"x": ["distance", {"field": "customer.age", "type": "text"}]},
    )
    (entry,) = signature.inputs
    assert (entry.fields, entry.mapped_at) == (("distance", "customer.age"), "p.yaml:7: x")
    table = table_of({"distance": "float64", "customer.age": "string"}, distance=[None], **{"customer.age": ["7.5"]})
    assert to_tensors(table, [entry], allow_nan=False).tensors["x"].tolist() == [[-1.0, 7.5]]


def test_pipeline_renames_an_array_field_that_keeps_its_options(tmp_path: Path) -> None:
    (entry,) = signature_of(
        tmp_path,
        "{tensor: x, field: tags, vocabulary: [a, b], dtype: int64, max_length: 3}",
        fields={"x": {"field": "labels", "unknown": 5}},
    ).inputs
    found = to_tensors(table_of({"labels": signature_list("string")}, labels=[["b", "c"]]), [entry], allow_nan=False)
    assert found.tensors["x"].items.tolist() == [1, 5]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([{"field": "f", "colour": 1}], r"p.yaml:7: x\[0\].colour: unknown key. Allowed here: missing, type"),
        (
            [{"field": "f", "type": "date"}],
            r"p.yaml:7: x\[0\].type: expected text, number, int, boolean or any, found 'date'",
        ),
        ([{"field": "f", "missing": "?"}], r"p.yaml:7: x\[0\].missing: expected reject or nan or a number, found '\?'"),
        (
            {"field": "f", "missing": 0},
            "p.yaml:7: x: tensor `x` is filled by the array field `f`: give its `shape`, such as .*one value and no "
            "array, write `fields: .f.`",
        ),
    ],
)
def test_wrong_mapping_of_the_pipeline_is_told_with_its_place(tmp_path: Path, given: Any, says: str) -> None:
    with pytest.raises(ModelConfigError, match=says):
        signature_of(tmp_path, "{tensor: x, fields: [f], dtype: float32}", fields={"x": given})


@pytest.mark.parametrize(
    ("options", "dtype", "leaf"),
    [
        ("", "float32", "float64"),
        ("", "int32", "int64"),
        ("", "bool", "boolean"),
        ("", "string", "string"),
        (", type: text", "float32", "string"),
        (", type: int", "float32", "int64"),
        (", type: number", "int64", "float64"),
        (", vocabulary: [a]", "int64", "scalar"),
        (", time: iso8601", "int64", "string"),
        (", time: seconds", "int64", "float64"),
        (", time: milliseconds", "int64", "float64"),
        (", as: hour", "float64", "string"),
    ],
)
def test_signature_says_which_type_each_path_has_in_json(tmp_path: Path, options: str, dtype: str, leaf: str) -> None:
    signature = signature_of(tmp_path, f"{{tensor: x, fields: [{{field: a.b{options}}}], dtype: {dtype}}}")
    assert signature.paths == {"a.b": leaf}


@pytest.mark.parametrize(
    ("first", "second", "leaf"),
    [
        ("{field: f}], dtype: float32", "{field: f}], dtype: int64", "int64"),
        ("{field: f}], dtype: string", "{field: f, vocabulary: [a]}], dtype: int64", "string"),
        ("{field: f}], dtype: bool", "{field: f}], dtype: float32", "boolean"),
    ],
)
def test_path_of_two_tensors_has_the_type_that_fills_both(tmp_path: Path, first: str, second: str, leaf: str) -> None:
    text = f"{{tensor: x, fields: [{first}}}\n  - {{tensor: z, fields: [{second}}}"
    assert signature_of(tmp_path, text).paths == {"f": leaf}


def test_path_of_two_tensors_that_want_different_types_is_told(tmp_path: Path) -> None:
    text = "{tensor: x, fields: [f], dtype: string}\n  - {tensor: z, fields: [f], dtype: int64}"
    says = r":3: inputs\[1\]: expected one type of field `f` for all tensors, found a text for tensor `x` and a whole"
    with pytest.raises(ModelConfigError, match=says):
        signature_of(tmp_path, text)


@pytest.mark.parametrize(
    ("options", "dtype", "says"),
    [
        (
            "type: text",
            "int64",
            r"takes text with a number, such as 33.5 \(as in JSON: .*\) from .* field `f`, but schema `s` has int64 there",
        ),
        ("time: seconds", "string", r"takes a time in seconds since 1970 \(years 1 to 9999\) from .* has string there"),
        (
            "as: hour",
            "int64",
            r"takes an Avro timestamp or a valid time with separators, such as .* \(for other times, write `time:`\) from",
        ),
        ("vocabulary: [a]", "float64", "takes an entry of the vocabulary from .* has float64 there"),
    ],
)
def test_field_of_another_type_than_its_conversion_takes_is_named(
    tmp_path: Path, options: str, dtype: str, says: str
) -> None:
    signature = signature_of(tmp_path, f"{{tensor: x, fields: [{{field: f, {options}}}], dtype: float32}}")
    with pytest.raises(ModelConfigError, match=says):
        check_fields(signature, {"f": dtype}, "model m", "s")


def test_misfit_without_a_schema_speaks_of_the_events(tmp_path: Path) -> None:
    signature = signature_of(tmp_path, "{tensor: x, fields: [f], dtype: float32}")
    with pytest.raises(ModelConfigError, match=r"but the events have string there\. .*pipeline file\)\.$"):
        check_fields(signature, {"f": "string"}, "model m", "")


@pytest.mark.parametrize(
    ("field", "first"), [("scans[].x", "scans[0].x"), ("dims", "dims[0]"), ('["a[]"][]', '["a[]"][0]')]
)
def test_list_for_one_element_names_the_path_to_its_first_item(tmp_path: Path, field: str, first: str) -> None:
    signature = signature_of(tmp_path, f"{{tensor: x, fields: ['{field}'], dtype: float32}}")
    with pytest.raises(ModelConfigError) as refused:
        check_fields(signature, {field: signature_list("float64")}, "model m", "s")
    assert f": `{first}` is the first item of the list" in str(refused.value)


def test_schema_tells_the_format_of_a_time(tmp_path: Path) -> None:
    text = "{tensor: x, fields: [{field: f, as: hour}, {field: g, time: seconds, as: hour}], dtype: int64}"
    signature = signature_of(tmp_path, text).with_time_formats({"f": "microseconds", "g": "days"}.get)
    check_fields(signature, {"f": "int64", "g": "int64"}, "model m", "s")
    table = table_of({"f": "int64", "g": "int64"}, f=[3_600_000_000], g=[7200])
    assert to_tensors(table, signature.inputs, allow_nan=False).tensors["x"].tolist() == [[1, 2]]


def test_outputs_have_classes_best_and_thresholds(tmp_path: Path) -> None:
    outputs = (
        "outputs:\n  - {tensor: p}\n  - {tensor: p, name: best, top: 2, classes: names.txt}\n"
        "  - {tensor: p, name: any, threshold: 0.5}\n"
    )
    signature = signature_of(tmp_path, "{tensor: x, fields: [f], dtype: int64}", outputs, names="bird\ncat\ndog")
    assert signature.outputs == (
        TensorOutput("p", "p"),
        TensorOutput("p", "best", ("bird", "cat", "dog"), top=2),
        TensorOutput("p", "any", threshold=0.5),
    )
    assert signature.output_tensors == ["p"]


@pytest.mark.parametrize(
    ("outputs", "says"),
    [
        ("{tensor: p}, {tensor: p}", r":3: outputs\[1\]: output p is there twice. Give one of them another `name`."),
        ("{tensor: p, top: 0}", r"outputs\[0\].top: expected at least 1, found the number 0"),
        ("{tensor: p, top: 1, threshold: 1}", r"outputs\[0\]: expected one of top and threshold, found both"),
        (
            "{tensor: p, top: 3, classes: [a, b]}",
            r"outputs\[0\].top: expected at most the number of classes, 2, found 3",
        ),
        ("{tensor: p, threshold: 0, classes: [a]}", r"outputs\[0\].classes: expected two classes beside `threshold`"),
        ("{tensor: p, classes: none.txt}", r"outputs\[0\].classes: expected a file, found none at"),
        ("{tensor: p, threshold: a}", r"outputs\[0\].threshold: expected a number, found 'a'"),
    ],
)
def test_wrong_output_is_told_with_its_place(tmp_path: Path, outputs: str, says: str) -> None:
    with pytest.raises(ModelConfigError, match=says):
        signature_of(tmp_path, "{tensor: x, fields: [f], dtype: int64}", f"outputs: [{outputs}]")
