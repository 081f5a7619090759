"""The models of a pipeline file, without a worker: Triton's settings, aliases in a folder, and checksums."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from millstream.consumers.models.pipeline_models import PipelineModels
from millstream.consumers.worker.plan import make_plan, settings_of
from millstream.inference.errors import ModelConfigError
from millstream.inference.sources.checksums import CHECKSUMS_FILE, sums_of
from millstream.pipeline.loading import load_pipeline
from tests.inference.models import doubling

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.pipeline.pipeline import Pipeline

TEXT = """
name: p
kafka: {{bootstrap: "127.0.0.1:1"}}
input: {{topic: events, format: json}}
output: {{topic: predictions}}
model: {{name: m{model}}}
batch: {{max_events: 64{batch}}}
"""
TRITON = """
backend: "onnxruntime" max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 2 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 2 ] } ]
dynamic_batching { max_queue_delay_microseconds: 1500 }
"""


def pipeline(folder: Path, model: str = "", batch: str = "") -> Pipeline:
    (folder / "pipeline.yaml").write_text(TEXT.format(model=model, batch=batch))
    if not (folder / "models").exists():
        doubling(folder / "models")
    return load_pipeline(folder / "pipeline.yaml", {})


@pytest.mark.parametrize(("batch", "wait"), [("", 0.0015), (", max_wait: 9ms", 0.009)])
def test_queue_delay_of_triton_counts_unless_the_pipeline_file_has_one(tmp_path: Path, batch: str, wait: float) -> None:
    pytest.importorskip("tritonclient.grpc")
    read = pipeline(tmp_path, batch=batch)
    (tmp_path / "models" / "m" / "1" / "config.yaml").unlink()
    (tmp_path / "models" / "m" / "config.pbtxt").write_text(TRITON)
    settings = settings_of(make_plan(read), until_idle=True)
    assert (settings.batch.max_wait, settings.batch.max_events) == (wait, 8)


def test_alias_in_a_folder_is_followed(tmp_path: Path) -> None:
    read = pipeline(tmp_path, ", version: champion")
    shutil.copytree(tmp_path / "models" / "m" / "1", tmp_path / "models" / "m" / "2")
    for version in (2, 1):
        (tmp_path / "models" / "m" / "aliases.yaml").write_text(f"champion: {version}\n")
        found = PipelineModels(read).primary()
        assert (found.version, found.file.parent) == (version, tmp_path / "models" / "m" / str(version))
        assert not found.remote


def test_version_that_was_fetched_is_the_one_that_loads(tmp_path: Path) -> None:
    read = pipeline(tmp_path, ", version: champion")
    shutil.copytree(tmp_path / "models" / "m" / "1", tmp_path / "models" / "m" / "2")
    aliases = tmp_path / "models" / "m" / "aliases.yaml"
    aliases.write_text("champion: 2\n")
    models = PipelineModels(read)
    models.fetch_primary()
    aliases.write_text("champion: 1\n")
    assert models.primary().version == 2


def test_checksums_in_a_folder_count(tmp_path: Path) -> None:
    read = pipeline(tmp_path)
    folder = tmp_path / "models" / "m" / "1"
    sums = sums_of(folder)
    (folder / CHECKSUMS_FILE).write_text("".join(f"{digest}  {path}\n" for path, digest in sums.items()))
    assert PipelineModels(read).primary().version == 1
    (folder / "more.txt").touch()
    with pytest.raises(ModelConfigError, match=r"more\.txt is not listed"):
        PipelineModels(read).primary()
