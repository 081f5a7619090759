"""Models in a real object store with S3's API: MinIO."""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING

import pytest

from millstream.inference.errors import ModelConfigError, SourceUnavailable
from millstream.inference.sources.checksums import CHECKSUMS_FILE
from millstream.inference.sources.start import fetch_at_start
from tests.broker.clients import wait_until
from tests.faults.disk import SmallDisk
from tests.inference.sources.places import Place
from tests.stores.minio import PASSWORD, Minio

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.process, pytest.mark.full]  # the server is built or installed first, which takes minutes


def in_minio(minio: Minio, **options: str) -> Place:
    """A repository in a bucket of its own."""
    place = Place(f"s3://models-{uuid.uuid4().hex}/models", minio.client)
    place.client.update(options)
    return place


def test_versions_aliases_and_checksums(minio: Minio, tmp_path: Path) -> None:
    place = in_minio(minio)
    place.put("m/1/model.onnx", b"one")
    place.put("m/2/model.onnx", b"2" * 20_000_000)
    place.put("m/2/vocabulary.txt", b"a\n")
    place.put("m/aliases.yaml", "champion: 2\n")
    source = place.source(tmp_path)
    before = dict(source.versions("m"))
    assert list(before) == [1, 2]
    assert source.sizes("m") == {1: 3, 2: 20_000_002}
    fetched = fetch_at_start(source, "m", "champion", "here")
    assert fetched.version == 2
    assert (fetched.folder / "model.onnx").read_bytes() == b"2" * 20_000_000
    place.put("m/1/model.onnx", b"One")
    after = source.versions("m")
    assert after[1] != before[1]  # no cache of listings hides it
    assert after[2] == before[2]
    place.put(f"m/1/{CHECKSUMS_FILE}", f"{'0' * 64}  model.onnx\n")
    with pytest.raises(ModelConfigError, match=r"version 1 of s3://.*: its files are not those of SHA256SUMS"):
        source.fetch("m", 1)


def test_thousand_versions(minio: Minio, tmp_path: Path) -> None:
    place = in_minio(minio)
    place.put_all({f"m/{number}/model.onnx": b"%d" % number for number in range(1, 1101)})
    source = place.source(tmp_path)
    assert list(source.versions("m")) == list(range(1, 1101))  # more than S3 lists in one answer
    assert (fetch_at_start(source, "m", "latest", "here").folder / "model.onnx").read_bytes() == b"1100"


@pytest.mark.parametrize("wrong", [{"secret": "wrong-" + "x" * 20}, {"key": "nobody-here"}])
def test_wrong_credentials_are_told_and_not_shown(minio: Minio, tmp_path: Path, wrong: dict[str, str]) -> None:
    place = in_minio(minio)
    place.put("m/1/model.onnx", b"one")
    place.client.update(wrong)
    with pytest.raises(ModelConfigError, match="the credentials are refused, or there are none") as caught:
        place.source(tmp_path).fetch("m", 1)
    assert "model.client" in str(caught.value)
    for secret in (PASSWORD, *wrong.values()):
        assert secret not in str(caught.value)


def test_missing_bucket_is_told(minio: Minio, tmp_path: Path) -> None:
    place = Place(f"s3://nobody-made-{uuid.uuid4().hex}/models", minio.client)
    with pytest.raises(ModelConfigError, match=r"there is no such place|has no model `m`"):
        place.source(tmp_path).versions("m")


def test_store_that_is_killed_is_told_and_the_cache_serves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("s3fs")
    with Minio() as minio:
        place = in_minio(minio)
        place.put("m/1/model.onnx", b"one")
        source = place.source(tmp_path)
        fetch_at_start(source, "m", "latest", "here")
        minio.kill()
        with pytest.raises(SourceUnavailable, match=r"model repository s3://.* does not answer"):
            source.versions("m")
        again = fetch_at_start(place.source(tmp_path), "m", "latest", "here")
        assert (again.folder / "model.onnx").read_bytes() == b"one"
        assert "runs from the cache" in caplog.text
        assert PASSWORD not in caplog.text
        minio.start()
        wait_until(lambda: list(source.versions("m")) == [1], 30, "the store to be back")


def test_store_that_freezes_is_given_up(tmp_path: Path) -> None:
    pytest.importorskip("s3fs")
    with Minio() as minio:
        place = in_minio(minio)
        place.put("m/1/model.onnx", b"one")
        source = place.source(tmp_path, quiet=1.5)
        minio.freeze()
        with pytest.raises(SourceUnavailable, match=r"has not answered for 1\.5 s"):
            source.versions("m")
        minio.thaw()
        wait_until(lambda: not any(each.name == "model source" for each in threading.enumerate()), 60, "an answer")
        assert list(source.versions("m")) == [1]


def test_full_disk_is_told_and_room_helps(minio: Minio, tmp_path: Path) -> None:
    place = in_minio(minio)
    place.put("m/1/model.onnx", b"1" * 5_000_000)
    with SmallDisk(tmp_path / "disk") as disk:
        source = place.source(disk.folder / "cache")
        disk.fill()
        with pytest.raises(
            SourceUnavailable, match=r"can't be kept in the cache .*: No space left on device\. Free room"
        ):
            source.fetch("m", 1)
        disk.make_room()
        folder = source.fetch("m", 1)
        assert (folder / "model.onnx").stat().st_size == 5_000_000
        assert list((disk.folder / "cache" / "partial").iterdir()) == []
        source.release(folder)


def test_listing_of_a_thousand_versions_finds_a_moved_alias(minio: Minio, tmp_path: Path) -> None:
    place = in_minio(minio)
    place.put_all({f"m/{number}/model.onnx": b"%d" % number for number in range(1, 1001)})
    source = place.source(tmp_path)
    for version in (7, 900, 7):
        place.put("m/aliases.yaml", f"champion: {version}\n")
        assert fetch_at_start(source, "m", "champion", "here").version == version
