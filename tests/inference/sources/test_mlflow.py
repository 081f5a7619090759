"""Models in a real MLflow registry: versions, aliases, flavours, trust, and what is away."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from millstream.inference.errors import ModelConfigError, SourceUnavailable
from millstream.inference.executors.choice import open_executor
from millstream.inference.repository import read_version
from millstream.inference.sources.cached import CachedSource
from millstream.inference.sources.choice import Repository, open_source
from millstream.inference.sources.start import fetch_at_start
from tests.stores.mlflow_server import PASSWORD, USER, MlflowServer

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.process, pytest.mark.full]  # the server is built or installed first, which takes minutes

FLAVOURS = ("onnx", "onnx-columns", "onnx-config", "sklearn", "pyfunc")
ROWS = {"X": np.array([[1, 2, 3], [-1, -2, -3]], np.float32)}
COLUMNS = ("distance", "hour", "day")


@pytest.fixture(scope="module")
def server() -> Iterator[MlflowServer]:
    pytest.importorskip("mlflow", reason="MLflow's client is not installed: .venv/bin/pip install -e '.[mlflow]'")
    with MlflowServer() as running:
        running.run("register.py", "flights", *FLAVOURS)
        yield running


def source_of(url: str, cache: Path, **client: str) -> CachedSource:
    opened = open_source(Repository("models:/", cache, 1 << 30, client={"tracking_uri": url, **client}))
    assert isinstance(opened, CachedSource)
    return opened


def executor_of(source: CachedSource, version: int, *, trust: bool = False) -> Any:
    folder = source.fetch("flights", version)
    executor = open_executor(read_version(folder, "flights", version, remote=True), trust=trust, device="cpu")
    executor.warm_up()
    return executor


def test_versions_and_what_is_not_there(server: MlflowServer, tmp_path: Path) -> None:
    source = source_of(server.url, tmp_path)
    versions = source.versions("flights")
    assert sorted(versions) == [1, 2, 3, 4, 5]
    assert len(set(versions.values())) == 5
    assert dict(source.versions("flights")) == dict(versions)
    with pytest.raises(
        ModelConfigError, match=r"has no model `flight` \(there: .*flights.*\)\. Did you mean `flights`\?"
    ):
        source.versions("flight")
    with pytest.raises(
        ModelConfigError, match=r"has no version 9 in models:/ \(MLflow at http://.*there: 1, 2, 3, 4, 5\)"
    ):
        source.fetch("flights", 9)


def test_aliases_are_followed_wherever_they_move(server: MlflowServer, tmp_path: Path) -> None:
    source = source_of(server.url, tmp_path)
    for version in (2, 3, 1):
        server.run("aliases.py", "flights", "champion", str(version))
        assert source.aliases("flights") == {"champion": version}
        assert fetch_at_start(source, "flights", "champion", "here").version == version
    server.run("aliases.py", "flights", "champion")
    with pytest.raises(ModelConfigError, match=r"no alias `champion` \(aliases: none; versions: 1, 2, 3, 4, 5\)"):
        fetch_at_start(source, "flights", "champion", "here")


def test_onnx_runs_with_the_fields_of_the_signature(server: MlflowServer, tmp_path: Path) -> None:
    source = source_of(server.url, tmp_path)
    answers = []
    for version, fields in ((1, ("X[]",)), (2, COLUMNS), (3, COLUMNS)):
        executor = executor_of(source, version)
        assert list(executor.model.signature.fields) == list(fields)
        answers.append(executor.run(ROWS))
    assert answers[0]["label"].tolist() == [1, 0]
    assert answers[1]["probabilities"].shape == (2, 2)
    assert answers[2].keys() == {"p"}  # config.yaml goes before MLmodel
    assert not np.allclose(answers[0]["probabilities"], answers[1]["probabilities"])  # two trainings


@pytest.mark.parametrize("version", [4, 5])
def test_pickles_are_not_loaded_without_trust(server: MlflowServer, tmp_path: Path, version: int) -> None:
    source = source_of(server.url, tmp_path)
    with pytest.raises(ModelConfigError, match=r"runs without your trust only as ONNX, found the executor mlflow"):
        executor_of(source, version)
    local = shutil.copytree(source.fetch("flights", version), tmp_path / "models" / "flights" / "1")
    with pytest.raises(ModelConfigError, match=r"MLflow's flavours but onnx are pickles or code"):
        open_executor(read_version(local, "flights", 1), device="cpu")


def test_pickles_run_with_trust(server: MlflowServer, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    executor = executor_of(source_of(server.url, tmp_path), 5, trust=True)
    inputs = {name: np.array([[2], [3]], np.float32) for name in COLUMNS}
    assert executor.run(inputs)["prediction"].tolist() == [4, 6]


def test_model_whose_files_were_deleted_is_told(server: MlflowServer, tmp_path: Path) -> None:
    [(version, location)] = server.run("register.py", "emptied", "onnx-config").items()
    folder = server.folder / "artifacts" / location.removeprefix("mlflow-artifacts:/")
    (folder / "model.onnx").unlink()
    (folder / "config.yaml").unlink()
    with pytest.raises(
        ModelConfigError, match=r"`emptied` version 1 of models:/ .* has no files|lacks what the version"
    ):
        source_of(server.url, tmp_path).fetch("emptied", int(version))


def test_deleted_version_is_gone_and_stays_on_this_machine(server: MlflowServer, tmp_path: Path) -> None:
    server.run("register.py", "deleted", "onnx-config", "onnx-config")
    source = source_of(server.url, tmp_path)
    folder = source.fetch("deleted", 1)
    server.run("aliases.py", "deleted", "--delete", "1")
    with pytest.raises(ModelConfigError, match=r"no version 1 .*there: 2\)"):
        source.fetch("deleted", 1)
    assert (folder / "model.onnx").is_file()


def test_server_that_is_killed_is_told_and_the_cache_serves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("mlflow")
    with MlflowServer() as server:
        server.run("register.py", "flights", "onnx-config")
        source = source_of(server.url, tmp_path)
        before = fetch_at_start(source, "flights", "latest", "here")
        server.kill()
        with pytest.raises(SourceUnavailable, match=r"models:/ \(MLflow at http://.*\) does not answer"):
            source.versions("flights")
        assert fetch_at_start(source_of(server.url, tmp_path), "flights", "latest", "here") == before
        assert "runs from the cache" in caplog.text


def test_credentials_are_needed_used_and_not_shown(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    environ = {"MLFLOW_FLASK_SERVER_SECRET_KEY": "key-of-this-test", "MLFLOW_AUTH_ADMIN_PASSWORD": PASSWORD}
    with MlflowServer("--app-name", "basic-auth", environ=environ) as server:
        login = {"MLFLOW_TRACKING_USERNAME": USER, "MLFLOW_TRACKING_PASSWORD": PASSWORD}
        server.run("register.py", "flights", "onnx-config", environ=login)
        source = source_of(server.url, tmp_path, username=USER, password=PASSWORD)
        assert (source.fetch("flights", 1) / "model.onnx").is_file()
        assert "MLFLOW_TRACKING_PASSWORD" not in os.environ  # only its client saw it
        for wrong in ({}, {"username": USER, "password": "wrong-password"}):
            with pytest.raises(ModelConfigError, match="the credentials are refused, or there are none") as caught:
                source_of(server.url, tmp_path / "other", **wrong).versions("flights")
            assert "wrong-password" not in str(caught.value)


def test_address_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ModelConfigError, match="expected the address of MLflow's server, found none"):
        open_source(Repository("models:/", tmp_path, 1))


def test_unknown_option_is_told(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    with pytest.raises(ModelConfigError, match=r"For MLflow, the options are tracking_uri, .*; found endpoint_url"):
        source_of("http://127.0.0.1:1", tmp_path, endpoint_url="x")
