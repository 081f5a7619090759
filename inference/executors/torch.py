"""The torch executor: exported programs (`model.pt2`) and TorchScript (`model.pt`), on CPU and CUDA."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.inference.batch_sizes import batch_sizes_of, bucket_of
from millstream.inference.devices import cpu_or_cuda
from millstream.inference.errors import DeviceError, InferenceError, ModelConfigError
from millstream.inference.executors.error_classification import classify_error, line_of
from millstream.inference.executors.interface import Tensors, check_rows, no_such_output, rows_of, warm_up
from millstream.inference.executors.package_results import check_results
from millstream.inference.executors.pinned_memory import pinned
from millstream.inference.executors.staging import StagingBuffers
from millstream.inference.executors.torch_calls import Outputs
from millstream.inference.executors.torch_library import limit_gpu_memory, release_gpu_memory, torch
from millstream.inference.executors.torch_program import Program, open_program
from millstream.inference.outputs import named
from millstream.inference.repository import ModelVersion

COMPILERS = ("torch._dynamo", "torch._inductor")
"""The modules of torch that raise errors of the compiler."""


class TorchExecutor:
    """Runs `model.pt2` or `model.pt`.

    If a model returns a dict, its outputs have names. If it returns a tensor or a tuple, they are in the order of config.yaml.
    """

    def __init__(
        self,
        model: ModelVersion,
        *,
        device: str = "auto",
        threads: int = 1,
        max_events: int = 256,
        gpu_memory: int | None = None,
    ) -> None:
        """Load the model and check the mapping against its own inputs.

        Args:
            model: what to load.
            device: auto, cpu or cuda; auto takes CUDA if there is a GPU, otherwise the CPU.
            threads: CPU threads of one inference, for all torch models of the process.
            max_events: the largest micro-batch.
            gpu_memory: bytes of GPU memory for this copy; None: no limit.

        Raises:
            DeviceError: the device doesn't exist, or this torch can't use it.
            ModelConfigError: torch is not installed, the file is not a model, or config.yaml does not fit it.
        """
        self.model = model
        self._place = model.place
        self._outputs = model.signature.output_tensors
        self.device = _device(device, model)
        if model.runtime.aoti_package and self.device == "cpu" and threads > 1:
            raise ModelConfigError(  # see `open_package`
                f"{self._place}: a package of AOTInductor runs with one thread on a CPU, because more could crash the worker. "
                f"Leave out `model.threads`, and run more workers."
            )
        torch().set_num_threads(threads)
        self._limit = gpu_memory if self.device == "cuda" else None
        if self._limit is not None:
            limit_gpu_memory(self._limit)
        self._program: Program = open_program(model, self.device)
        fixed, least, most = self._program.fixed, self._program.least, min(max_events, self._program.most)
        sizes = (fixed,) if fixed else batch_sizes_of(model.batch_sizes, most)
        self.batch_sizes = tuple(sorted({min(max(size, least), self._program.most) for size in sizes}))
        # A GPU tunes for each new shape, so it gets few shapes. On the CPU, any size is fine that the model takes.
        self._pads = self.device != "cpu" or fixed is not None
        self.max_events = min(max_events, self.batch_sizes[-1]) if self._pads else most
        if self._program.compiled_from is not None:
            checked = self.batch_sizes if self._pads else (self._program.least, self.max_events)
            check_results(model, self._program.calls, self._program.compiled_from, checked)
            self._program = replace(self._program, compiled_from=None)  # its weights take memory
        self._buffers = StagingBuffers(np.empty if self.device == "cpu" else pinned)

    def warm_up(self) -> None:
        """See `Executor.warm_up`."""
        self.warmed_sizes = warm_up(self.run, self.model.signature.inputs, self.batch_sizes)

    def run(self, inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        """See `Executor.run`."""
        events = rows_of(inputs)
        size = bucket_of(events, self.batch_sizes) if self._pads else max(events, self._program.least)
        try:
            outputs = self._called(inputs, size)
        except InferenceError:
            raise
        except Exception as error:  # torch raises RuntimeError, AssertionError and others if a model rejects events
            if type(error).__module__.startswith(COMPILERS):
                raise ModelConfigError(
                    f"{self._place}: torch can't compile the model. Leave out `runtime.compile`, or install a C++ compiler "
                    f"if torch lacks one. It says: {line_of(error)}"
                ) from error
            raise classify_error(error, self._place) from error
        tensors = self._by_tensor(outputs)
        check_rows(tensors, size, self._place)
        kept = {name: tensors[name][:events] for name in self._outputs}
        return named(self.model.signature.outputs, kept, self._place)

    def close(self) -> None:
        """See `Executor.close`."""
        del self._program, self._buffers
        if self._limit is not None:
            release_gpu_memory(self._limit)
        if self.device == "cuda":
            torch().cuda.empty_cache()

    def _called(self, inputs: Tensors, size: int) -> Outputs:
        if self.device == "cpu" and size == rows_of(inputs):
            return self._program.run(inputs)
        with self._buffers.padded(inputs, size) as padded:  # always on a GPU, which copies from pinned memory
            return self._program.run(padded)

    def _by_tensor(self, outputs: Outputs) -> Tensors:
        wanted = self._outputs
        if isinstance(outputs, list):
            if len(outputs) != len(wanted):
                raise ModelConfigError(
                    f"{self._place}: names {len(wanted)} outputs ({', '.join(wanted)}), but the model gives {len(outputs)}, "
                    f"in order and without names. Name them all, or let the model return a dict."
                )
            return dict(zip(wanted, outputs, strict=True))
        for entry in self.model.signature.outputs:
            if entry.tensor not in outputs:
                raise no_such_output(self.model, entry, outputs)
        return {name: outputs[name] for name in wanted}


def _device(asked: str, model: ModelVersion) -> str:
    device = cpu_or_cuda(asked, model.name, "torch")
    if device == "cpu" or torch().cuda.is_available():
        return device
    if asked == "auto":
        return "cpu"
    raise DeviceError(
        f"the pipeline asks for `model.device: cuda` for model {model.name}, and a GPU is there, but this torch "
        f"({torch().__version__}) can't use it. Install a torch with CUDA, or write `cpu`."
    )
