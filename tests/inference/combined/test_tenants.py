"""Which folders of a repository are models of tenants, whatever the events say."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.inference.combined.routing_key import key_input
from millstream.inference.combined.tenant_executor import TenantExecutor
from millstream.inference.combined.tenant_folders import first_tenant, versions_of
from millstream.inference.combined.tenants import Tenants, size_of
from millstream.inference.errors import EventsRejected
from millstream.inference.executors.choice import open_executor
from millstream.inference.executors.interface import ANSWERED_BY
from millstream.inference.repository import load_version
from millstream.inference.sources.folder import FolderSource
from millstream.inference.sources.progress import Progress
from tests.consumers.several_service import write_onnx
from tests.inference.combined.scaling import results_of, version


def tenants(repository: Path, name: str = "churn-{tenant}") -> Tenants:
    """The tenants of a repository, with the model `world` as the default."""
    pattern = load_version(repository, "world") if (repository / "world").is_dir() else version("world")
    key = key_input("who", "pipeline.yaml:9: models.tenants.field")
    return Tenants(
        "who",
        key,
        name,
        lambda name: versions_of(repository, name, Progress()),
        pattern,
        pattern,
        2**30,
        lambda name, number: load_version(repository, name, number),
    )


@given(st.text(), st.sampled_from(["{tenant}", "churn-{tenant}", "{tenant}.v"]))
def test_no_text_leads_out_of_the_repository(tenant: str, name: str) -> None:
    if tenants(Path("models"), name).is_name(tenant):
        folder = Path("models") / name.replace("{tenant}", tenant)
        assert folder.parent == Path("models")
        assert folder.name not in {"", ".", ".."}
        assert len(folder.name) <= 200


@pytest.mark.parametrize("tenant", ["", ".", "..", "../x", "a/b", "a\\b", "a b", "ä", "a\0", "x" * 300, "a\n"])
def test_hostile_texts_have_no_model(tenant: str) -> None:
    assert not tenants(Path("models"), "{tenant}").is_name(tenant)


def test_pattern_is_the_first_tenant_by_name(tmp_path: Path) -> None:
    assert first_tenant(tmp_path / "none", "churn-{tenant}", Progress()) is None
    for name in ("churn-", "churn-b", "churn-a", "other"):
        (tmp_path / name).mkdir()
    assert first_tenant(tmp_path, "churn-{tenant}", Progress()) is None
    for name in ("churn-b", "other", "churn-"):
        (tmp_path / name / "7").mkdir()
    (tmp_path / "churn-b" / "12").mkdir()
    (tmp_path / "churn-b" / "notes").mkdir()
    assert first_tenant(tmp_path, "churn-{tenant}", Progress()) == ("churn-b", 12)


def test_many_tenants_on_a_slow_drive_are_listed_as_long_as_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tenant in range(15):
        (tmp_path / f"churn-{tenant:02}" / "1").mkdir(parents=True)
    pause, scandir = threading.Event(), os.scandir

    @contextmanager
    def slow(folder: Path) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scandir(folder) as entries:
            yield (entry for entry in entries if not pause.wait(0.05))

    monkeypatch.setattr(os, "scandir", slow)
    source = FolderSource(tmp_path, quiet=0.5)
    assert source.read(partial(first_tenant, tmp_path, "churn-{tenant}")) == ("churn-00", 1)


def inputs_of(*events: tuple[str, float]) -> Any:
    return {
        "route(who as text)": np.array([who for who, _ in events], object),
        "x": np.array([[x] for _, x in events], np.float32),
    }


def test_models_of_tenants_are_found_on_disk(tmp_path: Path) -> None:
    write_onnx(tmp_path, "world", -1)
    write_onnx(tmp_path, "churn-a", 2, version=1)
    write_onnx(tmp_path, "churn-a", 3, version=10)
    write_onnx(tmp_path, "churn-odd", 2)
    config = tmp_path / "churn-odd" / "1" / "config.yaml"
    config.write_text(config.read_text().replace("[x]", "[z]"))
    found = tenants(tmp_path)
    executor = found.open(open_executor)
    assert executor.answer_blank()["y"].tolist() == [0]
    with pytest.raises(EventsRejected) as caught:
        executor.run(inputs_of(("a", 1), ("b", 1), ("odd", 1), ("../world", 1)))
    outputs, rejected = caught.value.outputs, caught.value.rejected
    assert outputs["y"].tolist() == [3, -1, -1]
    answered_by = [str(executor.models[at]) for at in outputs[ANSWERED_BY]]
    assert answered_by == ["churn-a version 10", "world version 1", "world version 1"]
    assert rejected[2].error.startswith(f"model churn-odd version 1 ({config}): expected the inputs of model world")
    write_onnx(tmp_path, "churn-b", 5)
    (answer,) = results_of(executor.run, inputs_of(("b", 1)))
    assert answer["y"] == 5
    executor.close()


def test_loaded_model_counts_by_the_size_of_its_files(tmp_path: Path) -> None:
    write_onnx(tmp_path, "m", 1)
    folder = tmp_path / "m" / "1"
    (folder / "weights.bin").write_bytes(bytes(1000))
    model = load_version(tmp_path, "m")
    assert size_of(model) == 2**20 + 2 * sum(path.stat().st_size for path in folder.iterdir())


def test_broken_model_is_not_replaced_by_the_default(tmp_path: Path) -> None:
    write_onnx(tmp_path, "world", -1)
    write_onnx(tmp_path, "churn-a", 2)
    (tmp_path / "churn-a" / "1" / "model.onnx").write_bytes(b"broken")
    executor = tenants(tmp_path).open(open_executor)
    with pytest.raises(EventsRejected) as caught:
        executor.run(inputs_of(("a", 1)))
    assert "model.onnx" in caught.value.rejected[0].error


def test_copies_number_the_models_alike(tmp_path: Path) -> None:
    for tenant in ("a", "b"):
        write_onnx(tmp_path, f"churn-{tenant}", 1)
    write_onnx(tmp_path, "world", -1)
    found = tenants(tmp_path)
    first, second = found.open(open_executor), found.open(open_executor)
    first.run(inputs_of(("a", 1)))
    outputs = second.run(inputs_of(("b", 1), ("a", 1)))
    # A worker looks up the numbers of all copies in one of them.
    assert [first.models[at].name for at in outputs[ANSWERED_BY]] == ["churn-b", "churn-a"]


def test_repository_that_hangs_is_given_up_and_followed_again_once_it_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_onnx(tmp_path, "world", -1)
    write_onnx(tmp_path, "churn-a", 2)
    aliases = tmp_path / "churn-a" / "aliases.yaml"
    aliases.write_text("champion: 1")
    found = replace(tenants(tmp_path), wanted="champion", aliases=FolderSource(tmp_path, quiet=0.2).aliases)
    executor = cast("TenantExecutor", found.open(open_executor))
    assert executor.run(inputs_of(("a", 1)))["y"].tolist() == [2]
    write_onnx(tmp_path, "churn-a", 3, version=2)
    aliases.unlink()
    os.mkfifo(aliases)  # to open it takes until somebody writes
    assert not executor.tenants.stage()
    assert f"version 1 goes on: model repository {tmp_path} has not answered for 0.2 s" in caplog.text
    aliases.write_text("champion: 2")
    for thread in threading.enumerate():
        if thread.name == "model source":
            thread.join()
    aliases.unlink()
    aliases.write_text("champion: 2")
    assert executor.tenants.stage()
    executor.close()
