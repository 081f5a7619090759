"""`model.repository`, `model.version` and what belongs to them."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from millstream.pipeline.errors import PipelineError
from millstream.pipeline.loading import load_pipeline
from millstream.pipeline.pipeline import Pipeline
from millstream.pipeline.repository import without_version
from tests.pipeline.pipeline_files import SMALL

HUSH = "correct-horse-battery"


def load(folder: Path, model: str, **environ: str) -> Pipeline:
    file = folder / "pipeline.yaml"
    file.write_text(SMALL.replace("model:\n  name: m\n", f"model:\n  name: m\n{model}"), encoding="utf-8")
    return load_pipeline(file, environ)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("s3://bucket/models", "s3://bucket/models"),
        ("hf://org/repository@main", "hf://org/repository@main"),
        ("abfs://box@account.example/models", "abfs://box@account.example/models"),
        ("file:///srv/models", "file:///srv/models"),
        ("models:/", "models:/"),
        ("models:/a b@champion", "models:/a b@champion"),
    ],
)
def test_urls_stay_as_they_are(tmp_path: Path, given: str, found: str) -> None:
    assert load(tmp_path, f"  repository: {given}\n").model.repository == found


@pytest.mark.parametrize("given", ["models", "../models", "s3:bucket", "c:/models"])
def test_all_else_is_a_path(tmp_path: Path, given: str) -> None:
    assert load(tmp_path, f"  repository: {given}\n").model.repository == tmp_path / given


@pytest.mark.parametrize(
    "url", [f"s3://key:{HUSH}@bucket/models", f"s3://key:{HUSH}/x@bucket", f"az://c/m?sig={HUSH}", f"s3://b/m#{HUSH}"]
)
def test_secret_in_a_url_is_refused_and_not_shown(tmp_path: Path, url: str) -> None:
    with pytest.raises(PipelineError, match=r"model\.repository: expected a URL without a password") as caught:
        load(tmp_path, f"  repository: '{url}'\n")
    assert HUSH not in "".join(traceback.format_exception(caught.value))


def test_secrets_of_the_client_are_read_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{HUSH}\n")
    model = "  repository: s3://b/m\n  client: {key: {env: KEY}, secret: {file: secret}, anon: false}\n"
    pipeline = load(tmp_path, model, KEY=HUSH)
    client = {name: value.get_secret_value() for name, value in pipeline.model.client.items()}
    assert client == {"key": HUSH, "secret": HUSH, "anon": "false"}
    assert HUSH not in repr(pipeline)


@pytest.mark.parametrize(
    ("url", "version", "wanted"),
    [
        ("models", "", None),
        ("models", "  version: 3\n", 3),
        ("models", "  version: latest\n", "latest"),
        ("models", "  version: champion\n", "champion"),
        ("models:/", "  version: champion\n", "champion"),
        ("models:/other", "  version: 3\n", 3),
        ("models:/other@champion", "", "champion"),
        ("models:/other/3", "", 3),
        ("models:/other/latest", "", "latest"),
    ],
)
def test_wanted_version(tmp_path: Path, url: str, version: str, wanted: int | str | None) -> None:
    assert load(tmp_path, f"  repository: {url}\n{version}").wanted_version == wanted


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("  repository: models:/a/b/c\n", r"expected models:/, models:/NAME, .*, found 'models:/a/b/c'"),
        ("  repository: models:/a@b\n  version: 3\n", "names a version already, found 3 too"),
        ("  client: {key: x}\n", "only a repository with a URL, such as s3://bucket/models, is read by a client"),
        ("  cache_size: 5\n", "model.cache_size: expected a size, found 5 without a unit"),
        ("  version: 3x\n", "expected a whole number, latest or an alias"),
        ("  version: ''\n", "expected a whole number, latest or an alias"),
    ],
)
def test_problems_say_what_to_do(tmp_path: Path, model: str, said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        load(tmp_path, model)


def test_shadow_is_compared_with_the_version_in_the_url(tmp_path: Path) -> None:
    text = SMALL.replace(
        "model:\n  name: m\n", "model:\n  name: m\n  repository: models:/m/2\nshadows: [{version: 2}]\n"
    )
    (tmp_path / "pipeline.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(PipelineError, match="version 2 is the primary's"):
        load_pipeline(tmp_path / "pipeline.yaml", {})


def test_cache_is_the_users_by_default(tmp_path: Path) -> None:
    assert load(tmp_path, "", XDG_CACHE_HOME="/c").model_cache == Path("/c/millstream/models")
    assert load(tmp_path, "").model_cache == Path.home() / ".cache" / "millstream" / "models"
    assert load(tmp_path, "  cache: mine\n", XDG_CACHE_HOME="/c").model_cache == tmp_path / "mine"


def test_url_without_its_version(tmp_path: Path) -> None:
    assert without_version(tmp_path, same=True) == tmp_path
    assert without_version("s3://b/m", same=True) == "s3://b/m"
    assert without_version("models:/a@champion", same=True) == "models:/a"
    assert without_version("models:/a@champion", same=False) == "models:/"
