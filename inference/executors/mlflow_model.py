"""The class `Model` for what MLflow's `pyfunc` loads. It runs as the model.py of such a version, which has none of its own."""

from pathlib import Path
from typing import Any

import mlflow.pyfunc
import numpy as np
import pandas as pd

UNNAMED = "prediction"


class Model:
    """See `PythonExecutor`."""

    def __init__(self, folder: Path, device: str) -> None:  # noqa: ARG002
        self._model = mlflow.pyfunc.load_model(str(folder))
        signature = self._model.metadata.signature
        self._tensors = signature is not None and signature.inputs.is_tensor_spec()

    def predict(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Outputs by name, [events, ...]. A table becomes one output for each column."""
        return _by_name(self._model.predict(self._table(inputs)))

    def _table(self, inputs: dict[str, Any]) -> Any:
        if not self._tensors:  # columns of a table, each [events, 1]
            return pd.DataFrame({name: array[:, 0] for name, array in inputs.items()})
        return next(iter(inputs.values())) if len(inputs) == 1 else inputs


def _by_name(answer: Any) -> dict[str, Any]:
    if isinstance(answer, pd.DataFrame):
        return {str(name): answer[name].to_numpy() for name in answer.columns}
    if isinstance(answer, dict):
        return {str(name): np.asarray(value) for name, value in answer.items()}
    return {UNNAMED: np.asarray(answer)}
