"""A slot belongs to one worker of the machine at a time."""

import os
import subprocess
import sys
import uuid

import pytest

from consumers.errors import SlotTaken
from consumers.slot import Slot, take_slot


def take(name: str | None, group: str) -> Slot:
    return take_slot(name, group=group, bootstrap="broker:9092")


@pytest.fixture
def group() -> str:
    return f"slots-{uuid.uuid4().hex}"


def test_second_worker_with_a_slot_is_told_who_has_it(group: str) -> None:
    first = take("a", group)
    with pytest.raises(SlotTaken, match=rf"slot a of group {group} is taken by process {os.getpid()} on this machine"):
        take("a", group)
    first.release()
    take("a", group).release()


def test_workers_without_a_slot_take_the_next_free_one(group: str) -> None:
    first, second = take(None, group), take(None, group)
    assert (first.name.rpartition("-")[2], second.name.rpartition("-")[2]) == ("0", "1")
    first.release()
    again = take(None, group)
    assert again.name == first.name  # a restarted worker finds its predecessor's
    again.release()
    second.release()


def test_same_name_in_another_group_is_another_slot(group: str) -> None:
    first, second = take("a", group), take("a", f"{group}-2")
    assert first.name != second.name
    first.release()
    second.release()


def test_killed_worker_leaves_its_slot_free(group: str) -> None:
    code = (
        "import os, signal; from consumers.slot import take_slot; "
        f"take_slot('a', group={group!r}, bootstrap='broker:9092'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=False)
    assert ended.returncode == -9
    take("a", group).release()
