"""The Python executor: runs a class `Model` from the model's folder, which needs no import of Millstream."""

import inspect
import logging
import re
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy.typing as npt

from millstream.inference.batch_sizes import batch_sizes_of
from millstream.inference.devices import cpu_or_cuda
from millstream.inference.errors import (
    CodeAtFault,
    ExecutorUnavailable,
    InferenceError,
    ModelConfigError,
    ModelRejected,
    NanOutput,
)
from millstream.inference.executors.error_classification import classify_error, line_of
from millstream.inference.executors.interface import Tensors, rows_of, warm_up
from millstream.inference.executors.python_module import ModelModule, how_to_import, own_frame, place_in, takes
from millstream.inference.executors.python_outputs import OutputError, as_array
from millstream.inference.outputs import named
from millstream.inference.repository import CONFIG_FILE, ModelVersion
from millstream.schemas.wording import meant

log = logging.getLogger(__name__)

AWAY_ERRORS = (ConnectionError, TimeoutError, socket.gaierror)
# Unlike the errors of urllib, requests and redis, these are not derived from the classes above.
AWAY_ERROR_NAMES = {
    f"{package}.{error}"
    for package in ("httpx", "httpx2")
    for error in ("NetworkError", "TimeoutException", "RemoteProtocolError")
}
# HTTP statuses that say nothing of the request: time-out, too many requests, and those of a gateway or a server without capacity.
AWAY_STATUSES = {408, 429, 502, 503, 504}
STATUS_OF: Mapping[str, Callable[[Any], object]] = {
    "urllib.error.HTTPError": lambda error: error.code,
    "requests.exceptions.HTTPError": lambda error: error.response.status_code,
    "httpx.HTTPStatusError": lambda error: error.response.status_code,
    "httpx2.HTTPStatusError": lambda error: error.response.status_code,
}
# Torch and CuPy raise it for errors of the device. Messages of other classes are not searched for words: they may quote events.
NATIVE_ERROR = RuntimeError
_READS = re.compile(r"\binputs\[['\"]([^'\"]+)['\"]\]")


class PythonExecutor:
    """Runs `model.py`: it calls `Model(folder, device)`, `predict(inputs)`, and `close()` if there is one.

    `predict` gets copies of the tensors in config.yaml, by name, [events, ...]. It returns the outputs by name, [events, ...].
    Its exceptions have these meanings:
    - ConnectionError, TimeoutError (also as the cause of another one), or a status of `AWAY_STATUSES`: something that the model
      needs is away.
    - MemoryError, torch's OutOfMemoryError: the batch is too large.
    - A KeyError of an input that config.yaml doesn't map; a name or a module that isn't there; a file of code with a syntax
      error: as below, and the warm-up refuses the model.
    - Any other: the model rejects an event.
    """

    def __init__(
        self, model: ModelVersion, *, device: str = "auto", max_events: int = 256, code: Path | None = None
    ) -> None:
        """Load the file and create the model.

        Args:
            model: what to load.
            device: auto, cpu or cuda. The model gets `cpu` or `cuda`.
            max_events: the largest micro-batch.
            code: the file with the class; None: the model's own.

        Raises:
            DeviceError: the device doesn't exist.
            ModelConfigError: the file can't be run, or has no class `Model`.
        """
        self.model = model
        self.device = cpu_or_cuda(device, model.name, "python")
        self.batch_sizes = batch_sizes_of(model.batch_sizes, max_events)
        self.max_events = max_events
        self._outputs = model.signature.output_tensors
        self._module = ModelModule(code or model.file)
        self._model = self._module.make("Model", model.file.parent, self.device)
        if not callable(getattr(self._model, "predict", None)):
            self._module.forget()
            raise ModelConfigError(
                f"{model.file}: class `Model` has no `predict(self, inputs)` (`millstream docs models`)."
            )

    def warm_up(self) -> None:
        """See `Executor.warm_up`."""
        self.warmed_sizes = warm_up(self.run, self.model.signature.inputs, self.batch_sizes)

    def run(self, inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        """See `Executor.run`."""
        # Copies, because the model may write into its inputs, which may run again in halves or in other models.
        outputs = self._predict({name: array.copy() for name, array in inputs.items()})
        return self._named(outputs, rows_of(inputs))

    def close(self) -> None:
        """See `Executor.close`."""
        close = getattr(self._model, "close", None)
        if callable(close):
            try:
                close()
            except Exception as error:
                log.warning("%s: its close() failed: %s: %s", self.model.place, type(error).__name__, line_of(error))
        del self._model
        self._module.forget()

    def _predict(self, inputs: dict[str, npt.NDArray[Any]]) -> object:
        before = sys.exception()  # Python makes this exception the context of all that are raised meanwhile
        try:
            return self._model.predict(inputs)
        except KeyboardInterrupt:
            raise
        # `sys.exit` in a model would end the thread silently, and a panic of a Rust library is no `Exception` either.
        except BaseException as error:
            raise self._classify_error(error, before) from error

    def _classify_error(self, error: BaseException, before: BaseException | None) -> InferenceError:
        place = place_in(self.model.file.parent, error) or self.model.place
        said = f"{place}: {type(error).__name__}: {line_of(error)}"
        if any(_is_away(link) for link in _causes(error, before)):
            return ExecutorUnavailable(said)
        if isinstance(error, MemoryError | NATIVE_ERROR):
            found = classify_error(error, "")
            return type(found)(said)
        if name := self._unmapped(error):
            mapped = [entry.tensor for entry in self.model.signature.inputs]
            return CodeAtFault(
                f"{place}: `predict` reads the input `{name}`, which {CONFIG_FILE} doesn't map (mapped: {', '.join(mapped)})."
                f"{meant(name, mapped)} Map it under `inputs:`, or correct the name."
            )
        if isinstance(error, TypeError) and not takes(self._model.predict, {}):
            return CodeAtFault(
                f"{self.model.file}: expected `predict(self, inputs)` in class `Model`: {line_of(error)}."
            )
        if _is_of_code(error):
            hint = how_to_import(self.model.file.parent, error) if isinstance(error, ModuleNotFoundError) else ""
            return CodeAtFault(
                f"{said.removesuffix('.')}. The code is at fault, not an event.{hint or ' Correct this line.'}"
            )
        return ModelRejected(said)

    def _unmapped(self, error: BaseException) -> str:
        """The input that the failed line names and that there isn't; empty: the error is another one.

        Only the line shows this, because another dict of the model may lack the key. A dict of our own that notices it would
        not be a dict for the trees of torch and JAX.
        """
        frame = own_frame(self.model.file.parent, error)
        if not isinstance(error, KeyError) or frame is None:
            return ""
        names = [name for name in _READS.findall(frame.line or "") if error.args == (name,)]
        return next((name for name in names if name not in {entry.tensor for entry in self.model.signature.inputs}), "")

    def _named(self, outputs: object, events: int) -> dict[str, npt.NDArray[Any]]:
        """The outputs under their names in predictions. Raises CodeAtFault, NanOutput."""
        if inspect.iscoroutine(outputs):
            outputs.close()  # otherwise Python warns that nothing has awaited it
            raise CodeAtFault(f"{self.model.place}: expected `def predict`, found `async def predict`: remove `async`.")
        if not isinstance(outputs, Mapping):
            raise CodeAtFault(
                f"{self.model.place}: `predict` returned {type(outputs).__name__}, not a dict of arrays by output name."
            )
        lacking = set(self._outputs) - outputs.keys()
        if lacking:
            raise CodeAtFault(
                f"{self.model.place}: `predict` returned the outputs {sorted(map(str, outputs))}, without {sorted(lacking)}, "
                f"which config.yaml names."
            )
        tensors = {tensor: self._array(tensor, outputs[tensor], events) for tensor in self._outputs}
        try:
            return named(self.model.signature.outputs, tensors, self.model.place)
        except NanOutput:
            raise
        except (ModelConfigError, ModelRejected) as error:
            raise CodeAtFault(str(error)) from None

    def _array(self, tensor: str, output: object, events: int) -> npt.NDArray[Any]:
        try:
            return as_array(output, events)
        except OutputError as error:
            raise CodeAtFault(f"{self.model.place}: output `{tensor}` {line_of(error)}.") from None


def _is_of_code(error: BaseException) -> bool:
    """Whether the exception is of the model's code, whatever the event.

    Errors that are derived from NameError aren't: the cause may be a loop that doesn't run for an empty event
    (UnboundLocalError), or an expression (`pandas.DataFrame.query`). A free variable without a value may have the first cause,
    too. A SyntaxError may be of a text of the event (`ast.literal_eval`).
    """
    if isinstance(error, SyntaxError):
        return str(error.filename).endswith(".py")
    return isinstance(error, ImportError) or (type(error) is NameError and "free variable" not in str(error))


def _is_away(error: BaseException) -> bool:
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}
    if isinstance(error, AWAY_ERRORS) or not names.isdisjoint(AWAY_ERROR_NAMES):
        return True
    with suppress(AttributeError):  # such an error may have been made without a response
        return any(STATUS_OF[name](error) in AWAY_STATUSES for name in names & STATUS_OF.keys())
    return False


def _causes(error: BaseException, before: BaseException | None) -> Iterator[BaseException]:
    """The exception with its causes and contexts, as a traceback shows them, up to `before`."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and link is not before and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
