"""Turns the `inputs` and `outputs` of a config.yaml, and the fields that a pipeline file maps to them, into a signature."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from millstream.inference.casts import WORDS
from millstream.inference.config_file import ConfigFile
from millstream.inference.config_sections import Config, InputMapping, OutputMapping
from millstream.inference.entries import read_entries
from millstream.inference.errors import ModelConfigError
from millstream.inference.overrides import Fields, FieldSpec, at_override, overridden
from millstream.inference.signature import Signature, TensorInput, TensorOutput, both_take
from millstream.inference.tensor_inputs import Place, listed, tensor_input
from millstream.inference.times import Time
from millstream.schemas.wording import meant

Made = TypeVar("Made")
PLACEHOLDER = "TODO"  # in files that Millstream writes, for what the user must fill in
MAX_VALUES = 2**28  # of a batch in one tensor: 1 GiB as float32


def signature_of(config: Config, fields: Fields, mapped_at: Place, written: ConfigFile) -> Signature:
    """The model's signature.

    Args:
        config: the content of config.yaml.
        fields: from the pipeline file. They replace the paths and options in config.yaml.
        mapped_at: places in the pipeline file; the first key is the tensor.
        written: config.yaml.

    Raises:
        ModelConfigError: parts contradict each other, or a file that config.yaml names can't be read.
    """
    tensors = [entry.tensor for entry in config.inputs]
    unknown = next((tensor for tensor in fields if tensor not in tensors), None)
    if unknown is not None:
        raise ModelConfigError(
            f"{mapped_at(unknown)}: expected an input of the model ({listed(tensors)}, says {written.path}), found {unknown}."
            f"{meant(unknown, tensors)}"
        )
    _refuse_doubles("inputs", "tensor", tensors, written)
    _refuse_doubles("outputs", "output", [entry.name or entry.tensor for entry in config.outputs], written)
    max_length = _max_length(config, written)
    making_inputs = [
        partial(_overridden, entry, fields[entry.tensor], max_length, mapped_at, written.path)
        if entry.tensor in fields
        else partial(tensor_input, entry, max_length, partial(written.at, "inputs", index), written.path.parent)
        for index, entry in enumerate(config.inputs)
    ]
    making_outputs = [
        partial(_output, entry, partial(written.at, "outputs", at), written) for at, entry in enumerate(config.outputs)
    ]
    mistakes: list[str] = []
    mapped, outputs = list(_made(making_inputs, mistakes)), tuple(_made(making_outputs, mistakes))
    if mistakes:
        raise ModelConfigError("\n".join(mistakes))
    inputs = tuple(replace(entry, line=written.lines.get(("inputs", index), 0)) for index, entry in enumerate(mapped))
    _refuse_placeholders(inputs, fields, mapped_at, written)
    signature = Signature(inputs, outputs)
    _refuse_enormous(signature, config.batch_sizes, written)
    _refuse_two_types(signature, written)
    _check_token_types(signature, written)
    return signature


def _made(making: Iterable[Callable[[], Made]], mistakes: list[str]) -> Iterator[Made]:
    """What these functions return. `mistakes` gets the message of each that raises ModelConfigError."""
    for make in making:
        try:
            yield make()
        except ModelConfigError as error:
            mistakes.append(str(error))


def _refuse_placeholders(inputs: Sequence[TensorInput], fields: Fields, mapped_at: Place, written: ConfigFile) -> None:
    """Refuse what `millstream init` and `millstream check` leave for the user to fill in."""
    found: list[str] = []
    for index, entry in enumerate(inputs):
        if entry.tensor == PLACEHOLDER:
            found.append(f"{written.at('inputs', index, 'tensor')}: expected the name of an input of the model")
        in_config = partial(written.at, "inputs", index, "field" if entry.array else "fields")
        for at, field in enumerate(entry.fields):
            if field == PLACEHOLDER:
                place = mapped_at(entry.tensor) if entry.tensor in fields else in_config(*() if entry.array else (at,))
                found.append(f"{place}: expected the path of an event's field")
    found += [
        f"{written.at('outputs', index, 'tensor')}: expected the name of an output of the model"
        for index, output in enumerate(written.data["outputs"])
        if output["tensor"] == PLACEHOLDER
    ]
    if found:
        raise ModelConfigError("\n".join(f"{each}, found the placeholder {PLACEHOLDER}. Fill it in." for each in found))


def _overridden(
    entry: InputMapping, given: FieldSpec | Sequence[FieldSpec], max_length: int | None, mapped_at: Place, path: Path
) -> TensorInput:
    """The input with the fields from the pipeline file. The rest comes from config.yaml, at `path`."""
    place = partial(mapped_at, entry.tensor)
    if entry.mask or entry.token_types:
        what = "a mask" if entry.mask else "the token types"
        raise ModelConfigError(
            f"{place()}: tensor `{entry.tensor}` is {what}, which no field fills ({path}). Take it out here."
        )
    if entry.max_length is not None and not isinstance(given, str | Mapping):
        raise ModelConfigError(
            f"{place()}: tensor `{entry.tensor}` varies in length: one array field fills it; the model's config: {path}."
        )
    merged = overridden(entry, given, place)
    made = tensor_input(merged, max_length, at_override(place), path.parent, f"; the model's config: {path}")
    return replace(made, mapped_at=place())


def _output(entry: OutputMapping, place: Place, written: ConfigFile) -> TensorOutput:
    name = entry.name or entry.tensor
    if entry.classes is None:
        return TensorOutput(entry.tensor, name, (), entry.top, entry.threshold, place())
    classes = read_entries(entry.classes, written.path.parent, place("classes"))
    if entry.threshold is not None and len(classes) != 2:
        raise ModelConfigError(
            f"{place('classes')}: expected two classes beside `threshold`, the one below it and the other one, found "
            f"{len(classes)}. Write two, or leave one of the options out."
        )
    if entry.top is not None and entry.top > len(classes):
        raise ModelConfigError(
            f"{place('top')}: expected at most the number of classes, {len(classes)}, found {entry.top}. Write less."
        )
    return TensorOutput(entry.tensor, name, classes, entry.top, entry.threshold, place())


def _refuse_doubles(option: str, kind: str, names: list[str], written: ConfigFile) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            advice = "Write each once." if option == "inputs" else "Give one of them another `name`."
            raise ModelConfigError(f"{written.at(option, index)}: {kind} {name} is there twice. {advice}")


def _refuse_enormous(signature: Signature, batch_sizes: list[int], written: ConfigFile) -> None:
    """Refuse batches that would take too much memory."""
    events = max(batch_sizes, default=1)
    for index, entry in enumerate(signature.inputs):
        if entry.width * events > MAX_VALUES:
            place = written.at("batch_sizes") if batch_sizes else written.at("inputs", index)
            raise ModelConfigError(
                f"{place}: expected at most {MAX_VALUES} values of a tensor in a batch, found {events} events of {entry.width} "
                f"values in tensor `{entry.tensor}`. Write {'a smaller size' if batch_sizes else 'a smaller shape'}."
            )


def _refuse_two_types(signature: Signature, written: ConfigFile) -> None:
    """Refuse a field that two tensors need with types that no field can have at once."""
    first: dict[str, tuple[str, str]] = {}  # path -> the type, and the tensor that needs it
    for index, entry in enumerate(signature.inputs):
        for path, conversion in entry.reads:
            if isinstance(conversion.converter, Time) and not conversion.converter.format:
                continue  # the schema states its type
            leaf = entry.leaf(conversion)
            needed, tensor = first.setdefault(path, (leaf, entry.tensor))
            both = both_take(needed, leaf)
            if both is None:
                place = entry.mapped_at or written.at("inputs", index)
                raise ModelConfigError(
                    f"{place}: expected one type of field `{path}` for all tensors, found {WORDS[needed]} for tensor `{tensor}` "
                    f"and {WORDS[leaf]} for tensor `{entry.tensor}`. Say with `type:` what the events have."
                )
            first[path] = both, tensor


def _check_token_types(signature: Signature, written: ConfigFile) -> None:
    """Refuse `token_types` if there isn't exactly one input with a tokenizer."""
    tokenized = [entry.tensor for entry in signature.inputs if entry.splitter is not None]
    for index, entry in enumerate(signature.inputs):
        if entry.token_types and len(tokenized) != 1:
            raise ModelConfigError(
                f"{written.at('inputs', index)}: `token_types` are those of the tokens of one input: expected one input with a "
                f"`tokenizer`, found {listed(tokenized)}. Add it, or leave `token_types` out."
            )


def _max_length(config: Config, written: ConfigFile) -> int | None:
    """The `max_length` that all inputs of variable length share; None: there are none."""
    max_length = {entry.max_length for entry in config.inputs if entry.max_length is not None}
    if len(max_length) > 1:
        raise ModelConfigError(
            f"{written.at('inputs')}: inputs of varying length share one `max_length`, found {listed(max_length)}: they run "
            "side by side."
        )
    if not max_length and (config.length_buckets or any(entry.mask or entry.token_types for entry in config.inputs)):
        place = written.at("length_buckets" if config.length_buckets else "inputs")
        raise ModelConfigError(
            f"{place}: `length_buckets`, `mask` and `token_types` are for inputs of varying length: give one `max_length` "
            "(`millstream docs models`)."
        )
    if max_length and any(length > max(max_length) for length in config.length_buckets):
        raise ModelConfigError(
            f"{written.at('length_buckets')}: `length_buckets` go up to `max_length`, {max(max_length)}."
        )
    return max_length.pop() if max_length else None
