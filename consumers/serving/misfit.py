"""Says why a version can't take the place of the one that is served. Pure.

Events are decoded into the inputs of the version that the worker started with. So the inputs must be filled in the same way, down
to the entries of a vocabulary. Readers of predictions, and comparisons with shadows, rely on the names of the outputs.
"""

from dataclasses import fields

from millstream.inference.repository import ModelVersion
from millstream.inference.signature import TensorInput

REQUESTING = ("kserve", "openai")
"""Executors that send requests to a server. Those of other packages are found when a worker loads the version."""
RESTART = "Restart the workers to change over to it"


def misfit(served: ModelVersion, new: ModelVersion, advice: str = RESTART) -> str | None:
    """The first difference that matters, as a sentence; None: `new` can take the place of `served`.

    Args:
        served: the version that is served.
        new: the other one.
        advice: what to do, if it is to be served as it is.
    """
    advice = f"{advice}, or export the model with the same"
    return _inputs_misfit(served, new, advice) or _outputs_misfit(served, new, advice)


def _inputs_misfit(served: ModelVersion, new: ModelVersion, advice: str) -> str | None:
    before = {entry.tensor: entry for entry in served.signature.inputs}
    after = {entry.tensor: entry for entry in new.signature.inputs}
    if before.keys() != after.keys():
        return (
            f"{new.place}: expected the inputs {_listed(before)} of version {served.version}, found {_listed(after)}. "
            f"{advice} inputs."
        )
    for name, entry in before.items():
        if entry != after[name]:
            return f"{new.place}: input `{name}`: {_difference(entry, after[name], served.version)}. {advice} inputs."
    return None


def _difference(before: TensorInput, after: TensorInput, version: int) -> str:
    for field in fields(TensorInput):
        expected, found = getattr(before, field.name), getattr(after, field.name)
        if field.compare and expected != found:
            break
    if field.name == "conversions":
        options = "types, vocabulary, tokenizer, fallbacks or missing values"
        return f"its values are converted otherwise than in version {version} ({options})"
    return f"expected {field.name} {_shown(expected)} as in version {version}, found {_shown(found)}"


def _outputs_misfit(served: ModelVersion, new: ModelVersion, advice: str) -> str | None:
    before, after = _output_names(served), _output_names(new)
    if before == after:
        return None
    return (
        f"{new.place}: expected the outputs {_listed(before)} of version {served.version}, found {_listed(after)}. "
        f"{advice} names of outputs."
    )


def _output_names(model: ModelVersion) -> set[str]:
    return {name for output in model.signature.outputs for name in output.names}


def _listed(names: object) -> str:
    assert isinstance(names, dict | set)
    return ", ".join(sorted(names)) or "none"


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
