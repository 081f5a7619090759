"""An instance ID belongs to one worker of the machine at a time."""

import errno
import fcntl
import os
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import pytest

from millstream.consumers.errors import InstanceIdTaken, WorkerError
from millstream.consumers.worker.instance_id import InstanceId, take_instance_id


def take(name: str | None, group: str) -> InstanceId:
    return take_instance_id(name, group=group, bootstrap="broker:9092")


@pytest.fixture
def group() -> str:
    return f"ids-{uuid.uuid4().hex}"


def test_second_worker_with_an_instance_id_is_told_who_has_it(group: str) -> None:
    first = take("a", group)
    with pytest.raises(InstanceIdTaken, match=rf"instance ID a of group {group} is taken by process {os.getpid()} on"):
        take("a", group)
    first.release()
    take("a", group).release()


def test_workers_without_an_instance_id_take_the_next_free_one(group: str) -> None:
    first, second = take(None, group), take(None, group)
    assert (first.name.rpartition("-")[2], second.name.rpartition("-")[2]) == ("0", "1")
    first.release()
    again = take(None, group)
    assert again.name == first.name  # a restarted worker finds its predecessor's
    again.release()
    second.release()


def test_same_name_in_another_group_is_another_instance_id(group: str) -> None:
    first, second = take("a", group), take("a", f"{group}-2")
    assert first.name != second.name
    first.release()
    second.release()


def test_transactions_and_locks_are_named_as_in_former_versions(shared: Path) -> None:
    """Workers of the version before hold a lock under this name, and their transactions are fenced by this one."""
    held = take("a", "flights")
    assert held.name == "flights-a"
    assert [path.name for path in shared.rglob("*") if path.is_file()] == ["slot-a071736fb1c9ea7e281d0b94"]
    held.release()


def test_killed_worker_leaves_its_instance_id_free(group: str) -> None:
    code = (
        "import os, signal; from millstream.consumers.worker.instance_id import take_instance_id; "
        f"take_instance_id('a', group={group!r}, bootstrap='broker:9092'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=False)
    assert ended.returncode == -9
    take("a", group).release()


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder, in which others may write."""
    folder = tmp_path / "shared"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_link_in_place_of_a_lock_is_not_followed(shared: Path, tmp_path: Path, group: str) -> None:
    instance_id = take("a", group)
    (lock,) = (path for path in shared.rglob("*") if path.is_file())
    instance_id.release()
    precious = tmp_path / "precious"
    precious.write_text("kept", encoding="utf-8")
    lock.symlink_to(precious)
    with pytest.raises(WorkerError, match=f"{lock}: the instance ID's lock can't be opened: .* Remove what is there"):
        take("a", group)
    assert precious.read_text(encoding="utf-8") == "kept"


def test_file_system_without_locks_is_one_clear_message(
    shared: Path, monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)  # as NFS without a lock service does
    with pytest.raises(
        WorkerError, match=rf"instance ID a of group {group} can't be taken in {shared}: No locks .*TMPDIR="
    ):
        take("a", group)


def test_temporary_folder_that_is_not_there_is_one_clear_message(shared: Path, group: str) -> None:
    shared.rmdir()
    with pytest.raises(WorkerError, match=r"can't be taken in .*: No such file or directory.*TMPDIR="):
        take("a", group)


def test_locks_lie_in_a_folder_that_only_their_user_enters(shared: Path, group: str) -> None:
    instance_id = take(None, group)
    assert [(path.name, path.stat().st_mode & 0o777) for path in shared.iterdir()] == [
        (f"millstream-{os.getuid()}", 0o700)
    ]
    instance_id.release()


def test_link_in_place_of_the_folder_of_locks_is_refused(shared: Path, tmp_path: Path, group: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (shared / f"millstream-{os.getuid()}").symlink_to(elsewhere)
    with pytest.raises(WorkerError, match=r"millstream-\d+: expected a folder of user \d+ .* found a link .*TMPDIR="):
        take(None, group)
    assert list(elsewhere.iterdir()) == []


def test_folder_of_locks_that_others_may_write_to_is_refused(shared: Path, group: str) -> None:
    folder = shared / f"millstream-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(WorkerError, match=r"found a folder of user .* with mode 777"):
        take(None, group)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make another user's folder")
def test_folder_of_locks_of_another_user_is_refused(shared: Path, group: str) -> None:
    folder = shared / f"millstream-{os.getuid()}"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)
    with pytest.raises(WorkerError, match="found a folder of user 12345 with mode 700"):
        take(None, group)
