"""Models in stores that run beside the tests: MinIO, fake-gcs-server, Azurite, and a stand-in for the Hugging Face Hub."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import pytest

from millstream.inference.errors import ModelConfigError, SourceUnavailable
from millstream.inference.sources.checksums import CHECKSUMS_FILE
from millstream.inference.sources.start import fetch_at_start
from tests.broker.clients import wait_until
from tests.faults.disk import SmallDisk
from tests.inference.sources.places import place_in, source_at
from tests.stores.azurite import Azurite
from tests.stores.choice import STORES
from tests.stores.fake_gcs import FakeGcs
from tests.stores.hub import Hub
from tests.stores.minio import PASSWORD, Minio
from tests.stores.refusing import refusing

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.inference.sources.cached import CachedSource
    from tests.stores.store_process import StoreProcess

pytestmark = [pytest.mark.process, pytest.mark.full]  # the stores are built or installed first, which takes minutes

NEEDS_GCSFS = "needs gcsfs: .venv/bin/pip install -e '.[gcs]'"
AWAY = r"model repository .* (does not answer|has not answered)"
WRONG_KEY = "d3Jvbmc" + 80 * "x" + "="  # as long as a key of Azure


def wrong_secret(store: StoreProcess) -> dict[str, str]:
    """Options with a wrong key, password or token."""
    if isinstance(store, Azurite):
        return {"connection_string": store.connection_string(WRONG_KEY)}
    return {"s3": {"secret": "wrong-" + 20 * "x"}, "hf": {"token": "hf_wrong_token"}}[store.scheme]


def test_versions_aliases_and_checksums(store: StoreProcess, tmp_path: Path) -> None:
    place = place_in(store)
    place.put("m/1/model.onnx", b"one")
    place.put("m/2/model.onnx", b"2" * 20_000_000)
    place.put("m/2/deep/vocabulary.txt", b"a\n")
    place.put("m/aliases.yaml", "champion: 2\n")
    source = place.source(tmp_path)
    before = dict(source.versions("m"))
    assert list(before) == [1, 2]
    assert source.sizes("m") == {1: 3, 2: 20_000_002}
    fetched = fetch_at_start(source, "m", "champion", "here")
    assert fetched.version == 2
    assert (fetched.folder / "model.onnx").read_bytes() == b"2" * 20_000_000
    assert (fetched.folder / "deep" / "vocabulary.txt").read_bytes() == b"a\n"
    place.put("m/1/model.onnx", b"One")
    after = source.versions("m")
    assert after[1] != before[1]  # no cache of listings hides it
    assert after[2] == before[2]
    place.put(f"m/1/{CHECKSUMS_FILE}", f"{'0' * 64}  model.onnx\n")
    with pytest.raises(
        ModelConfigError, match=rf"version 1 of {store.scheme}://.*: its files are not those of SHA256SUMS"
    ):
        source.fetch("m", 1)


def test_content_that_is_written_again_is_no_change(store: StoreProcess, tmp_path: Path) -> None:
    place = place_in(store)
    place.put("m/1/model.onnx", b"one")
    source = place.source(tmp_path)
    before = source.versions("m")[1]
    place.put("m/1/model.onnx", b"one")
    if store.scheme != "az":  # its ETag is of the time of writing
        assert source.versions("m")[1] == before


def test_alias_that_moves_and_a_new_latest_version_are_followed(store: StoreProcess, tmp_path: Path) -> None:
    place = place_in(store)
    for version in (1, 2):
        place.put(f"m/{version}/model.onnx", b"%d" % version)
    source = place.source(tmp_path)
    for version in (1, 2, 1):
        place.put("m/aliases.yaml", f"champion: {version}\n")
        assert fetch_at_start(source, "m", "champion", "here").version == version
    assert fetch_at_start(source, "m", "latest", "here").version == 2
    place.put("m/10/model.onnx", b"10")
    assert fetch_at_start(source, "m", "latest", "here").version == 10


def test_what_is_not_there_is_told(store: StoreProcess, tmp_path: Path) -> None:
    place = place_in(store)
    place.put("other/1/model.onnx", b"one")
    source = place.source(tmp_path)
    with pytest.raises(ModelConfigError, match=r"has no model `othr` \(there: other\)\. Did you mean `other`\?"):
        source.versions("othr")
    with pytest.raises(ModelConfigError, match=r"has no version 7 in .* \(there: 1\)"):
        source.fetch("other", 7)
    assert source.beside("other", "aliases.yaml") is None
    assert source.aliases("other") == {}


def test_version_that_is_deleted_is_told_and_stays_on_this_machine(store: StoreProcess, tmp_path: Path) -> None:
    place = place_in(store)
    for version in (1, 2):
        place.put(f"m/{version}/model.onnx", b"%d" % version)
    source = place.source(tmp_path)
    folder = source.fetch("m", 1)
    place.remove("m/1")
    assert list(source.versions("m")) == [2]
    with pytest.raises(ModelConfigError, match=r"has no version 1 in .* \(there: 2\)"):
        source.fetch("m", 1)
    assert (folder / "model.onnx").read_bytes() == b"1"


def test_thousand_versions(store: StoreProcess, tmp_path: Path) -> None:
    place = place_in(store)
    place.put_all({f"m/{number}/model.onnx": b"%d" % number for number in range(1, 1101)})
    source = place.source(tmp_path)
    assert list(source.versions("m")) == list(range(1, 1101))  # more than a store lists in one answer
    assert (fetch_at_start(source, "m", "latest", "here").folder / "model.onnx").read_bytes() == b"1100"


def refused(source: CachedSource) -> str:
    """What each question says: the credentials are refused."""
    said = set()
    for ask in (lambda: source.fetch("m", 1), lambda: source.versions("m"), lambda: source.aliases("m")):
        with pytest.raises(ModelConfigError, match="the credentials are refused, or there are none") as caught:
            ask()
        assert "model.client" in str(caught.value)
        said.add(str(caught.value))
    return "\n".join(said)


def test_wrong_credentials_are_told_and_not_shown(
    store: StoreProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    if isinstance(store, FakeGcs):
        pytest.skip("fake-gcs-server takes any credentials: the next tests have others that refuse them")
    place = place_in(store)
    place.put("m/1/model.onnx", b"one")
    wrong = wrong_secret(store)
    place.client.update(wrong)
    said = refused(place.source(tmp_path)) + caplog.text + "".join(capfd.readouterr())
    for secret in (*store.secrets, *wrong.values(), WRONG_KEY):
        assert secret not in said


def test_unknown_user_of_s3_is_told(minio: Minio, tmp_path: Path) -> None:
    place = place_in(minio)
    place.put("m/1/model.onnx", b"one")
    place.client.update({"key": "nobody-here"})
    said = refused(place.source(tmp_path))
    assert PASSWORD not in said
    assert "nobody-here" not in said


def test_login_that_google_refuses_is_told_at_once(tmp_path: Path) -> None:
    """gcsfs alone tries it again for half a minute, and the repository would look as if it were away."""
    pytest.importorskip("gcsfs", reason=NEEDS_GCSFS)
    with refusing(400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}) as url:
        key = service_account(url)
        (tmp_path / "key.json").write_text(key)
        for token in (key, str(tmp_path / "key.json")):  # from `{file: key.json}`, and the path of the file
            said = refused(source_at("gs://bucket/models", {"token": token, "endpoint_url": url}, tmp_path / "cache"))
            assert not any(line in said for line in key.split("\\n") if len(line) > 20)


@pytest.mark.parametrize("status", [401, 403])
def test_request_that_google_refuses_is_told(tmp_path: Path, status: int) -> None:
    pytest.importorskip("gcsfs", reason=NEEDS_GCSFS)
    message = "Anonymous caller does not have storage.objects.list access to the Google Cloud Storage bucket."
    with refusing(status, {"error": {"code": status, "message": message}}) as url:
        said = refused(source_at("gs://bucket/models", {"token": "anon", "endpoint_url": url}, tmp_path))
    assert "storage.objects.list" in said


def test_repository_of_the_hub_that_the_token_may_not_read_is_told(tmp_path: Path) -> None:
    """The Hub doesn't tell a private repository from one that is missing."""
    may_not = r"there is no such place, or .* may not read it\. .*model\.client"
    with Hub() as hub, pytest.raises(ModelConfigError, match=may_not):
        source_at("hf://weather/private", hub.client, tmp_path).versions("m")


def test_url_without_a_repository_of_the_hub_is_told(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub", reason="needs huggingface_hub: .venv/bin/pip install -e '.[hf]'")
    with pytest.raises(ModelConfigError, match="there is no such place"):
        source_at("hf://", {"endpoint": "http://127.0.0.1:9"}, tmp_path).versions("m")


def test_key_file_of_google_that_is_not_there_is_told(tmp_path: Path) -> None:
    pytest.importorskip("gcsfs", reason=NEEDS_GCSFS)
    for token, said in (
        (str(tmp_path / "key.json"), "there is no such file"),
        ('{"private_key": "s3cr', "JSONDecodeError"),
    ):
        with pytest.raises(ModelConfigError, match=rf"the client refuses its options\..* {said}") as caught:
            source_at("gs://bucket/models", {"token": token}, tmp_path).versions("m")
        assert "s3cr" not in str(caught.value)


def test_missing_bucket_is_told(store: StoreProcess, tmp_path: Path) -> None:
    source = source_at(f"{store.scheme}://nobody-made-{uuid.uuid4().hex}/models", store.client, tmp_path)
    for ask in (lambda: source.fetch("m", 1), lambda: source.versions("m")):
        with pytest.raises(ModelConfigError, match=r"there is no such place|has no model `m`"):
            ask()


@pytest.mark.parametrize("scheme", STORES)
def test_store_that_is_killed_is_told_and_the_cache_serves(
    tmp_path: Path, scheme: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with STORES[scheme]() as store:
        place = place_in(store)
        place.put("m/1/model.onnx", b"one")
        source = place.source(tmp_path, quiet=5)
        fetch_at_start(source, "m", "latest", "here")
        store.kill()
        with pytest.raises(SourceUnavailable, match=AWAY):
            source.versions("m")
        again = fetch_at_start(place.source(tmp_path, quiet=5), "m", "latest", "here")
        assert (again.folder / "model.onnx").read_bytes() == b"one"
        assert "runs from the cache" in caplog.text
        said = caplog.text + "".join(capfd.readouterr())
        assert not any(secret in said for secret in (*store.secrets, "Traceback"))
        store.start()
        wait_until(lambda: answers(source), 90, "the store to be back")
        assert list(source.versions("m")) == [1]


@pytest.mark.parametrize("scheme", STORES)
def test_store_that_freezes_is_given_up(tmp_path: Path, scheme: str) -> None:
    with STORES[scheme]() as store:
        place = place_in(store)
        place.put("m/1/model.onnx", b"one")
        source = place.source(tmp_path, quiet=1.5)
        assert list(source.versions("m")) == [1]
        store.freeze()
        with pytest.raises(SourceUnavailable, match=r"has not answered for 1\.5 s"):
            source.versions("m")
        store.thaw()
        wait_until(lambda: answers(source), 90, "an answer")
        assert list(source.versions("m")) == [1]


def service_account(url: str) -> str:
    """A key file of Google's, of an account that logs in at this URL."""
    rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa")
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {"client_email": "tests@example.com", "token_uri": url, "private_key": private.decode()}
    return json.dumps({"type": "service_account", "project_id": "tests", **account})


def answers(source: CachedSource) -> bool:
    """Whether the store is back."""
    try:
        return bool(source.versions("m"))
    except SourceUnavailable:
        return False


def test_full_disk_is_told_and_room_helps(minio: Minio, tmp_path: Path) -> None:
    place = place_in(minio)
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
