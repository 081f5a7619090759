"""The outputs that all models of a combination have in common: their names, and the type and shape of each."""

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.inference.combined.part import Outputs
from millstream.inference.errors import ModelConfigError
from millstream.inference.repository import ModelVersion

_TEXTS = "UO"


class OutputTypes:
    """Checks that all models have the same outputs. Threads may share it.

    A number gets the wider type of two models, so that it doesn't depend on the events of a batch which type a prediction has.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[npt.DTypeLike, tuple[int, ...]]] = {}
        self._first = ""  # the model that they are known of
        self._lock = threading.Lock()

    def unified(self, outputs: Outputs, model: ModelVersion) -> Outputs:
        """A model's outputs in the common types. Raises ModelConfigError: the model has other outputs."""
        known = self._known
        outputs = {name: plain(output) for name, output in outputs.items()}
        for name, output in outputs.items():
            if known.get(name) != (output.dtype, output.shape[1:]):
                break
        else:
            if len(outputs) == len(known):
                return outputs
        return self._adapted(outputs, model.place)

    def _adapted(self, outputs: Outputs, place: str) -> Outputs:
        with self._lock:
            if not self._known:
                self._known = {name: _trait(output) for name, output in outputs.items()}
                self._first = place
                return outputs
            self._check_names(outputs, place)
            # Replaced, not changed: other threads read it without the lock.
            self._known = {name: self._common(name, outputs[name], place) for name in self._known}
            known = self._known
        return {
            name: output if output.dtype.kind in _TEXTS else output.astype(known[name][0], copy=False)
            for name, output in outputs.items()
        }

    def _check_names(self, outputs: Outputs, place: str) -> None:
        if outputs.keys() != self._known.keys():
            raise ModelConfigError(
                f"{place}: expected the outputs {_listed(self._known)}, as {self._first} has; found {_listed(outputs)}. Give "
                f"them the same names in config.yaml (`name` under `outputs`), or run the models in two pipelines."
            )

    def _common(self, name: str, output: npt.NDArray[Any], place: str) -> tuple[npt.DTypeLike, tuple[int, ...]]:
        dtype, shape = self._known[name]
        own_dtype, own_shape = _trait(output)
        if shape != own_shape:
            raise ModelConfigError(
                f"{place}: expected shape {list(shape)} per event of output `{name}`, as {self._first} has; found "
                f"{list(own_shape)}. Give the models outputs of one shape, or run them in two pipelines."
            )
        if own_dtype == dtype:
            return dtype, shape
        kinds = {np.dtype(dtype).kind, np.dtype(own_dtype).kind}
        if not kinds <= set("iuf"):
            raise ModelConfigError(
                f"{place}: expected {np.dtype(dtype)} in output `{name}`, as {self._first} has; found {np.dtype(own_dtype)}. "
                f"Give the models outputs of one type, or run them in two pipelines."
            )
        return np.result_type(dtype, own_dtype), shape


def plain(output: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The output, without a second axis of one element: a prediction has a plain value of either."""
    return output.reshape(len(output)) if output.shape[1:] == (1,) else output


def _trait(output: npt.NDArray[Any]) -> tuple[npt.DTypeLike, tuple[int, ...]]:
    """The type and the shape per event. All texts are one type."""
    return (np.dtype(object) if output.dtype.kind in _TEXTS else output.dtype), output.shape[1:]


def _listed(names: Any) -> str:
    return ", ".join(sorted(names))
