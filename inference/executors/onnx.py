"""The ONNX Runtime executor: CPU, CUDA and TensorRT."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from millstream.inference.batch_sizes import batch_sizes_of, bucket_of
from millstream.inference.devices import gpus
from millstream.inference.errors import DeviceError, InferenceError, ModelConfigError
from millstream.inference.executors.error_classification import classify_error
from millstream.inference.executors.interface import Tensors, check_rows, rows_of, warm_up
from millstream.inference.executors.onnx_graphs import GraphRunner
from millstream.inference.executors.onnx_providers import NAMES, providers_of
from millstream.inference.executors.onnx_session import check_inputs, check_outputs, open_session
from millstream.inference.executors.pinned_memory import pinned
from millstream.inference.executors.staging import StagingBuffers
from millstream.inference.outputs import named
from millstream.inference.repository import ModelVersion


class OnnxExecutor:
    """Runs `model.onnx` in ONNX Runtime."""

    def __init__(
        self,
        model: ModelVersion,
        *,
        device: str = "auto",
        threads: int = 1,
        max_events: int = 256,
        gpu_memory: int | None = None,
        engine_cache: Path | None = None,
    ) -> None:
        """Load the model and check the mapping against its own inputs and outputs.

        Args:
            model: what to load.
            device: auto, cpu, cuda or tensorrt; auto takes CUDA if there is a GPU, otherwise the CPU.
            threads: CPU threads of one inference.
            max_events: the largest micro-batch.
            gpu_memory: bytes of GPU memory for this copy; None: no limit.
            engine_cache: folder for TensorRT's compiled engines; None: engines are not kept.

        Raises:
            DeviceError: the device doesn't exist.
            ModelConfigError: the file is not a model, or config.yaml does not fit it.
        """
        self.model = model
        self._place = model.place
        self._outputs = model.signature.output_tensors
        self.device = _device(device, model)
        sizes = batch_sizes_of(model.batch_sizes, max_events)
        providers = providers_of(
            model,
            self.device,
            batch_sizes=_profiled(model, self.device, sizes),
            gpu_memory=gpu_memory,
            engine_cache=engine_folder(engine_cache, model) if self.device == "tensorrt" else None,
        )
        self._session = open_session(model, providers, threads)
        fixed = check_inputs(model, self._session)
        check_outputs(model, self._session)
        # A GPU compiles or tunes for each new shape, so it gets few shapes. On the CPU, any size is fine.
        self._pads = self.device != "cpu" or fixed is not None
        self.batch_sizes = (fixed,) if fixed else sizes
        self.max_events = min(max_events, self.batch_sizes[-1]) if self._pads else max_events
        self._buffers = StagingBuffers(np.empty if self.device == "cpu" else pinned)
        self._graphs: GraphRunner | None = None
        self._call: Callable[[Tensors], Sequence[npt.NDArray[Any]]] = self._plainly
        if self.device == "cuda" and model.runtime.cuda_graphs:
            self._graphs = GraphRunner(self._session, self._outputs, self._place)
            self._call = self._graphs.run

    def warm_up(self) -> None:
        """See `Executor.warm_up`."""
        self.warmed_sizes = warm_up(self.run, self.model.signature.inputs, self.batch_sizes)

    def run(self, inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        """See `Executor.run`."""
        events = rows_of(inputs)
        size = bucket_of(events, self.batch_sizes) if self._pads else events
        try:
            outputs = self._called(inputs, size)
        except InferenceError:
            raise
        except Exception as error:  # ONNX Runtime's exceptions share no base class of their own
            if not isinstance(error, MemoryError) and not type(error).__module__.startswith("onnxruntime"):
                raise  # an error of Millstream
            raise classify_error(error, self._place) from error
        tensors = dict(zip(self._outputs, outputs, strict=True))
        check_rows(tensors, size, self._place)
        kept = {name: output[:events] for name, output in tensors.items()} if size != events else tensors
        return named(self.model.signature.outputs, kept, self._place)

    def close(self) -> None:
        """See `Executor.close`."""
        if self._graphs is not None:
            self._graphs.close()
        del self._session, self._call, self._graphs, self._buffers

    def _called(self, inputs: Tensors, size: int) -> Sequence[npt.NDArray[Any]]:
        # A GPU always gets the buffers, because it copies from pinned memory in the background. ONNX Runtime copies inside of
        # `run`, where other Python threads go on. So with two batches at a time, one is copied while the other one computes.
        if self.device == "cpu" and size == rows_of(inputs):
            return self._call(inputs)
        with self._buffers.padded(inputs, size) as padded:
            return self._call(padded)

    def _plainly(self, inputs: Tensors) -> Sequence[npt.NDArray[Any]]:
        outputs: Sequence[npt.NDArray[Any]] = self._session.run(self._outputs, inputs)
        return outputs


def _device(asked: str, model: ModelVersion) -> str:
    there = ort.get_available_providers()
    if asked in {"auto", "cpu"}:
        return "cuda" if asked == "auto" and NAMES["cuda"][0] in there and gpus() else "cpu"
    if NAMES[asked][0] not in there or not gpus():
        reason = "no NVIDIA GPU is visible" if NAMES[asked][0] in there else "this ONNX Runtime is built without it"
        raise DeviceError(
            f"the pipeline asks for `model.device: {asked}` for model {model.name}, but {reason}. Write `auto` or `cpu`, or run "
            f"where a GPU is."
        )
    if asked == "tensorrt" and model.runtime.cuda_graphs:
        raise ModelConfigError(
            f"{model.place}: `runtime.cuda_graphs` is for `model.device: cuda`, but the pipeline asks for tensorrt. Leave the "
            f"option out, or write `cuda`."
        )
    return asked


def _profiled(model: ModelVersion, device: str, sizes: Sequence[int]) -> Sequence[int]:
    """The batch sizes that TensorRT must know before it opens the model; empty: the model fixes all its shapes."""
    if device != "tensorrt":
        return ()
    fixed = check_inputs(model, open_session(model, providers_of(model, "cpu"), 1))
    if fixed is None:
        return sizes
    return () if model.signature.max_length is None else (fixed,)


def engine_folder(cache: Path | None, model: ModelVersion) -> Path | None:
    """Create the model's folder for engines. Raises ModelConfigError if that is impossible."""
    if cache is None:
        return None
    folder = cache / model.name / str(model.version)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelConfigError(
            f"TensorRT's engines of {model.place} can't be kept in {folder}: {error.strerror}. Name a folder that the worker may "
            f"write to: `model.engine_cache` in the pipeline file."
        ) from None
    return folder
