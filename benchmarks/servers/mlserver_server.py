"""MLServer, with models of the test's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.environments import python_of
from benchmarks.servers import CACHE
from millstream.consumers.model_servers.process import HOST, ModelServer

if TYPE_CHECKING:
    from collections.abc import Sequence

REQUIREMENTS = Path(__file__).parent / "mlserver"
_MODEL_HEAD = """
import time
from pathlib import Path
import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.errors import MLServerError
from mlserver.types import InferenceResponse


class Model(MLModel):
    async def predict(self, payload):
        inputs = {each.name: NumpyCodec.decode_input(each) for each in payload.inputs}
        outputs = predict(inputs)
        return InferenceResponse(
            id=payload.id,
            model_name=self.name,
            model_version=self.version,
            outputs=[NumpyCodec.encode_output(name, array) for name, array in outputs.items()],
        )


"""


class MLServer(ModelServer):
    """See `ModelServer`."""

    def command(self) -> Sequence[str]:
        """See `ModelServer.command`."""
        settings = {
            "host": HOST,
            "http_port": self.http_port,
            "grpc_port": self.grpc_port,
            "metrics_port": self.metrics_port,
            "parallel_workers": 0,
            "debug": False,
        }
        (self.models / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        python = python_of("mlserver", REQUIREMENTS, cache=CACHE)
        return [str(python.with_name("mlserver")), "start", str(self.models)]


def write_model(models: Path, name: str, settings: dict[str, Any], body: str) -> Path:
    """Write a model. Returns its folder.

    Args:
        models: the server's model repository.
        name: of the model.
        settings: of its model-settings.json, without name and implementation.
        body: of `def predict(inputs)`, which returns arrays by name; `np` is there, and the folder as `FOLDER`.
    """
    folder = models / name
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    module = f"model_{name.replace('-', '_')}"
    (folder / f"{module}.py").write_text(
        f"{_MODEL_HEAD}FOLDER = Path({str(folder)!r})\n\n\ndef predict(inputs):\n{lines}", encoding="utf-8"
    )
    document = {"name": name, "implementation": f"{module}.Model", **settings}
    (folder / "model-settings.json").write_text(json.dumps(document), encoding="utf-8")
    return folder
