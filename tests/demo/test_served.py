"""What the demo writes for Triton and for the workers. tests/cli/test_demo_kserve.py runs it."""

import re
import shutil
from pathlib import Path

import onnxruntime
import pytest

from millstream.consumers.demo.example import example_folder
from millstream.consumers.demo.served import CONFIG, MODEL, move_model
from millstream.inference.repository import load_version

URL = "grpc://127.0.0.1:20001"
TYPES = {"tensor(float)": "TYPE_FP32", "tensor(string)": "TYPE_STRING"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The models, before they move."""
    shutil.copytree(example_folder() / "models", tmp_path / "models")
    return tmp_path


def test_workers_call_the_server_with_the_same_mapping(folder: Path) -> None:
    before = load_version(folder / "models", MODEL, 2).signature
    move_model(folder / "models" / MODEL, folder / "triton" / MODEL, [1, 2], URL)
    after = load_version(folder / "models", MODEL, 2)
    assert after.executor == "kserve"
    assert after.signature == before
    assert URL in (folder / "models" / MODEL / "2" / "config.yaml").read_text()


@pytest.mark.parametrize("versions", [[1], [2], [1, 2]])
def test_server_gets_the_versions_that_run(folder: Path, versions: list[int]) -> None:
    model = folder / "triton" / MODEL
    move_model(folder / "models" / MODEL, model, versions, URL)
    files = {str(path.relative_to(model)) for path in model.rglob("*") if path.is_file()}
    assert files == {"config.pbtxt", *(f"{v}/{name}" for v in versions for name in ("model.onnx", "model.py"))}


@pytest.mark.parametrize("version", [1, 2])
def test_configuration_names_every_tensor_of_the_model(version: int) -> None:
    session = onnxruntime.InferenceSession(example_folder() / "models" / MODEL / str(version) / "model.onnx")
    tensors = [*session.get_inputs(), *session.get_outputs()]
    found = re.findall(r'name: "(\w+)" data_type: (\w+) dims: \[ (.+?) \]', CONFIG)
    assert [(name, kind) for name, kind, _ in found] == [(each.name, TYPES[each.type]) for each in tensors]
    for (_, _, dims), each in zip(found, tensors, strict=True):
        sizes = [int(size) for size in dims.split(",")]
        assert len(sizes) == len(each.shape)
        assert all(size in (-1, own) for size, own in zip(sizes, each.shape, strict=True))
