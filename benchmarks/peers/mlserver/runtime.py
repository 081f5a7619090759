"""The model as MLServer's runtime."""

from __future__ import annotations

import logging

import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class StartOnly(logging.Filter):
    """Keeps the line that says that it reads, and what is worse than information."""

    def filter(self, record: logging.LogRecord) -> bool:
        """See logging."""
        return record.levelno > logging.INFO or "consuming messages from" in record.getMessage()


class OnnxModel(MLModel):  # type: ignore[misc]  # its types are not here
    """One input tensor, all outputs."""

    async def load(self) -> bool:
        """See MLServer."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            self.settings.parameters.uri, options, providers=["CPUExecutionProvider"]
        )
        self._names = [output.name for output in self._session.get_outputs()]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """See MLServer."""
        tensors = {entry.name: NumpyCodec.decode_input(entry) for entry in payload.inputs}
        outputs = self._session.run(self._names, tensors)
        answers = [NumpyCodec.encode_output(name, array) for name, array in zip(self._names, outputs, strict=True)]
        return InferenceResponse(model_name=self.name, outputs=answers)
