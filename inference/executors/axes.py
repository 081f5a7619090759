"""The sizes that a model's axes take, and whether config.yaml keeps to them."""

from collections.abc import Sequence
from typing import NamedTuple

from millstream.inference.errors import ModelConfigError
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import TensorInput
from millstream.inference.varying import length_buckets_of

UNBOUNDED = 2**31 - 1  # more events than any batch has, and more items than any event


class Sizes(NamedTuple):
    """The sizes that an axis takes: from the least to the most."""

    least: int
    most: int

    @property
    def is_fixed(self) -> bool:
        """Whether there is one size only."""
        return self.least == self.most

    def __str__(self) -> str:
        """For messages."""
        if self.is_fixed:
            return f"{self.least}"
        if self.most == UNBOUNDED:
            return f"{self.least} or more" if self.least > 1 else "any"
        return f"{self.least} to {self.most}" if self.least > 1 else f"up to {self.most}"


FREE = Sizes(1, UNBOUNDED)
SEVERAL_PER_ITEM = (
    "A model that takes several values per item needs one input for each, which it stacks itself (`millstream docs "
    "models#variable-length-inputs`)"
)
SECOND_AXIS = (
    "Export the model with an axis behind that of the events, such as [events, 1]: an input has at least two axes."
)


def shape_fits(entry: TensorInput, own: Sequence[Sizes]) -> bool:
    """Whether a model takes this shape of one event. `check_length` checks the size of an input of variable length.

    Args:
        entry: the input in config.yaml.
        own: the model's own axes, without that of the events.
    """
    if len(own) != len(entry.shape):
        return False
    return bool(entry.max_length) or all(
        axis.least <= size <= axis.most for axis, size in zip(own, entry.shape, strict=True)
    )


def check_axes(model: ModelVersion, entry: TensorInput, own: Sequence[Sizes], shown: Sequence[object]) -> None:
    """Check the shape and the length of an input.

    Args:
        model: whose input it is.
        entry: the input in config.yaml.
        own: the model's own axes, first that of the events.
        shown: these axes in the model's words.

    Raises:
        ModelConfigError: the model takes another shape, or other lengths.
    """
    if not own or not shape_fits(entry, own[1:]):
        advice = f" {SECOND_AXIS}" if len(own) == 1 else ""
        if entry.max_length and len(own) > 2:
            advice = f" {SEVERAL_PER_ITEM}."
        raise ModelConfigError(
            f"{model.place_at(entry.line)}: tensor `{entry.tensor}` has shape {list(shown)} in the model (first axis: the "
            f"event), but config.yaml gives {list(entry.shape)} an event, from {', '.join(entry.fields)}.{advice}"
        )
    if entry.max_length:
        check_length(model, entry, own[1])


def check_length(model: ModelVersion, entry: TensorInput, own: Sizes) -> None:
    """Check that a model takes all lengths that it runs at. These are the length buckets, because each call is padded to one.

    Args:
        model: whose input it is.
        entry: the input in config.yaml, of variable length.
        own: the model's own sizes of its axis of items.

    Raises:
        ModelConfigError: the model takes fewer or more items only. The message says what to write.
    """
    assert entry.max_length is not None
    buckets = length_buckets_of(model.length_buckets, entry.max_length)
    if own.least <= buckets[0] and buckets[-1] <= own.most:
        return
    advice = _lengths_to_write(model, entry.max_length, own)
    if own.is_fixed:
        raise ModelConfigError(
            f"{model.place_at(entry.line)}: tensor `{entry.tensor}` varies in length in config.yaml, but the model takes "
            f"{own} items only. Export it with a free axis, or write {advice}."
        )
    if buckets[-1] > own.most or buckets[-1] < own.least:
        found = f"config.yaml says `max_length: {entry.max_length}`"
    else:
        found = f"short events are padded to {buckets[0]} (`length_buckets`)"
    raise ModelConfigError(
        f"{model.place_at(entry.line)}: the model takes {own} items on axis 1 of `{entry.tensor}`, but {found}. Write {advice}."
    )


def _lengths_to_write(model: ModelVersion, max_length: int, own: Sizes) -> str:
    """The options that keep within the model's own sizes, and as close as possible to those of config.yaml."""
    longest = min(max(max_length, own.least), own.most)
    kept = length_buckets_of(model.length_buckets, longest)
    taken = [length for length in kept if length >= own.least]
    options = [] if longest == max_length and not own.is_fixed else [f"`max_length: {longest}`"]
    if own.is_fixed or len(taken) < len(kept) or any(length > longest for length in model.length_buckets):
        options.append(f"`length_buckets: {taken}`")
    return " and ".join(options)
