"""Loads torch models."""

import importlib
import re
import warnings
import zipfile
from dataclasses import dataclass, replace

from millstream.inference.config_sections import RuntimeOptions
from millstream.inference.errors import ModelConfigError
from millstream.inference.executors.axes import UNBOUNDED
from millstream.inference.executors.error_classification import line_of
from millstream.inference.executors.interface import Tensors, check_names
from millstream.inference.executors.torch_calls import Calls, Outputs, calls_of
from millstream.inference.executors.torch_inputs import check_inputs
from millstream.inference.executors.torch_library import torch
from millstream.inference.executors.torch_package import MIN_EVENTS, is_package, open_package
from millstream.inference.foreign_models import not_as_named
from millstream.inference.repository import ModelVersion

_NUMBERED = re.compile(r".+__([0-9]{1,4})")
_TORCHSCRIPT = rf"torch\.jit\b|{re.escape(__name__)}$"
"""Modules that torch's warnings name: its own, or the one that calls it."""


@dataclass(frozen=True, slots=True)
class Program:
    """A loaded model, on its device."""

    calls: Calls
    least: int = 1  # fewest and most events of a call
    most: int = UNBOUNDED
    fixed: int | None = None  # the only number of events that a call takes
    compiled_from: Calls | None = None  # of a package: the program, to compare results with

    def run(self, inputs: Tensors) -> Outputs:
        """Call the model. Raises what torch raises."""
        return self.calls.run(inputs)


def open_program(model: ModelVersion, device: str) -> Program:
    """Load the file onto the device and check config.yaml against it.

    Raises:
        ModelConfigError: the file is not a model, or takes other tensors.
    """
    for entry in model.signature.inputs:
        if entry.dtype == "string":
            raise ModelConfigError(
                f"{model.place}: tensor `{entry.tensor}` is of strings, which torch has no tensors for."
            )
    if not zipfile.is_zipfile(model.file):
        raise ModelConfigError(f"{model.file} can't be loaded: it is no file of torch's.")
    if wrong := not_as_named(model.file):  # torch would log a long stack, and not say this
        raise ModelConfigError(f"{model.file} can't be loaded: {wrong}")
    option = "aoti_package" if model.runtime.aoti_package else "compile" if model.runtime.compile else None
    if option and model.file.suffix == ".pt":
        raise ModelConfigError(
            f"{model.place}: `runtime.{option}` is for model.pt2, and model.pt is TorchScript. Save the model with torch.export "
            f"as model.pt2, or leave the option out."
        )
    return _exported(model, device) if model.file.suffix == ".pt2" else _script(model, device)


def _exported(model: ModelVersion, device: str) -> Program:
    library = torch()
    if is_package(model.file):
        raise ModelConfigError(
            f"{model.file} is compiled by AOTInductor, and states neither names nor types nor shapes of its inputs. Save the "
            f"program with torch.export.save as model.pt2, put the package beside it, and write `runtime: {{aoti_package: "
            f"compiled.pt2}}` in config.yaml (`millstream docs models`)."
        )
    try:
        program = library.export.load(model.file)
        if device != "cpu":
            program = importlib.import_module("torch.export.passes").move_to_device_pass(program, device)
        module = program.module()
    except Exception as error:
        raise ModelConfigError(f"{model.file} can't be loaded: {line_of(error)}") from None
    names = list(program.graph_signature.user_inputs)
    pytree = importlib.import_module("torch.utils._pytree")
    positional, keywords = pytree.tree_unflatten(names, program.call_spec.in_spec)
    check_names(model, set(names))
    events = check_inputs(model, program)
    names_in_order = (tuple(pytree.tree_leaves(positional)), tuple(pytree.tree_leaves(keywords)))
    one_size = events.least if events.is_fixed else None
    if model.runtime.aoti_package:
        package = calls_of(model, open_package(model, device, program.call_spec.out_spec), tuple(names), (), device)
        plain = calls_of(replace(model, runtime=RuntimeOptions()), module, *names_in_order, device)
        least = events.least if one_size else max(events.least, MIN_EVENTS)
        return Program(package, least, events.most, one_size, compiled_from=plain)
    if model.runtime.compile:
        # One compiled program for all shapes: torch gives up on compiling for each shape after a few.
        module = library.compile(module, dynamic=True)
    return Program(calls_of(model, module, *names_in_order, device), *events, one_size)


def _script(model: ModelVersion, device: str) -> Program:
    try:
        for category in (FutureWarning, DeprecationWarning):  # TorchScript is deprecated, see docs/models.md
            # Not within `catch_warnings`, which is not for threads: several may load, and none may wait for one that hangs.
            warnings.filterwarnings("ignore", category=category, module=_TORCHSCRIPT)
        module = torch().jit.load(str(model.file), map_location=device).eval()
    except Exception as error:
        raise ModelConfigError(f"{model.file} can't be loaded: {line_of(error)}") from None
    names = [argument.name for argument in module.forward.schema.arguments[1:]]  # the first argument is the module
    names = _by_position(model, names)
    check_names(model, set(names))
    return Program(calls_of(model, module, tuple(names), (), device))


def _by_position(model: ModelVersion, names: list[str]) -> list[str]:
    """The inputs in order. Triton may number them (`INPUT__0`) in place of the model's own names."""
    mapped = [entry.tensor for entry in model.signature.inputs]
    numbered = {int(found[1]): name for name in mapped if (found := _NUMBERED.fullmatch(name))}
    if model.described_by is None or set(mapped) == set(names) or sorted(numbered) != list(range(len(names))):
        return names
    return [numbered[position] for position in range(len(names))]
