"""Files: of a damaged pipeline file or model configuration only the error comes that says what is wrong with it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

from millstream.inference.errors import ModelConfigError
from millstream.inference.repository import load_version
from millstream.pipeline.errors import PipelineError
from millstream.pipeline.loading import load_pipeline
from tests.fuzz.case import Case, Counts, Wrong
from tests.fuzz.yaml_damage import damaged_yaml
from tests.pipeline.pipeline_files import SMALL, WHOLE

RECORDS = 10
_EXAMPLE = Path(__file__).parents[3] / "examples" / "flights"
_VARYING = """\
inputs:
  - {tensor: ids, field: tokens, dtype: int64, max_length: 128, pad: 1}
  - {tensor: mask, dtype: int64, mask: true}
  - {tensor: numbers, field: values, dtype: float32, shape: [2, 3]}
outputs: [{tensor: y, name: p}]
executor: onnx
batch_sizes: [1, 8, 64]
length_buckets: [16, 128]
"""


class _Files:
    share = 0.01
    in_c = False
    texts: tuple[str, ...]

    def make(self, rng: Random) -> Case:
        """See Target."""
        return Case({}, [damaged_yaml(rng.choice(self.texts), rng) for _ in range(RECORDS)])

    def check(self, case: Case) -> Counts:
        """See Target."""
        with tempfile.TemporaryDirectory() as folder:
            good = sum(self._is_read(Path(folder), text) for text in case.values)
        return Counts(good, len(case.values) - good)

    def _is_read(self, folder: Path, text: bytes) -> bool:
        raise NotImplementedError


class Pipelines(_Files):
    """Pipeline files."""

    name = "pipelines"
    texts = ((_EXAMPLE / "pipeline.yaml").read_text(encoding="utf-8"), SMALL, WHOLE)

    def _is_read(self, folder: Path, text: bytes) -> bool:
        path = folder / "pipeline.yaml"
        path.write_bytes(text)
        try:
            load_pipeline(path, {"KAFKA_USER": "u", "REGISTRY_PASSWORD": "p", "A": "1"})
        except PipelineError as error:
            _check_said(str(error), str(path))
            return False
        return True


class Models(_Files):
    """Model configurations."""

    name = "models"
    texts = (
        *((_EXAMPLE / f"models/flights-delay/{n}/config.yaml").read_text(encoding="utf-8") for n in (1, 2)),
        _VARYING,
    )

    def _is_read(self, folder: Path, text: bytes) -> bool:
        version = folder / "m" / "1"
        if not version.is_dir():
            version.mkdir(parents=True)
            (version / "model.onnx").touch()
        (version / "config.yaml").write_bytes(text)
        try:
            load_version(folder, "m")
        except ModelConfigError as error:
            _check_said(str(error), str(version))
            return False
        return True


def _check_said(said: str, place: str) -> None:
    if place not in said:
        raise Wrong(f"the message does not name the file: {said[:300]!r}")
