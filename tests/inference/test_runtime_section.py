"""The section `runtime` of a config.yaml."""

from pathlib import Path

import pytest

from millstream.inference.config_sections import RuntimeOptions
from millstream.inference.errors import ModelConfigError
from millstream.inference.repository import ModelVersion, load_version

REST = "outputs: [{tensor: y}]\n"
NUMBERS = "inputs: [{tensor: x, field: f, dtype: float32, shape: [2]}]\n"
TEXTS = "inputs: [{tensor: x, fields: [f], dtype: string}]\n"


def loaded(repository: Path, runtime: str, file: str = "model.onnx", inputs: str = NUMBERS) -> ModelVersion:
    folder = repository / "m" / "1"
    folder.mkdir(parents=True)
    (folder / file).touch()
    (folder / "config.yaml").write_text(f"{inputs}{REST}{runtime}\n", encoding="utf-8")
    return load_version(repository, "m")


@pytest.mark.parametrize("runtime", ["", "runtime:", "runtime: {}"])
def test_without_options_nothing_changes(tmp_path: Path, runtime: str) -> None:
    assert loaded(tmp_path, runtime).runtime == RuntimeOptions()


@pytest.mark.parametrize(
    ("file", "runtime", "options"),
    [
        (
            "model.onnx",
            "{cuda_graphs: true, tensorrt_fp16: true}",
            RuntimeOptions(cuda_graphs=True, tensorrt_fp16=True),
        ),
        ("model.pt2", "{cuda_graphs: true, dtype: bfloat16}", RuntimeOptions(cuda_graphs=True, dtype="bfloat16")),
        ("model.pt", "{dtype: float16}", RuntimeOptions(dtype="float16")),
        ("model.pt2", "{compile: true}", RuntimeOptions(compile=True)),
    ],
)
def test_each_executor_has_its_options(tmp_path: Path, file: str, runtime: str, options: RuntimeOptions) -> None:
    assert loaded(tmp_path, f"runtime: {runtime}", file).runtime == options


@pytest.mark.parametrize(
    ("file", "runtime", "said"),
    [
        ("model.onnx", "{cuda_graph: true}", r":3: runtime.cuda_graph: unknown key. Did you mean cuda_graphs\?"),
        ("model.onnx", "{cuda_graphs: maybe}", r":3: runtime.cuda_graphs: expected true or false, found 'maybe'"),
        ("model.onnx", "[1]", r":3: runtime: expected a mapping"),
        ("model.pt2", "{dtype: float32}", r":3: runtime.dtype: expected float16 or bfloat16, found 'float32'"),
        (
            "model.onnx",
            "{dtype: float16}",
            r":3: runtime.dtype: only the executor torch has this option, found the executor onnx. Leave it out. For 16 bits, "
            r"convert the model",
        ),
        (
            "model.onnx",
            "{compile: true}",
            r"runtime.compile: only the executor torch has this option, found the executor onnx",
        ),
        ("model.pt2", "{tensorrt_fp16: true}", r"tensorrt_fp16: only the executor onnx has this option"),
        (
            "model.py",
            "{cuda_graphs: true}",
            r"cuda_graphs: only the executor onnx or torch has this option, .* executor python",
        ),
    ],
)
def test_wrong_option_is_refused_with_its_place(tmp_path: Path, file: str, runtime: str, said: str) -> None:
    with pytest.raises(ModelConfigError, match=said):
        loaded(tmp_path, f"runtime: {runtime}", file)


@pytest.mark.parametrize("name", ["missing.pt2", "../compiled.pt2", "/compiled.pt2"])
def test_package_must_be_in_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelConfigError, match=r":3: runtime.aoti_package: expected"):
        loaded(tmp_path, f"runtime: {{aoti_package: {name}}}", "model.pt2")


@pytest.mark.parametrize("option", ["compile: true", "dtype: bfloat16"])
def test_options_of_a_compiler_are_not_for_a_package(tmp_path: Path, option: str) -> None:
    name = option.split(":", maxsplit=1)[0]
    with pytest.raises(ModelConfigError, match=rf":3: runtime.{name}: a package of AOTInductor is compiled already"):
        loaded(tmp_path, f"runtime: {{aoti_package: model.pt2, {option}}}", "model.pt2")


def test_texts_can_not_go_into_a_cuda_graph(tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match=r":3: runtime.cuda_graphs: a CUDA graph takes no texts"):
        loaded(tmp_path, "runtime: {cuda_graphs: true}", inputs=TEXTS)
