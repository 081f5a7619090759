"""The models of the bench with their recorded events."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import onnx

from benchmarks.gpu.models import SEED, write_model
from benchmarks.load import WIDE, vector_events
from benchmarks.text import CONFIG, MODEL, SCHEMA_FILE, text_events, text_folder
from millstream.consumers.worker.compute import DECODE_RECORDS
from millstream.schemas.packed import Packed

if TYPE_CHECKING:
    from pathlib import Path

RECORDED = 4 * DECODE_RECORDS  # events, read over and over


@dataclass(frozen=True, slots=True)
class Subject:
    """A model and the kind of its events."""

    folder: Path  # has `schemas/` and `models/`
    model: str  # its name in the repository
    schema: str  # the events'
    kind: Literal["vectors", "texts"]

    def events(self, count: int = RECORDED) -> Packed:
        """The values of recorded events."""
        load = vector_events(count, SEED, WIDE) if self.kind == "vectors" else text_events(count, SEED)
        return Packed.of(load.values)[:]


def perceptron(folder: Path, executor: str) -> Subject:
    """The perceptron, as ONNX or for torch. Raises ModelConfigError if torch is not installed."""
    write_model(folder, executor)
    return Subject(folder, WIDE.name, f"{WIDE.name}-event", "vectors")


def texts(folder: Path) -> dict[str, Subject]:
    """The sentence-embedding model all-MiniLM-L6-v2 with numbers of 32 and of 16 bits: `fp32` and `fp16`.

    Raises LeftOutError if its package can't be installed.
    """
    made = text_folder()
    source = made / "models" / MODEL / "1" / "model.onnx"
    (folder / "schemas").mkdir(parents=True)
    shutil.copy(made / "schemas" / SCHEMA_FILE, folder / "schemas")
    subjects = {}
    for precision in ("fp32", "fp16"):
        version = folder / "models" / f"{MODEL}-{precision}" / "1"
        version.mkdir(parents=True)
        (version / "config.yaml").write_text(CONFIG)
        if precision == "fp32":
            shutil.copy(source, version / "model.onnx")
        else:
            onnx.save(_with_16_bits(source), str(version / "model.onnx"))
        subjects[precision] = Subject(folder, f"{MODEL}-{precision}", "text-event", "texts")
    return subjects


def _with_16_bits(file: Path) -> onnx.ModelProto:
    """The model with float16 inside; inputs and outputs stay as they are."""
    from onnxruntime.transformers.float16 import convert_float_to_float16  # noqa: PLC0415  (slow to import)

    converted: onnx.ModelProto = convert_float_to_float16(onnx.load(str(file)), keep_io_types=True)
    return converted
