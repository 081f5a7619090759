"""The section `server` of a config.yaml: its options, its secrets, and every mistake with its line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.inference.errors import ModelConfigError
from millstream.inference.executors.kserve.options import KServeOptions
from millstream.inference.executors.limits import RequestLimits
from millstream.inference.repository import load_version

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

REST = "inputs: [{tensor: x, field: f, dtype: float32, shape: [2]}]\noutputs: [{tensor: y}]\n"


def options(folder: Path, server: str, environ: Mapping[str, str] | None = None) -> KServeOptions:
    place = folder / "m" / "1"
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.yaml").write_text(f"executor: kserve\n{server}\n{REST}", encoding="utf-8")
    section = load_version(folder, "m", environ=environ).server
    assert section is not None
    return section.read(KServeOptions)


def test_options_have_defaults_and_become_limits(tmp_path: Path) -> None:
    found = options(tmp_path, "server: {urls: [grpc://triton:8001]}")
    assert (found.urls, found.model, found.version) == (("grpc://triton:8001",), None, None)
    assert found.limits == RequestLimits(timeout=30.0, concurrency=None)
    found = options(
        tmp_path,
        "server: {urls: [http://a:1, https://b:2/], version: 1, timeout: 500ms, concurrency: 7, requests_per_minute: 60}",
    )
    assert (found.urls, found.version) == (("http://a:1", "https://b:2"), "1")
    assert found.limits == RequestLimits(timeout=0.5, concurrency=7, requests_per_minute=60.0)
    assert options(tmp_path, "server: {urls: [grpc://a:1], concurrency: adaptive}").limits.concurrency is None


def test_secrets_come_from_the_environment_and_files_and_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "token").write_text("in a file\n", encoding="utf-8")
    server = "server: {urls: [grpc://a:1], headers: {Authorization: {env: TOKEN}, key: {file: token}, plain: 3}}"
    found = options(tmp_path, server, {"TOKEN": "Bearer abc"})
    assert found.secret_headers() == {"Authorization": "Bearer abc", "key": "in a file", "plain": "3"}
    assert "abc" not in f"{found!r} {found}"
    assert "in a file" not in repr(found)


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ("server: {}", ":2: server.urls: this option is missing"),
        ("", ":1: server.urls: this option is missing"),
        ("server: [1]", ":2: server: expected a mapping"),
        ("server:\n  urls: []", ":3: server.urls: expected at least one"),
        ("server:\n  urls: [triton:8001]", ":3: server.urls[0]: expected grpc://HOST:PORT"),
        ("server:\n  urls: [http://a:1/v2]", ":3: server.urls[0]: expected grpc://HOST:PORT"),
        ("server:\n  urls: [http://a:99999]", ":3: server.urls[0]: expected grpc://HOST:PORT"),
        ("server:\n  urls: ['http://a:1/?key=1']", "found one that is not shown, because it may contain a secret"),
        ("server: {urls: [grpc://a:1], timout: 3s}", ":2: server.timout: unknown key. Did you mean timeout?"),
        ("server: {urls: [grpc://a:1], timeout: 3}", "expected a duration, found 3 without a unit"),
        (
            "server: {urls: [grpc://a:1], concurrency: 0}",
            "expected adaptive or a number from 1 to 4096, found the number 0",
        ),
        ("server: {urls: [grpc://a:1], requests_per_minute: 0}", "expected more than 0, found the number 0"),
        ("server: {urls: [grpc://a:1], headers: {a: {env: NONE}}}", "environment variable NONE, which is not set"),
        ('server: {urls: [grpc://a:1], headers: {a: "b\\nc: d"}}', "expected a secret of one line"),
        ('server: {urls: [grpc://a:1], headers: {a: "b\\u00e9"}}', "expected a secret of one line"),
        ('server: {urls: [grpc://a:1], headers: {"a:b": c}}', "server.headers: expected names of headers"),
        (
            "server: {urls: [grpc://a:1], headers: {a: {file: /dev/zero}}}",
            "at most 1,048,576 bytes in the secret's file",
        ),
        ("server: {urls: [grpc://a:1], headers: {a: {file: none}}}", "cannot read the secret's file"),
    ],
)
def test_mistake_is_told_with_its_line(tmp_path: Path, server: str, said: str) -> None:
    with pytest.raises(ModelConfigError) as refused:
        options(tmp_path, server)
    assert said in str(refused.value)
    assert str(refused.value).startswith(str(tmp_path / "m" / "1" / "config.yaml"))


def test_password_in_a_url_is_refused_and_not_shown(tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match="expected a URL without a user in it") as refused:
        options(tmp_path, "server: {urls: ['http://me:pass@a:1']}")
    assert "pass@" not in str(refused.value)


def test_several_mistakes_are_told_together(tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError) as refused:
        options(tmp_path, "server:\n  urls: [a]\n  timeout: soon\n  concurency: 3")
    assert len(str(refused.value).splitlines()) == 3


def test_section_belongs_to_an_executor_that_calls_a_server(tmp_path: Path) -> None:
    place = tmp_path / "m" / "1"
    place.mkdir(parents=True)
    (place / "model.py").touch()
    (place / "config.yaml").write_text(f"server: {{urls: [grpc://a:1]}}\n{REST}", encoding="utf-8")
    with pytest.raises(ModelConfigError, match=":1: server: only an executor that calls a server has this section"):
        load_version(tmp_path, "m")
