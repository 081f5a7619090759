"""Runs a blank event on each model of a combination, to find outputs that don't fit each other before the first event."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from millstream.inference.combined.member import Member
from millstream.inference.combined.part import Outputs, Part
from millstream.inference.errors import ModelRejected
from millstream.inference.signature import TensorInput, blank


def blank_part(member: Member) -> Part:
    """A model's answer to a blank event. Raises ModelConfigError if its outputs differ from those of other models."""
    return member.answer(blank_inputs(member), np.zeros(1, np.int64))


def first_answers(parts: Sequence[Part]) -> Outputs:
    """The outputs of the first model that answers a blank event. Raises ModelRejected if all reject it."""
    for part in parts:
        if part.outputs:
            return part.outputs
    raise ModelRejected(next(iter(parts[0].rejected.values())).error)


def blank_inputs(member: Member) -> dict[str, Any]:
    """A model's inputs for a blank event, by their names in the union."""
    own: list[TensorInput] = [entry for entry in member.model.signature.inputs if entry.tensor in member.names]
    return {member.names[name]: tensor for name, tensor in blank(own, 1).items()}
