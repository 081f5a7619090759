"""Runs in MLflow's environment: registers models as their authors do, and prints what became of them.

Arguments: the registered model's name, and the flavour of each version: onnx, onnx-columns, onnx-config, sklearn, pyfunc.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.models import infer_signature
from skl2onnx import to_onnx
from sklearn.linear_model import LogisticRegression

COLUMNS = ["distance", "hour", "day"]
rng = np.random.default_rng(1)
features = rng.normal(size=(200, len(COLUMNS))).astype(np.float32)
late = (features.sum(axis=1) > 0).astype(np.int64)


def trained(seed: int) -> LogisticRegression:
    """A model whose weights depend on the seed."""
    return LogisticRegression(C=10.0**-seed).fit(features, late)


def as_onnx(model: LogisticRegression) -> Any:
    """The model without a map of classes."""
    return to_onnx(model, features[:1], options={"zipmap": False}, target_opset=17)


class Doubling(mlflow.pyfunc.PythonModel):  # type: ignore[misc, name-defined]
    """Any code."""

    def predict(self, context: Any, model_input: Any, params: Any = None) -> Any:  # noqa: ARG002
        """Twice the first column."""
        return model_input.iloc[:, 0].to_numpy() * 2


def log(flavour: str, name: str, seed: int) -> None:
    """Register one version."""
    frame = pd.DataFrame(features, columns=COLUMNS)
    match flavour:
        case "onnx":
            signature = infer_signature(features, {"label": late})
            mlflow.onnx.log_model(as_onnx(trained(seed)), name="model", registered_model_name=name, signature=signature)
        case "onnx-columns":
            signature = infer_signature(frame, {"label": late})
            mlflow.onnx.log_model(as_onnx(trained(seed)), name="model", registered_model_name=name, signature=signature)
        case "onnx-config":  # a folder as Millstream has it, as plain artifacts
            with tempfile.TemporaryDirectory() as made, mlflow.start_run() as run:
                folder = Path(made)
                (folder / "model.onnx").write_bytes(as_onnx(trained(seed)).SerializeToString())
                (folder / "config.yaml").write_text(
                    "inputs: [{tensor: X, fields: [distance, hour, day], dtype: float32}]\n"
                    "outputs: [{tensor: probabilities, name: p}]\n"
                )
                mlflow.log_artifacts(made, "model")
                client = mlflow.MlflowClient()
                if not client.search_registered_models(f"name='{name}'"):
                    client.create_registered_model(name)
                client.create_model_version(name, f"{run.info.artifact_uri}/model", run.info.run_id)
        case "sklearn":
            signature = infer_signature(frame, late)
            mlflow.sklearn.log_model(trained(seed), name="model", registered_model_name=name, signature=signature)
        case "pyfunc":
            signature = infer_signature(frame, features[:, 0])
            mlflow.pyfunc.log_model(
                python_model=Doubling(), name="model", registered_model_name=name, signature=signature
            )


def main() -> None:
    """See the module."""
    name, *flavours = sys.argv[1:]
    for seed, flavour in enumerate(flavours):
        log(flavour, name, seed)
    client = mlflow.MlflowClient()
    versions = client.search_model_versions(f"name='{name}'")
    print(json.dumps({each.version: each.source for each in versions}))


if __name__ == "__main__":
    main()
