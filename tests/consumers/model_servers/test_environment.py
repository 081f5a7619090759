"""Environments from a wheel in a folder: pip runs, and needs no network."""

import hashlib
import threading
import zipfile
from pathlib import Path

import pytest

from millstream.consumers.model_servers.environment import Packages, environment
from millstream.consumers.model_servers.errors import ServerMissing, StopRequested

pytestmark = pytest.mark.process
WHEEL = "tiny_server-1.0-py3-none-any.whl"


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Packages:
    """A package that pip finds in a folder only."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / WHEEL, "w") as wheel:
        info = "tiny_server-1.0.dist-info"
        wheel.writestr("tiny_server.py", "ANSWER = 42\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-server\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"tiny_server.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    return pinned(tmp_path, hashlib.sha256((wheels / WHEEL).read_bytes()).hexdigest())


def pinned(folder: Path, digest: str) -> Packages:
    (folder / "tiny.txt").write_text(f"tiny-server==1.0 --hash=sha256:{digest}\n")
    return Packages("tiny", "Tiny 1.0", folder / "tiny.txt", "1 kB", "20 MB")


def kept(cache: Path) -> set[str]:
    """What is in the cache, but for lock and log."""
    return {path.name for path in cache.iterdir()} - {"tiny.lock", "tiny.log"}


def test_packages_are_fetched_once(tmp_path: Path, packages: Packages) -> None:
    told: list[str] = []
    folder = environment(packages, tmp_path / "cache", tell=told.append)
    assert [*folder.glob("lib/python*/site-packages/tiny_server.py")]
    assert environment(packages, tmp_path / "cache", tell=told.append) == folder
    assert told == [f"Fetching Tiny 1.0: 1 kB to download, 20 MB in {folder} (once) ..."]
    assert kept(tmp_path / "cache") == {folder.name}


def test_other_file_than_the_pinned_one_is_refused(tmp_path: Path, packages: Packages) -> None:
    with pytest.raises(
        ServerMissing, match=r"(?s)Tiny 1\.0 could not be fetched: pip ended with status 1.+Check the net"
    ):
        environment(pinned(tmp_path, "0" * 64), tmp_path / "cache")
    assert packages.name == "tiny"
    assert kept(tmp_path / "cache") == set()


@pytest.mark.full
def test_without_network_nothing_is_left(tmp_path: Path, packages: Packages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_FIND_LINKS")
    with pytest.raises(
        ServerMissing, match=r"(?s)No matching distribution found for tiny-server==1\.0.+Check the network"
    ):
        environment(packages, tmp_path / "cache")
    assert kept(tmp_path / "cache") == set()


def test_stop_ends_it_and_leaves_nothing(tmp_path: Path, packages: Packages) -> None:
    stop = threading.Event()
    with pytest.raises(StopRequested):
        environment(packages, tmp_path / "cache", tell=lambda _: stop.set(), stop=stop)
    assert kept(tmp_path / "cache") == set()


def test_cache_that_cannot_be_a_folder_is_one_message(tmp_path: Path, packages: Packages) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ServerMissing, match=r"Tiny 1\.0 can't be kept in .+: Not a directory\. Name another folder"):
        environment(packages, tmp_path / "file" / "cache")
