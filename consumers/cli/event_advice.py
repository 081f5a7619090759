"""Says what to do about events that lack a field, or whose values have other types than the mapping reads."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from millstream.consumers.decode.time_forms import read_as_time, written
from millstream.inference.casts import Cast
from millstream.inference.conversions import Conversion
from millstream.inference.signature import Signature, TensorInput
from millstream.inference.times import Format, Time
from millstream.inference.vocabulary import Vocabulary
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.errors import BadPathError
from millstream.schemas.lookup_columns import looked_up
from millstream.schemas.packed import Packed
from millstream.schemas.paths import Every, parse_path, place_of, text_of, value_at
from millstream.schemas.times import likely_unit, parse_iso8601
from millstream.schemas.wording import first_of, meant

_MISMATCH = re.compile(r"(?P<path>.+?): expected (?P<expected>.+), found (?P<found>.+)")
_NO_ID = re.compile(r"field `(?P<path>.+?)`, the event id, is absent or null")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_WITH_COMMA = re.compile(r"[+-]?[\d.]*\d,\d+", re.ASCII)
_INDEX = re.compile(r"\[-?\d+\]")
_ABSENT = re.compile(
    r"field `(?P<path>.+?)`(\[(?P<item>\d+)\])? is (absent or )?null(, and so is its fallback field `.+?`)?, but .+"
)  # older dead letters say `is null` of items
_NAME = re.compile(r"\w+", re.ASCII)  # which a path has as it is
_MAX_NAMES = 12  # of fields that are listed
_SINGLE = {"text": "text", "true or false": "boolean", "a number": "number", "an integer": "int"}
"""Beginning of what a message expects -> its option `type`."""
_FOUND = {"text": "text", "true": "boolean", "false": "boolean", "the number": "number"}
"""Beginning of what a message found -> its option `type`."""
_ONE_FORM = (
    "a time has one form in all events: text (`time: iso8601`) or a number (`time: seconds`, `milliseconds` or `microseconds`). "
    "No mapping takes both. If all events have the other form, change `time`; otherwise let the producer send one "
    "(`millstream docs models#times`)."
)
_MISFIT = re.compile(
    r"field `(?P<path>.+?)`(\[(?P<item>\d+)\])? is .+, but tensor `.+` needs (?P<expected>.+)", re.DOTALL
)
_CONVERSION = {
    "an entry of the vocabulary": "vocabulary",
    "a valid time with": "time",
    "an Avro timestamp": "time",
    "true, false": "bool",
    "one of the texts true": "bool",
    "text with": "number",
    "a number, true": "number",
    "a whole number": "number",
}
"""Beginning of what a conversion needs -> which conversion it is."""
_SCHEMAS_DIFFER = (
    "The producer writes with a schema that the workers' schema can't read. `millstream docs registry#when-schemas-change` says "
    "for each change what to do. Once the workers read both schemas, replay the dead letters."
)
_INT64_END = 2.0**63
_IF_TIME = " It can't stand beside `time`: a time has one form in all events (`millstream docs models#times`)."


def advice_on(pipeline: Pipeline, signature: Signature | None, reason: str, error: str, event: object) -> str:
    """What to do about a rejected event; empty if its message says all.

    Args:
        pipeline: whose event it is.
        signature: the model's, which says how its fields are read; None: the model isn't loaded.
        reason: why the event was rejected.
        error: the rejection's message.
        event: as an object; anything else if it isn't known as one.
    """
    if reason == "unfit" and (absent := _NO_ID.fullmatch(error)):
        there = _fields_there(absent["path"], event, "as `input.event_id` in the pipeline file")
        return f"{absent['path']}: {there}".rstrip() if there else ""
    if reason == "unfit" and (absent := _ABSENT.fullmatch(error)):
        there = _fields_there(absent["path"], event, "in the mapping", int(absent["item"] or 0))
        return (
            f"{absent['path']}: {there}`missing:` beside the field replaces an absent or null value "
            "(`millstream docs models`)."
        )
    if reason == "unfit" and (misfit := _MISFIT.fullmatch(error)):
        return _on_misfit(misfit, event)
    if reason == "schema_incompatible":
        return _SCHEMAS_DIFFER
    return _on_type(pipeline, signature, reason, error, event)


def _on_misfit(misfit: re.Match[str], event: object) -> str:
    """What to do about a value that a conversion doesn't take; empty if the message says all. `misfit`: of `_MISFIT`."""
    path = _of_items(misfit["path"])
    match _beginning(_CONVERSION, misfit["expected"]):
        case "vocabulary":
            return (
                f"{path}: if the model was trained with the value that the `vocabulary` lacks, add it there, in the order of the "
                "training. Otherwise `unknown:` beside the `vocabulary` gives values without an entry an index of their own "
                "(`millstream docs models#vocabularies`)."
            )
        case "time":
            return (
                f"{path}: `time` reads texts in ISO 8601 only, such as 2026-01-31T09:30:00Z. Let the producer send these, or "
                "null where it has no time, for `missing:` beside the field (`millstream docs models#times`)."
            )
        case "bool" | "number" as kind:
            value = _value(misfit["path"].replace("[]", f"[{misfit['item'] or 0}]"), event)
            return _on_other_text(path, value, is_bool=kind == "bool")
    return ""


def _fields_there(path: str, event: object, place_of_name: str, item: int = 0) -> str:
    """Which fields the event has where the path leads nowhere, with a space behind it; empty if it leads to a null.

    Args:
        path: the path.
        event: as an object.
        place_of_name: where to write the new name of a renamed field.
        item: the index of the item that `[]` in the path stands for.
    """
    try:
        steps = parse_path(path).steps
    except BadPathError:  # of a look-up's column
        return ""
    place: Any = event
    for depth, step in enumerate(steps):
        if isinstance(step, str) and isinstance(place, Mapping) and place and step not in place:
            parent = f"`{text_of(steps[:depth])}`" if depth else "the event"
            listed = ", ".join([*map(str, place)][:_MAX_NAMES]) + (", ..." if len(place) > _MAX_NAMES else "")
            question = meant(step, [*place])
            return (
                f"{parent} has no `{step}`. It has the fields {listed}.{question} If the field was renamed, write its new "
                f"name {place_of_name} (`millstream docs models#a-field-that-is-renamed`). "
            )
        place = value_at(place, [item if step is Every.ITEM else step])
    return ""


def _on_type(pipeline: Pipeline, signature: Signature | None, reason: str, error: str, event: object) -> str:
    """What to do about a value of another type; empty if the message says all."""
    # With a schema, the schema says the types, not the options of a field.
    is_plain = pipeline.input.format == "json" and pipeline.input.schema_name is None
    match = _MISMATCH.fullmatch(error) if is_plain and reason == "undecodable" else None
    if match is None:
        return ""
    expected, found = match["expected"], match["found"]
    if advice := _on_nesting(pipeline, signature, match, event):
        return advice
    path = _of_items(match["path"])
    wanted, given = _beginning(_SINGLE, expected), _beginning(_FOUND, found)
    if not wanted or not given or wanted == given:
        return ""
    uses, included = _uses(signature, path), _included(pipeline, path)
    if "event_time_format" in error:  # the message has the advice for a field that only `input.event_time` names
        return _on_form(pipeline, uses, path, wanted, found) if uses or included else ""
    return (
        _on_form(pipeline, uses, path, wanted, found)
        or _on_text(uses, path, _value(match["path"], event))
        or _on_single(pipeline, signature, path, wanted, given, found)
    )


def _on_single(pipeline: Pipeline, signature: Signature | None, path: str, wanted: str, given: str, found: str) -> str:
    """As `_on_type`, for a value that is no list and no object, and no time. `wanted`, `given`: see `_on_cast`."""
    uses, included = _uses(signature, path), _included(pipeline, path)
    if included and not uses:
        return f"{_on_included(included, given)}{_if_read_too(given) if signature is None else ''}"
    if signature is None:
        return f"{_on_cast(uses, path, wanted, given)}{_IF_TIME}"
    cast = f"{_on_cast(uses, path, wanted, given)}{_in_both_places(included, uses, given) if included else ''}"
    return _on_mixed(pipeline, uses, path) or _on_fraction(uses, path, found) or cast


def _beginning(words: Mapping[str, str], text: str) -> str:
    """What the words stand for with which the text begins; empty: it begins with none of them."""
    return next((meaning for word, meaning in words.items() if text.startswith(word)), "")


def _of_items(path: str) -> str:
    """The path to all items, for the same advice on each item of a list."""
    return _INDEX.sub("[]", path)


def _uses(signature: Signature | None, path: str) -> list[tuple[TensorInput, Conversion]]:
    """The inputs that a field fills, each with the field's conversion."""
    return [
        (entry, conversion)
        for entry in (() if signature is None else signature.inputs)
        for field, conversion in entry.reads
        if _of_items(field) == path
    ]


def _included(pipeline: Pipeline, path: str) -> str:
    """The path as `output.include` names it with a type; empty: it doesn't."""
    return next((field for field, type_ in pipeline.output.include.items() if type_ and _of_items(field) == path), "")


def _on_included(field: str, given: str) -> str:
    """Which types of `output.include` take a value. `field`: as named there; `given`: the value's type."""
    key = _key(field)
    only = {"text": "texts", "number": "numbers (whole ones up to 2^63 - 1)", "boolean": "true and false"}[given]
    return (
        f"{field}: under `output.include`, `{key}: any` takes texts, numbers, and true and false, each as its text; "
        f"`{key}: {given}` takes only {only} (`millstream docs pipeline#output`)."
    )


def _on_form(
    pipeline: Pipeline, uses: Sequence[tuple[TensorInput, Conversion]], path: str, wanted: str, found: str
) -> str:
    """How to read times of the other form in all places that name the field; empty: only the mapping does, or it is no time."""
    times = [use.converter for _, use in uses if isinstance(use.converter, Time)]
    included, as_event_time = _included(pipeline, path), path == pipeline.input.event_time
    form = _form(found)
    if form is None or len(times) < len(uses) or not (as_event_time or (included and times)):
        return ""
    stated = pipeline.input.event_time_format or ("iso8601" if wanted == "text" else "milliseconds")
    options = written(
        form,
        as_event_time=as_event_time and stated != form,
        in_mapping=any(time.format != form for time in times),
        included_as=_key(included) if included else "",
    )
    values = "times in ISO 8601" if form == "iso8601" else f"numbers of {form}"
    return (
        f"{path}: a time has one form in all events. If all of them have {values} there, write {options}. Otherwise let the "
        "producer send one form (`millstream docs models#times`)."
    )


def _form(found: str) -> Format | None:
    """The form of a time that was found; None: it is no time."""
    if found.startswith("text"):
        return "iso8601"
    return likely_unit(float(found.removeprefix("the number "))) if found.startswith("the number ") else None


def _on_text(uses: Sequence[tuple[TensorInput, Conversion]], path: str, value: object) -> str:
    """What to do about a text in place of a number that no cast takes; empty: it is none, or some cast does."""
    dtypes = {entry.dtype for entry, use in uses if isinstance(use.converter, Cast | None)} - {"string"}
    return _on_other_text(path, value, is_bool=dtypes == {"bool"}) if dtypes else ""


def _on_other_text(path: str, value: object, *, is_bool: bool) -> str:
    """As `_on_text`. The advice doesn't name the value, so that it is the same for all values of the field."""
    if not isinstance(value, str) or _NUMBER.fullmatch(value.strip()) or value in ("true", "false"):
        return ""
    if _WITH_COMMA.fullmatch(value.strip()):
        return (
            f"{path}: no option takes numbers with a decimal comma, because numbers in texts are written as in JSON. Let the "
            "producer write them with a point, such as 1.5, or read the field into a tensor of `string` for a model in Python "
            "(`millstream docs models#a-model-in-python`)."
        )
    if is_bool:
        return (
            f"{path}: a tensor of bool takes only the texts true, false, 1 and 0. Let the producer send these, or null where it "
            "knows neither, for `missing:` beside the field (`millstream docs models#missing-values`)."
        )
    if _is_time(value):
        return f"{path}: {read_as_time(_key(path))} (`millstream docs models#times`)."
    return (
        f"{path}: no option makes a number of a text that isn't one. A `vocabulary` takes other texts, such as yes and no. Or "
        "let the producer send null where it has no number, for `missing:` beside the field (`millstream docs "
        "models#missing-values`)."
    )


def _is_time(text: str) -> bool:
    """Whether `time: iso8601` takes the text."""
    _, fits = parse_iso8601(Packed.of([text.encode(errors="replace")]))
    return bool(fits[0])


def _value(path: str, event: object) -> object:
    """The event's value at a path; None: there is none."""
    try:
        return value_at(event, parse_path(path).steps)
    except BadPathError:  # of a letter that Millstream didn't write
        return None


def _in_both_places(field: str, uses: Sequence[tuple[TensorInput, Conversion]], given: str) -> str:
    """How `output.include` must read a field that fills tensors, too. Arguments as of `_on_included`."""
    single = "" if {entry.dtype for entry, _ in uses} == {"string"} else f", or `{given}` in both places"
    return (
        f" `output.include` names the field, too. Write `any` in both places (`{_key(field)}: any` there; predictions then have "
        f"each value as its text){single}."
    )


def _if_read_too(given: str) -> str:
    """What else to do about a field under `output.include` if a model reads it. `given`: the value's type."""
    return (
        f" If the model reads the field, too, write `type` beside it in the mapping: `any` in both places, or `{given}` in "
        f"both places.{_IF_TIME}"
    )


def _key(field: str) -> str:
    """The field as a key in YAML."""
    return f'"{field}"' if "[" in field else field


def _on_fraction(uses: Sequence[tuple[TensorInput, Conversion]], path: str, found: str) -> str:
    """What to do about a number that no tensor of ints takes; empty: it is none, or there is no such tensor."""
    dtype = next((entry.dtype for entry, _ in uses if entry.dtype.startswith("int")), None)
    if dtype is None or not found.startswith("the number "):
        return ""
    number = float(found.removeprefix("the number "))
    if number.is_integer() and -_INT64_END <= number < _INT64_END:
        return ""
    return (
        f"{path}: a tensor of {dtype} takes only whole numbers that it can hold, whatever `type` says. Let the producer send "
        "these."
    )


def _on_cast(uses: Sequence[tuple[TensorInput, Conversion]], path: str, wanted: str, given: str) -> str:
    """Which options `type` take a value. `wanted`: the type that the mapping reads now; `given`: the value's."""
    dtypes = {entry.dtype for entry, _ in uses}
    page = "(`millstream docs models#casts`)."
    if dtypes == {"string"} or (not uses and wanted == "text"):
        return f"{path}: `type: any` beside the field takes texts, numbers, and true and false {page}"
    is_bool = dtypes == {"bool"}
    numbers = "1 and 0" if is_bool else "numbers"
    texts = f"true, false, {numbers}" if is_bool else numbers
    only = {"text": f"{texts} written as text", "number": numbers, "boolean": "true and false"}
    other = " A `vocabulary` takes other texts, such as yes and no." if given == "text" and uses and not is_bool else ""
    if wanted == "int" and given == "number" and (not uses or dtypes & {"int32", "int64"}):
        other = " A tensor of ints takes 33.0 as 33, and no fractions."
    return (
        f"{path}: `type: any` beside the field takes {numbers}, true and false, also as text; `type: {given}` takes only "
        f"{only[given]} {page}{other}"
    )


def _on_mixed(pipeline: Pipeline, uses: Sequence[tuple[TensorInput, Conversion]], path: str) -> str:
    """What to do about a field of values of several types where the option `type` can't help; empty: it can."""
    own = {"input.event_id": pipeline.input.event_id, "input.event_time": pipeline.input.event_time}
    own["batch.cost"] = pipeline.batch.cost
    if not uses and (option := next((name for name, field in own.items() if field == path), None)):
        return f"{path}: `{option}` has no option `type`. Let the producer send what it takes, or name another field there."
    if uses and path == pipeline.input.event_id:
        return (
            f"{path}: `type: any` beside the field takes other values, as far as the tensor does. Other types don't go with "
            "`input.event_id`, which names the field, too (`millstream docs models#casts`)."
        )
    if (included := _included(pipeline, path)) and any(isinstance(use.converter, Vocabulary) for _, use in uses):
        return (
            f"{path}: the type of `{_key(included)}` under `output.include` holds for the field's vocabulary, too. Leave the "
            f"type out there, as in `{_key(included)}:` without a value. Then both take texts and whole numbers. With `any`, "
            "they take all texts, numbers, true and false."
        )
    return next(filter(None, (_without_type(path, use) for _, use in uses)), "")


def _without_type(path: str, use: Conversion) -> str:
    """As `_on_mixed`, for one use of the field."""
    if isinstance(time := use.converter, Time):
        also = ""
        if (time.format, time.part) == ("seconds", "epoch"):
            also = " For numbers of seconds, also written as text, write `type: any` in place of `time`."
        return f"{path}: {_ONE_FORM}{also}"
    if isinstance(use.converter, Vocabulary):
        return (
            f"{path}: a vocabulary takes texts and whole numbers. With `type: any` beside it, it takes other numbers, true and "
            "false, too, if it has their texts, such as `true` (`millstream docs models#vocabularies`)."
        )
    if use.splitter is not None:
        return f"{path}: a tokenizer takes texts only. Let the producer send text."
    return ""


def _as_written(path: str, written: Iterable[str]) -> tuple[str, str]:
    """The path to a value as one of these begins, and how that goes on. Two empty texts: none does.

    An error names the first item that differs.
    """
    try:
        place = place_of(parse_path(path).steps)
    except BadPathError:  # of a letter that Millstream didn't write
        return "", ""
    paths = [parse_path(each).steps for each in written if looked_up(each) is None]
    found = max((steps for steps in paths if place_of(steps[: len(place)]) == place), key=len, default=())
    beginning = text_of(found[: len(place)])
    return beginning, text_of(found).removeprefix(beginning)


def _on_nesting(pipeline: Pipeline, signature: Signature | None, mismatch: re.Match[str], event: object) -> str:
    """What to do about a list or an object where a path goes on or ends otherwise; empty for other values."""
    place, expected, found = mismatch.group("path", "expected", "found")
    own = [pipeline.input.event_id, pipeline.input.event_time, pipeline.batch.cost, *pipeline.output.include]
    of_model, rest_of_model = _as_written(place, () if signature is None else signature.fields)
    of_pipeline, rest_of_pipeline = _as_written(place, filter(None, own))
    path, rest = of_model or of_pipeline or place, rest_of_model or rest_of_pipeline or ".name"
    in_list = "" if of_pipeline and not of_model else ", for an input with `field`"
    page = "(`millstream docs models#paths`)"
    is_single = bool(_beginning(_SINGLE, expected))
    if found == "an array" and is_single:
        return f"{path}: {_in_list(path, '', in_list)} {page}."
    if found == "an array" and expected == "an object":
        return f"{path}: a list needs an index in the path: {_in_list(path, rest, in_list)} {page}."
    if found == "an object" and is_single:
        return f"{path}: {_in_object(path, _value(place, event))} {page}."
    return ""


def _in_object(path: str, value: object) -> str:
    """The paths that lead on into an object. `value`: the object; anything else if it isn't known."""
    fields = value if isinstance(value, Mapping) else {}
    names = [name for name, inner in fields.items() if _NAME.fullmatch(name) and not isinstance(inner, Mapping | list)]
    has = f" (here: {first_of(names, _MAX_NAMES)})" if names else ""
    inner = f"{path}.{names[0] if names else 'name'}"
    return (
        f"a path must go on to a value in the object{has}, such as `{inner}`. No path takes both an object and a single value: "
        "if only some events have an object there, let the producer send one form"
    )


def _in_list(path: str, rest: str, taken_by: str) -> str:
    """The paths that lead on into a list. `rest`: their end, behind an item; `taken_by`: which use takes all items."""
    if "[]" in path:  # no tensor takes all items of lists in a list
        first = path.replace("[]", "[0]")
        return f"`{path}[0]{rest}` leads to the first item of each list, and `{first}[]{rest}` to all of the first list"
    one = rest.replace("[]", "[0]")
    return f"`{path}[0]{rest}` leads to the first item of the list, and `{path}[]{one}` to all{taken_by}"
