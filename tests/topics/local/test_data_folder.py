"""Which folders a local broker takes for its data. The broker itself needs Java: see tests/harness/test_broker.py."""

import json
import os
from pathlib import Path

import pytest

from millstream.topics.errors import BrokerError
from millstream.topics.local.data_folder import lock, mark, stored_cluster


def keep(folder: Path, cluster: str) -> Path:
    """A folder as a broker leaves it."""
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "meta.properties").write_text(f"version=1\ncluster.id={cluster}\nnode.id=1\n")
    mark(folder, cluster)
    return folder


def test_missing_folder_is_created_and_keeps_nothing_yet(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    os.close(lock(folder))
    assert stored_cluster(folder) is None


def test_folder_is_one_brokers_until_it_lets_go(tmp_path: Path) -> None:
    first = lock(tmp_path)
    with pytest.raises(BrokerError, match="another broker uses this data folder"):
        lock(tmp_path)
    os.close(first)
    os.close(lock(tmp_path))


def test_message_names_the_process_that_uses_the_folder(tmp_path: Path) -> None:
    folder = keep(tmp_path / "kept", "abc")
    first = lock(folder)
    with pytest.raises(BrokerError, match=rf"uses this data folder: pid {os.getpid()}\. End it, or choose"):
        lock(folder)
    os.close(first)


def test_folder_of_an_earlier_run_names_its_cluster(tmp_path: Path) -> None:
    assert stored_cluster(keep(tmp_path / "kept", "abc")) == "abc"


def test_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").touch()
    with pytest.raises(BrokerError, match=r"expected an empty folder .* found other files"):
        stored_cluster(tmp_path)


def test_a_file_is_no_data_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BrokerError, match="the data folder can't be used: "):
        lock(tmp_path / "file")


def test_data_of_another_version_of_kafka_is_refused(tmp_path: Path) -> None:
    folder = keep(tmp_path / "kept", "abc")
    (folder / "millstream-broker.json").write_text(json.dumps({"cluster_id": "abc", "kafka": "9.9.9"}))
    with pytest.raises(
        BrokerError,
        match=r"of Apache Kafka 9\.9\.9, but .* run the broker with the version of Millstream that wrote it",
    ):
        stored_cluster(folder)


def test_data_of_another_cluster_is_refused(tmp_path: Path) -> None:
    folder = keep(tmp_path / "kept", "abc")
    mark(folder, "def")
    with pytest.raises(BrokerError, match="its data is of another cluster than def"):
        stored_cluster(folder)
