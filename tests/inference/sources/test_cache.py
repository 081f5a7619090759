"""The cache of fetched versions: also with several processes, a full disk and kills."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from threading import Timer
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from millstream.inference.errors import ModelConfigError, SourceUnavailable
from millstream.inference.sources import cache as cache_module
from millstream.inference.sources import file_lock
from millstream.inference.sources.cache import VersionCache
from millstream.inference.sources.durable import write_record
from tests.broker.clients import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]
PLACE = "model `m` version 1"


def writes(**files: bytes) -> Callable[[Path], None]:
    """What fills a version with these files."""

    def fill(folder: Path) -> None:
        for name, content in files.items():
            (folder / name).write_bytes(content)

    return fill


def add(cache: VersionCache, key: str, content: bytes) -> Path:
    return cache.add(key, len(content), writes(model=content), PLACE)


def bytes_in(cache: VersionCache) -> int:
    return sum(content.bytes for content in cache.contents())


def test_version_is_there_under_its_key_with_all_its_files(tmp_path: Path) -> None:
    cache = VersionCache(tmp_path / "a" / "cache", 1000)
    assert cache.get("k") is None
    folder = cache.add("k", 3, writes(a=b"1", b=b"22"), PLACE)
    assert (folder / "b").read_bytes() == b"22"
    assert cache.get("k") == folder
    assert cache.get("other") is None
    assert (tmp_path / "a" / "cache").stat().st_mode & 0o077 == 0  # others could replace a model


@pytest.mark.parametrize("name", ["content", "keys"])
@pytest.mark.parametrize("how", ["owner", "mode"])
def test_cache_that_another_user_may_write_is_refused(tmp_path: Path, name: str, how: str) -> None:
    add(VersionCache(tmp_path, 1000), "k", b"1")
    if how == "mode":
        (tmp_path / name).chmod(0o777)
    elif os.geteuid() == 0:
        os.chown(tmp_path / name, 12345, 12345)
    else:
        pytest.skip("only root may give a folder away")
    for call in (lambda cache: cache.get("k"), lambda cache: add(cache, "new", b"2")):
        with pytest.raises(
            ModelConfigError, match=rf"{name} belongs to user .* can replace the models in it\. Delete it"
        ):
            call(VersionCache(tmp_path, 1000))


def test_cache_that_a_group_may_write_is_used(tmp_path: Path) -> None:
    """Kubernetes makes a volume with `fsGroup` so."""
    folder = add(VersionCache(tmp_path, 1000), "k", b"1")
    (tmp_path / "content").chmod(0o2770)
    assert VersionCache(tmp_path, 1000).get("k") == folder


def test_same_content_is_kept_once(tmp_path: Path) -> None:
    cache = VersionCache(tmp_path, 1000)
    assert add(cache, "k1", b"same") == add(cache, "k2", b"same")
    assert bytes_in(cache) == 4


def test_least_recently_used_version_makes_room(tmp_path: Path) -> None:
    cache = VersionCache(tmp_path, 10)
    for number in range(2):
        cache.release(add(cache, f"k{number}", b"%d234" % number))
    os.utime(next(tmp_path.glob("content/*.json")), (1, 1))
    first = min(cache.contents(), key=lambda each: each.used).folder
    cache.release(add(cache, "k2", b"2234"))
    assert not first.exists()
    assert len(cache.contents()) == 2


def test_version_in_use_is_never_deleted(tmp_path: Path) -> None:
    cache = VersionCache(tmp_path, 10)
    used = add(cache, "used", b"123456")
    with pytest.raises(SourceUnavailable, match=r"processes use 6 of the 10 bytes .* Raise `model.cache_size`"):
        add(VersionCache(tmp_path, 10), "new", b"abcdef")
    assert (used / "model").read_bytes() == b"123456"
    cache.release(used)
    assert (add(cache, "new", b"abcdef") / "model").read_bytes() == b"abcdef"
    assert not used.exists()


def test_version_larger_than_the_cache_is_refused_before_it_is_fetched(tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match=r"takes 11 bytes, more than the whole cache may \(10 bytes"):
        VersionCache(tmp_path, 10).add("k", 11, lambda _: pytest.fail("fetched"), PLACE)


def test_version_that_turns_out_larger_than_the_cache_is_refused(tmp_path: Path) -> None:
    cache = VersionCache(tmp_path, 10)
    with pytest.raises(ModelConfigError, match="takes 11 bytes"):
        cache.add("k", None, writes(model=b"12345678901"), PLACE)
    assert list((tmp_path / "partial").iterdir()) == []


@pytest.mark.parametrize("damage", ["changed", "shorter", "gone", "more"])
def test_damaged_version_is_fetched_again(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    cache = VersionCache(tmp_path, 1000)
    folder = add(cache, "k", b"right")
    cache.release(folder)
    match damage:
        case "changed":
            (folder / "model").write_bytes(b"wrong")
        case "shorter":
            (folder / "model").write_bytes(b"ri")
        case "gone":
            (folder / "model").unlink()
        case "more":
            (folder / "model.py").write_bytes(b"import evil")
    assert VersionCache(tmp_path, 1000).get("k") is None
    assert "changed or damaged" in caplog.text
    again = add(VersionCache(tmp_path, 1000), "k", b"right")
    assert [path.name for path in again.iterdir()] == ["model"]
    assert (again / "model").read_bytes() == b"right"


def test_damaged_version_in_use_is_told(tmp_path: Path) -> None:
    folder = add(VersionCache(tmp_path, 1000), "k", b"right")
    cache = VersionCache(tmp_path, 1000)
    used = cache.get("k")
    (folder / "model").write_bytes(b"wrong")
    with pytest.raises(SourceUnavailable, match="is damaged, and another process uses it"):
        VersionCache(tmp_path, 1000).get("k")
    assert used is not None


def test_failed_fetch_leaves_nothing(tmp_path: Path) -> None:
    cache = VersionCache(tmp_path, 1000)

    def fails(folder: Path) -> None:
        (folder / "half").write_bytes(b"1")
        raise SourceUnavailable("away")

    with pytest.raises(SourceUnavailable, match="away"):
        cache.add("k", 2, fails, PLACE)
    assert list((tmp_path / "partial").iterdir()) == []
    assert cache.contents() == []


def test_full_disk_is_told(tmp_path: Path) -> None:
    def fails(_: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(SourceUnavailable, match=r"No space left on device\. Free room on that disk, or name a folder"):
        VersionCache(tmp_path, 1000).add("k", 2, fails, PLACE)
    assert list((tmp_path / "partial").iterdir()) == []


def test_full_disk_in_the_last_step_leaves_no_lock_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = VersionCache(tmp_path, 1000)

    def fails(path: Path, record: dict[str, Any]) -> None:
        if path.parent.name == "keys":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_record(path, record)

    with monkeypatch.context() as full:
        full.setattr(cache_module, "write_record", fails)
        with pytest.raises(SourceUnavailable, match="No space left on device"):
            add(cache, "k", b"x" * 600)
    assert add(cache, "other", b"y" * 600).is_dir(), "the first version makes room"


def test_unused_versions_make_room_on_a_disk_that_is_smaller_than_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = VersionCache(tmp_path, 10_000)
    old, used = add(cache, "old", b"x" * 400), add(cache, "used", b"y" * 400)
    cache.release(old)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000 - bytes_in(cache)))
    new = add(cache, "new", b"z" * 400)
    assert [folder.is_dir() for folder in (old, used, new)] == [False, True, True]


def test_lock_that_can_not_be_made_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = VersionCache(tmp_path, 1000)
    add(cache, "k", b"1")

    def fails(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(cache_module, "lock", fails)
    with pytest.raises(SourceUnavailable, match=r"can't be made: No space left"):
        cache.get("k")  # without the lock, another process could delete it


def test_fetch_begins_although_another_process_sweeps_at_this_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []

    def flock(descriptor: int, how: int) -> None:
        name = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        if not held and name.startswith(str(tmp_path / "partial")):
            held.append(os.open(name, os.O_RDWR))
            fcntl.flock(held[0], fcntl.LOCK_EX)  # the other process has found the file before it is locked
            Timer(0.1, os.close, held).start()
        fcntl.flock(descriptor, how)

    fake = SimpleNamespace(flock=flock, LOCK_EX=fcntl.LOCK_EX, LOCK_SH=fcntl.LOCK_SH, LOCK_NB=fcntl.LOCK_NB)
    monkeypatch.setattr(file_lock, "fcntl", fake)
    assert add(VersionCache(tmp_path, 1000), "k", b"1").is_dir()
    assert held


def test_cache_that_is_no_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ModelConfigError, match=r"can't be kept in the cache .*/file: .* `model\.cache`"):
        add(VersionCache(tmp_path / "file", 1000), "k", b"1")


def test_cache_that_may_only_be_read_serves_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = add(VersionCache(tmp_path, 1000), "k", b"1")
    if os.geteuid() == 0:  # root may write anywhere, but not to a disk that is mounted so

        def fails(*_: object) -> int:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

        real = os.open
        monkeypatch.setattr(
            os, "open", lambda path, flags, *mode: (fails if flags & os.O_CREAT else real)(path, flags, *mode)
        )
        monkeypatch.setattr(os, "utime", fails)
    else:
        for path in [tmp_path, *tmp_path.rglob("*")]:
            path.chmod(0o500)
    cache = VersionCache(tmp_path, 1000)
    assert cache.get("k") == folder
    cache.release(folder)


PROGRAM = """
import sys, time
from pathlib import Path
from millstream.inference.sources.cache import VersionCache
folder, key, content, pause = sys.argv[1:]
def fill(target):
    (target / "a").write_text(content)
    print("filling", flush=True)
    time.sleep(float(pause))
    (target / "b").write_text(content)
cache = VersionCache(Path(folder), 1000)
print(cache.add(key, 2 * len(content), fill, "m"), flush=True)
sys.stdin.read()
"""


def process(folder: Path, key: str, content: str, pause: float) -> subprocess.Popen[str]:
    """A process that fetches a version and uses it until its standard input ends."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM, str(folder), key, content, str(pause)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def line(of: subprocess.Popen[str]) -> str:
    assert of.stdout is not None
    return of.stdout.readline().strip()


@pytest.mark.process
def test_processes_fetch_a_version_once(tmp_path: Path) -> None:
    several = [process(tmp_path, "k", "content", 0.3) for _ in range(4)]
    said = [each.communicate("")[0].splitlines() for each in several]
    assert sorted(len(lines) for lines in said) == [1, 1, 1, 2]  # one of them filled it
    assert len({lines[-1] for lines in said}) == 1
    assert len(VersionCache(tmp_path, 1000).contents()) == 1


@pytest.mark.process
def test_what_a_killed_process_fetched_is_swept_away_and_fetched_again(tmp_path: Path) -> None:
    killed = process(tmp_path, "k", "content", 60)
    assert line(killed) == "filling"
    assert list((tmp_path / "content").iterdir()) == []  # half a version is nowhere that a worker looks
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    folder = add(VersionCache(tmp_path, 1000), "k", b"content")
    assert (folder / "model").read_bytes() == b"content"
    assert list((tmp_path / "partial").iterdir()) == []


@pytest.mark.process
def test_version_that_another_process_uses_is_kept_until_that_process_ends(tmp_path: Path) -> None:
    user = process(tmp_path, "used", "x" * 400, 0)
    assert line(user) == "filling"
    folder = Path(line(user))
    cache = VersionCache(tmp_path, 1000)
    with pytest.raises(SourceUnavailable, match="processes use 800 of the 1,000 bytes"):
        add(cache, "new", b"y" * 300)
    assert folder.is_dir()
    user.send_signal(signal.SIGKILL)  # its locks go with it
    user.communicate()
    wait_until(lambda: add(cache, "new", b"y" * 300).is_dir(), 10, "room")
    assert not folder.exists()


class Caches(RuleBasedStateMachine):
    """Two caches over one folder, as two workers have, against a plain model of what they promise."""

    taken = Bundle("taken")
    MOST = 40

    def __init__(self) -> None:
        super().__init__()
        self._made = tempfile.TemporaryDirectory()
        self.caches = [VersionCache(Path(self._made.name), self.MOST) for _ in range(2)]
        self.used: list[tuple[int, Path, bytes]] = []

    @rule(target=taken, worker=st.integers(0, 1), key=st.integers(0, 6), size=st.integers(1, 50))
    def take(self, worker: int, key: int, size: int) -> Any:
        content = bytes([key]) * size
        name = f"{key}-{size}"
        try:
            folder = self.caches[worker].get(name) or add(self.caches[worker], name, content)
        except ModelConfigError:
            assert size > self.MOST
            return None
        except SourceUnavailable:
            in_use = {path: len(of) for _, path, of in self.used}
            assert sum(in_use.values()) + size > self.MOST
            return None
        use = (worker, folder, content)
        self.used.append(use)
        return use

    @rule(use=taken)
    def give_back(self, use: Any) -> None:
        if use in self.used:
            self.used.remove(use)
            self.caches[use[0]].release(use[1])

    @invariant()
    def what_is_used_is_there_and_whole(self) -> None:
        for _, folder, content in self.used:
            assert (folder / "model").read_bytes() == content

    @invariant()
    def the_bound_is_kept(self) -> None:
        assert bytes_in(self.caches[0]) <= self.MOST
        assert self.caches[0].contents() == self.caches[1].contents()

    def teardown(self) -> None:
        for worker, folder, _ in self.used:
            self.caches[worker].release(folder)
        self._made.cleanup()


Caches.TestCase.settings = settings(
    max_examples=40, stateful_step_count=25, suppress_health_check=[HealthCheck.too_slow], deadline=None
)
test_workers_share_the_cache = Caches.TestCase
