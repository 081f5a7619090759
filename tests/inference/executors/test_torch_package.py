"""Packages that AOTInductor compiled, beside their exported programs."""

import json
import shutil
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millstream.inference.errors import ModelConfigError, ModelRejected
from millstream.inference.executors import torch_package
from millstream.inference.executors.choice import open_executor
from millstream.inference.executors.contract import check_executor
from millstream.inference.executors.torch import TorchExecutor
from tests.inference.doubling import DOUBLING
from tests.inference.executors.torch_models import compiled, exported, packaged, program_of, scripted, torch

pytestmark = pytest.mark.skipif(torch is None, reason="torch is not installed: .venv/bin/pip install -e '.[torch]'")
# A package takes up to a minute to compile.
real = [
    pytest.mark.full,
    pytest.mark.skipif(shutil.which("g++") is None, reason="torch needs a C++ compiler to compile for the CPU"),
]

SCORED = """
inputs:
  - {tensor: place, fields: [a], dtype: int64}
  - {tensor: x, field: f, dtype: float32, shape: [2]}
outputs: [{tensor: score}]
"""
SUMMED = "inputs: [{tensor: x, field: f, dtype: float32, max_length: 64}]\noutputs: [{tensor: y}]\n"


def doubling(batch: tuple[int, int] | None = (1, 4096), by: float = 2, width: int = 2) -> Any:
    return program_of(lambda _, x: {"y": x * by}, {"x": torch.zeros(3, width)}, batch=batch)


def score(_: Any, x: Any, place: Any) -> Any:
    """Looks a row up, so an event whose place is above 2 is rejected."""
    weights = torch.tensor([[1.0, -2.0], [0.5, 4.0], [3.0, 0.25]])
    return {"other": x.sum(), "score": torch.sigmoid((x * weights[place[:, 0]]).sum(1))}


def scoring(batch: tuple[int, int] = (1, 6)) -> Any:
    example = {"x": torch.zeros(3, 2), "place": torch.zeros(3, 1, dtype=torch.int64)}
    return program_of(score, example, batch=batch)


def floats(events: int) -> Any:
    return np.arange(events * 2, dtype=np.float32).reshape(events, 2)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with packages of this file's programs."""
    folder = tmp_path_factory.mktemp("packages")
    compiled(doubling(), folder / "doubling.pt2")
    compiled(doubling(None), folder / "three.pt2")
    compiled(scoring(), folder / "scoring.pt2")
    summing = program_of(lambda _, x: x.sum(1), {"x": torch.zeros(3, 4)}, batch=(1, 64), length=(1, 64))
    compiled(summing, folder / "summing.pt2")
    yield folder


class TestRealPackages:
    pytestmark = real

    def test_package_keeps_the_contract_of_executors(self, tmp_path: Path, packages: Path) -> None:
        model = packaged(tmp_path, doubling(), packages / "doubling.pt2")
        executor = open_executor(model, trust=True, device="cpu", max_events=8)
        executor.warm_up()
        check_executor(executor, {"x": floats(5)}, {"y": 2 * floats(5)})
        executor.close()

    def test_results_are_those_of_the_program_within_its_bounds(self, tmp_path: Path, packages: Path) -> None:
        executor = TorchExecutor(packaged(tmp_path, scoring(), packages / "scoring.pt2", config=SCORED), max_events=64)
        executor.warm_up()
        assert (executor.batch_sizes, executor.max_events) == ((2, 4, 6), 6)
        for events in range(1, 7):
            inputs = {"place": np.arange(events).reshape(-1, 1) % 3, "x": floats(events) / 9}
            expected = score(None, *(torch.from_numpy(inputs[name]) for name in ("x", "place")))["score"].numpy()
            assert np.allclose(executor.run(inputs)["score"], expected, rtol=1e-5)

    def test_event_that_the_model_rejects_is_told_in_one_line(self, tmp_path: Path, packages: Path) -> None:
        executor = TorchExecutor(packaged(tmp_path, scoring(), packages / "scoring.pt2", config=SCORED))
        good, bad = ({"place": np.array([[0], [place]]), "x": floats(2)} for place in (1, 7))
        with pytest.raises(ModelRejected, match=r"index out of bounds[^\n]*$"):
            executor.run(bad)
        assert executor.run(good)["score"].shape == (2,)

    def test_fixed_batch_axis_sets_the_batch_size(self, tmp_path: Path, packages: Path) -> None:
        executor = TorchExecutor(packaged(tmp_path, doubling(None), packages / "three.pt2"), max_events=64)
        executor.warm_up()
        assert (executor.batch_sizes, executor.max_events) == ((3,), 3)
        for events in (1, 2, 3):
            assert np.array_equal(executor.run({"x": floats(events)})["y"], floats(events) * 2)

    def test_inputs_of_variable_length(self, tmp_path: Path, packages: Path) -> None:
        summing = program_of(lambda _, x: x.sum(1), {"x": torch.zeros(3, 4)}, batch=(1, 64), length=(1, 64))
        executor = TorchExecutor(packaged(tmp_path, summing, packages / "summing.pt2", config=SUMMED), max_events=64)
        for length in (16, 64):
            assert executor.run({"x": np.ones((3, length), np.float32)})["y"].tolist() == [length] * 3

    def test_length_that_the_package_does_not_take_stops_the_start(self, tmp_path: Path, packages: Path) -> None:
        """torch compiles a free axis for sizes from 2 on."""
        summing = program_of(lambda _, x: x.sum(1), {"x": torch.zeros(3, 4)}, batch=(1, 64), length=(1, 64))
        config = f"{SUMMED}length_buckets: [1]\n"
        with pytest.raises(
            ModelConfigError, match=r"does not take `x` \[2, 1\], .* too small at 1, expected it to be >= 2"
        ):
            TorchExecutor(packaged(tmp_path, summing, packages / "summing.pt2", config=config))

    def test_calls_at_the_same_time_have_their_own_results(self, tmp_path: Path, packages: Path) -> None:
        executor = TorchExecutor(packaged(tmp_path, doubling(), packages / "doubling.pt2"), max_events=8)
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda number: executor.run({"x": floats(5) + number})["y"], range(200)))
        assert all(np.array_equal(each, (floats(5) + number) * 2) for number, each in enumerate(found))

    def test_package_computes_with_one_thread_whatever_thread_calls_it(self, tmp_path: Path, packages: Path) -> None:
        """With more than it was compiled for, it may write outside of memory."""
        executor = TorchExecutor(packaged(tmp_path, doubling(), packages / "doubling.pt2"))

        def threads_after_call() -> int:
            torch.set_num_threads(8)
            executor.run({"x": floats(3)})
            return int(torch.get_num_threads())

        with ThreadPoolExecutor(1) as caller:
            assert caller.submit(threads_after_call).result() == 1

    def test_package_runs_without_a_compiler(
        self, tmp_path: Path, packages: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        executor = TorchExecutor(packaged(tmp_path, doubling(), packages / "doubling.pt2"))
        assert np.array_equal(executor.run({"x": floats(3)})["y"], floats(3) * 2)

    @pytest.mark.parametrize(
        ("program", "package", "config", "says"),
        [
            (lambda: doubling(by=3), "doubling", DOUBLING, r"gives other outputs than model.pt2 for `x` \[2, 2\]"),
            (
                lambda: doubling(width=3),
                "doubling",
                DOUBLING.replace("[2]", "[3]"),
                r"does not take `x` \[2, 3\], .*expected: 2, but got: 3",
            ),
            (lambda: doubling((1, 64)), "three", DOUBLING, r"does not take `x` \[2, 2\], but model.pt2 does"),
            (
                lambda: scoring((1, 64)),
                "scoring",
                SCORED,
                r"does not take `place` \[64, 1\], `x` \[64, 2\], .* expected to be <= 6, but got: 64",
            ),
            (
                lambda: program_of(lambda _, x: x + 1, {"x": torch.zeros(3, 2, dtype=torch.float64)}, batch=(1, 64)),
                "doubling",
                DOUBLING.replace("float32", "float64"),
                r"does not take `x` \[2, 2\], .*unmatched dtype",
            ),
        ],
        ids=["other weights", "other shape", "fixed batch", "lower bound of the batch", "other type"],
    )
    def test_package_of_another_program_is_refused(
        self, tmp_path: Path, packages: Path, program: Any, package: str, config: str, says: str
    ) -> None:
        model = packaged(tmp_path, program(), packages / f"{package}.pt2", config=config)
        with pytest.raises(ModelConfigError, match=says) as refused:
            TorchExecutor(model, max_events=64)
        assert f"Compile it again from the program in model.pt2, with torch {torch.__version__}" in str(refused.value)

    def test_package_of_another_torch_is_refused(self, tmp_path: Path, packages: Path) -> None:
        """It needs a function that this torch lacks."""
        model = packaged(tmp_path, doubling(), packages / "doubling.pt2")
        with zipfile.ZipFile(packages / "doubling.pt2") as own:
            parts = {name: own.read(name) for name in own.namelist()}
        with zipfile.ZipFile(model.file.with_name("compiled.pt2"), "w") as other:
            for name, content in parts.items():
                other.writestr(name, content.replace(b"aoti_torch_empty_strided", b"aoti_torch_empty_stridxx"))
        with pytest.raises(
            ModelConfigError, match=r"can't be loaded. Compile it again .* undefined symbol: aoti_torch_empty"
        ):
            TorchExecutor(model)


FACTS = {"AOTI_DEVICE_KEY": "cpu", "AOTI_CPU_ISA": "AVX2"}
CODE = " ".join(name.decode() for name in torch_package.CHECKS)


def archive(file: Path, facts: dict[str, str] | None = None, code: str = CODE) -> Path:
    """A package without a library."""
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("m/data/aotinductor/model/a.wrapper_metadata.json", json.dumps(FACTS | (facts or {})))
        made.writestr("m/data/aotinductor/model/a.wrapper.cpp", code)
    return file


def damaged(file: Path) -> Path:
    file.write_bytes(archive(file).read_bytes().replace(b"AOTI_DEVICE_KEY", b"AOTI_DEVICE_KEX"))
    return file


def cut_off(file: Path) -> Path:
    file.write_bytes(archive(file).read_bytes()[:-50])
    return file


def not_a_package(file: Path) -> Path:
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("m/models/model.json", "{}")
    return file


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (damaged, r"is damaged in m/data/aotinductor/model/a.wrapper_metadata.json. Copy or compile it again"),
        (cut_off, r"can't be read \(File is not a zip file\). Copy or compile it again"),
        (not_a_package, r"is not compiled by AOTInductor. Compile it again from the program in model.pt2"),
        (
            lambda file: archive(file, code="AOTI_RUNTIME_CHECK_INPUTS"),
            r"can't check its inputs, .* too old. Compile it again",
        ),
        (
            lambda file: archive(file, {"AOTI_DEVICE_KEY": "cuda"}),
            r"is compiled for cuda, but the model runs on cpu. Compile it for cpu, or write `device: cuda`",
        ),
        (
            lambda file: archive(file, {"AOTI_CPU_ISA": "AVX2 AMX_TILE"}),
            r"is compiled for a CPU with AMX_TILE. Compile it",
        ),
        (archive, r"can't be loaded. Compile it again"),
    ],
)
def test_package_that_can_not_run_here_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Any, says: str
) -> None:
    (tmp_path / "cpuinfo").write_text("flags : fpu avx2\n")
    monkeypatch.setattr(torch_package, "CPU_INFO", tmp_path / "cpuinfo")
    model = packaged(tmp_path, doubling(), write(tmp_path / "package.pt2"))
    with pytest.raises(ModelConfigError, match=says) as refused:
        TorchExecutor(model, device="cpu")
    assert str(refused.value).startswith(f"{model.place}: the package compiled.pt2 ")


def test_more_threads_than_a_package_is_safe_with_are_refused(tmp_path: Path) -> None:
    model = packaged(tmp_path, doubling(), archive(tmp_path / "package.pt2"))
    with pytest.raises(ModelConfigError, match=r"runs with one thread on a CPU, .* Leave out `model.threads`"):
        TorchExecutor(model, device="cpu", threads=2)


def test_package_in_place_of_the_program_is_refused_with_what_to_do(tmp_path: Path) -> None:
    model = exported(tmp_path, lambda _, x: x + x, {"x": torch.zeros(3, 2)})
    archive(model.file)
    with pytest.raises(
        ModelConfigError, match=r"compiled by AOTInductor, .* and write `runtime: {aoti_package: compiled.pt2}`"
    ):
        TorchExecutor(model, device="cpu")


def test_package_is_not_for_torchscript(tmp_path: Path) -> None:
    model = scripted(
        tmp_path,
        lambda _, x: x + x,
        {"x": torch.zeros(3, 2)},
        config=f"{DOUBLING}runtime: {{aoti_package: model.pt}}\n",
    )
    with pytest.raises(ModelConfigError, match=r"`runtime.aoti_package` is for model.pt2, and model.pt is TorchScript"):
        TorchExecutor(model, device="cpu")
