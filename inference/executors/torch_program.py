"""Loads torch models, and calls them with arrays."""

import importlib
import sys
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.inference.errors import ModelConfigError
from millstream.inference.executors.error_classification import line_of
from millstream.inference.executors.interface import Tensors, check_length, check_names
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import TensorInput

UNBOUNDED_EVENTS = 2**31 - 1  # events; more than any batch
Outputs = Mapping[str, npt.NDArray[Any]] | list[npt.NDArray[Any]]


def torch() -> Any:
    """Import torch, which only some models need. Raises ModelConfigError if it is not installed."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise ModelConfigError(
            f"a model of the repository runs in torch, which can't be imported here ({line_of(error)}). "
            f"Install Millstream's extra `torch`: {sys.executable} -m pip install 'millstream[torch]'"
        ) from None


@dataclass(frozen=True, slots=True)
class Program:
    """A loaded model, on its device."""

    call: Any  # takes torch tensors as positional and keyword arguments; returns a tensor, several, or a dict
    positional: tuple[str, ...]  # names of the positional inputs, in order
    keywords: tuple[str, ...]
    device: str
    least: int = 1  # fewest and most events of a call
    most: int = UNBOUNDED_EVENTS
    fixed: int | None = None  # the only number of events that a call takes

    def run(self, inputs: Tensors) -> Outputs:
        """Call the model. Raises what torch raises."""
        library = torch()
        given = {name: library.tensor(array, device=self.device) for name, array in inputs.items()}
        with library.inference_mode():
            outputs = self.call(
                *(given[name] for name in self.positional), **{name: given[name] for name in self.keywords}
            )
        if isinstance(outputs, Mapping):
            return {str(name): _array(output) for name, output in outputs.items()}
        return [_array(output) for output in (outputs if isinstance(outputs, list | tuple) else [outputs])]


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
    return _exported(model, device) if model.file.suffix == ".pt2" else _script(model, device)


def _exported(model: ModelVersion, device: str) -> Program:
    library = torch()
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
    check_names(model, names)
    placeholders = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    ranges = {str(symbol): bounds for symbol, bounds in program.range_constraints.items()}
    batches = [_check_tensor(model, entry, placeholders[entry.tensor]) for entry in model.signature.inputs]
    fixed = {batch for batch in batches if isinstance(batch, int)}
    if len(fixed) > 1:
        raise ModelConfigError(f"{model.place}: the model's inputs fix different batch sizes: {sorted(fixed)}.")
    bounds = [ranges[str(batch)] for batch in batches if str(batch) in ranges]
    return Program(
        module,
        tuple(pytree.tree_leaves(positional)),
        tuple(pytree.tree_leaves(keywords)),
        device,
        least=max([1, *(int(bound.lower) for bound in bounds)]),
        most=min([UNBOUNDED_EVENTS, *(int(bound.upper) for bound in bounds if bound.upper < inf)]),
        fixed=fixed.pop() if fixed else None,
    )


def _script(model: ModelVersion, device: str) -> Program:
    with zipfile.ZipFile(model.file) as archive:
        if not any(name.endswith("/constants.pkl") for name in archive.namelist()):
            raise ModelConfigError(
                f"{model.file} holds no TorchScript: weights or a pickled module, which need the code that made them. Save the "
                f"model with torch.export as model.pt2, or bring the code as model.py (`millstream docs models`)."
            )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # TorchScript is deprecated, see docs/models.md
            warnings.simplefilter("ignore", DeprecationWarning)
            module = torch().jit.load(str(model.file), map_location=device).eval()
    except Exception as error:
        raise ModelConfigError(f"{model.file} can't be loaded: {line_of(error)}") from None
    names = [argument.name for argument in module.forward.schema.arguments[1:]]  # the first argument is the module
    check_names(model, names)
    return Program(module, tuple(names), (), device)


def _check_tensor(model: ModelVersion, entry: TensorInput, own: Any) -> Any:
    """Check one input. Returns the size of its batch axis: a number, or torch's symbol."""
    if not hasattr(own, "shape"):
        raise ModelConfigError(f"{model.place}: the model's input `{entry.tensor}` is no tensor.")
    dtype = str(own.dtype).removeprefix("torch.")
    if dtype != entry.dtype:
        raise ModelConfigError(
            f"{model.place}: tensor `{entry.tensor}` is {dtype} in the model, but config.yaml says {entry.dtype}."
        )
    batch, *shape = own.shape or [None]
    if (
        batch is None
        or len(shape) != len(entry.shape)
        or any(isinstance(size, int) and size != given for size, given in zip(shape, entry.shape, strict=True))
    ):
        raise ModelConfigError(
            f"{model.place}: tensor `{entry.tensor}` has shape {[str(size) for size in own.shape]} in the model (first axis: the "
            f"event), but config.yaml gives {list(entry.shape)} an event, from {', '.join(entry.fields)}."
        )
    if entry.max_length:
        check_length(model, entry, shape[0])
    return batch


def _array(output: Any) -> npt.NDArray[Any]:
    library = torch()
    if not isinstance(output, library.Tensor):
        raise ModelConfigError(
            f"the model gives {type(output).__name__} where a tensor is expected: a tensor, a tuple or a dict."
        )
    on_host = output.detach().cpu()
    if on_host.dtype in {library.bfloat16, library.float16}:  # numpy has no bfloat16
        on_host = on_host.float()
    return np.array(on_host.numpy())  # a copy, because the program may reuse the tensor for the next micro-batch
