"""Chooses the executor for a model. Each runtime is imported only if a model needs it."""

import inspect
from pathlib import Path
from typing import Any, cast

from millstream.inference.errors import InferenceError, ModelConfigError
from millstream.inference.executors.blocking import BlockingExecutor
from millstream.inference.executors.by_length import ByLength
from millstream.inference.executors.error_classification import line_of
from millstream.inference.executors.installed import SERVERS, installed
from millstream.inference.executors.interface import AsyncExecutor, ModelExecutor
from millstream.inference.repository import ModelVersion

MLFLOW_CODE = Path(__file__).with_name("mlflow_model.py")
"""The class `Model` for models that MLflow loads."""


def open_executor(
    model: ModelVersion,
    *,
    trust: bool = False,
    device: str = "auto",
    threads: int = 1,
    max_events: int = 256,
    gpu_memory: int | None = None,
    engine_cache: Path | None = None,
    beside: object = None,
) -> ModelExecutor:
    """Load the model into its executor.

    Models with inputs of variable length get a `ByLength` around it. An asynchronous executor is in a `BlockingExecutor`.

    Args:
        model: what to load.
        trust: whether the model's author is trusted; required for a torch model, and for all but ONNX from a URL.
        device: auto, cpu, cuda or tensorrt; auto takes a GPU if there is one.
        threads: CPU threads of one inference, for ONNX Runtime and torch.
        max_events: the largest micro-batch.
        gpu_memory: bytes of GPU memory for this copy of the model; None: no limit. Only ONNX Runtime and torch keep it.
        engine_cache: folder for engines that TensorRT compiled, of all models; None: they are not kept.
        beside: the executor of another version of the model; an asynchronous executor shares its event loop. None: there is none.

    Raises:
        DeviceError: the device doesn't exist, or the executor doesn't support it.
        ModelConfigError: the model can't be loaded or is not trusted, its runtime is not installed, or config.yaml does not
            fit it.
    """
    if model.remote and not trust and model.executor != "onnx":
        raise ModelConfigError(
            f"{model.place}: a model from a URL runs without your trust only as ONNX, found the executor {model.executor}: its "
            f"author could run code here, or send your events to a server. Write `trust: true` under `model:` in the pipeline "
            f"file if you trust whoever may write to the repository, or export the model to ONNX (`millstream docs registries`)."
        )
    if model.executor == "torch" and not trust:
        # Checking its pickles would not help: torch also evaluates expressions of the program (sympy's `sympify`, guards) as
        # Python, loads compiled libraries out of the archive, and TorchScript may write files (`torch.save`).
        raise ModelConfigError(
            f"{model.file} can run code and write files where it is loaded, so a torch model is loaded only from an author whom "
            f"you trust. Write `trust: true` under `model:` in the pipeline file, or export the model to ONNX "
            "(`millstream docs models`)."
        )
    if model.executor == "mlflow" and not trust:
        raise ModelConfigError(
            f"{model.place}: MLflow's flavours but onnx are pickles or code, which can run anything where they are loaded. Write "
            f"`trust: true` under `model:` in the pipeline file if you trust their author, or log the model as ONNX "
            f"(`mlflow.onnx.log_model`; `millstream docs registries`)."
        )
    memory = {"gpu_memory": gpu_memory}
    native: dict[str, dict[str, Any]] = {
        "onnx": {"threads": threads, "engine_cache": engine_cache, **memory},
        "torch": {"threads": threads, **memory},
    }
    opened = _open(model, device, min(max_events, model.max_events or max_events), native.get(model.executor, {}))
    executor = (
        BlockingExecutor(cast("AsyncExecutor", opened), beside if isinstance(beside, BlockingExecutor) else None)
        if is_asynchronous(opened)
        else cast("ModelExecutor", opened)
    )
    # `kserve` pads by itself, and in a prompt, a list may have any length.
    if model.signature.max_length is None or model.executor in SERVERS:
        return executor
    if isinstance(executor, BlockingExecutor):
        raise ModelConfigError(
            f"{model.place}: `max_length` lets an input vary in length, which no asynchronous executor but `kserve` and `openai` "
            f"takes; the executor here is {model.executor}. Give the input one length with `shape`."
        )
    return ByLength(model, executor)


def _open(model: ModelVersion, device: str, max_events: int, options: dict[str, Any]) -> AsyncExecutor | ModelExecutor:
    """Open what runs the model. `options`: those that only this executor has."""
    match model.executor:
        case "torch":
            from millstream.inference.executors.torch import TorchExecutor  # noqa: PLC0415

            return TorchExecutor(model, device=device, max_events=max_events, **options)
        case "python" | "mlflow":
            from millstream.inference.executors.python import PythonExecutor  # noqa: PLC0415

            code = MLFLOW_CODE if model.executor == "mlflow" else None
            return PythonExecutor(model, device=device, max_events=max_events, code=code)
        case "onnx":
            from millstream.inference.executors.onnx import OnnxExecutor  # noqa: PLC0415

            return OnnxExecutor(model, device=device, max_events=max_events, **options)
        case "openai":
            from millstream.inference.executors.openai.executor import open_openai  # noqa: PLC0415

            return open_openai(model, max_events)
        case "kserve":
            from millstream.inference.executors.kserve.executor import KServeExecutor  # noqa: PLC0415

            return KServeExecutor(model, max_events=max_events)
        case name:
            return _open_installed(model, name, max_events)


def is_asynchronous(executor: AsyncExecutor | ModelExecutor) -> bool:
    """Whether it is an `AsyncExecutor`."""
    return inspect.iscoroutinefunction(executor.run)


def _open_installed(model: ModelVersion, name: str, max_events: int) -> AsyncExecutor | ModelExecutor:
    """Open an executor of another package. Raises ModelConfigError if the package or its callable fails."""
    entry = installed().get(name)
    if entry is None:
        raise ModelConfigError(f"{model.place}: the executor {name} is not installed. Install its package.")
    try:
        return cast("AsyncExecutor | ModelExecutor", entry.load()(model, max_events))
    except InferenceError:
        raise
    except Exception as error:
        raise ModelConfigError(
            f"{model.place}: the executor {name} ({entry.value}, of another package) can't be opened: {type(error).__name__}: "
            f"{line_of(error)}. Tell its authors, or take another executor."
        ) from error
