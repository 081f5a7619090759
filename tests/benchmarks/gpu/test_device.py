"""The report names the GPU and its driver as they say themselves; without them it says nothing of a GPU."""

from pathlib import Path

import pytest

from benchmarks.gpu.device import gpu


def on_path(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """An `nvidia-smi` in place of the machine's own."""
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_the_card_and_its_driver_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(tmp_path, monkeypatch, "echo NVIDIA H200, 580.159.04, 143771")
    found = gpu()
    assert (found["gpu"], found["driver"], found["gpu_memory_mib"]) == ("NVIDIA H200", "580.159.04", "143771")


@pytest.mark.parametrize("script", [None, "echo No devices were found; exit 6"])
def test_without_a_gpu_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None) -> None:
    if script is None:
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        on_path(tmp_path, monkeypatch, script)
    assert not {"gpu", "driver"} & gpu().keys()
