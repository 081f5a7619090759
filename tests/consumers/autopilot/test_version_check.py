"""Versions are looked up, fetched and checked in threads, which hold up nothing and keep nothing."""

from __future__ import annotations

import argparse
import threading
from typing import TYPE_CHECKING

import pytest

from millstream.consumers.autopilot.candidate_watch import CandidateWatch
from millstream.consumers.autopilot.version_check import MOST_AGE, MOST_CHECKS, RETRY, VersionCheck
from millstream.consumers.cli.rollout_start import entry_of
from millstream.consumers.errors import PlanError
from millstream.consumers.shadow.compared_classes import compared_classes_of
from millstream.inference.errors import SourceUnavailable
from millstream.inference.sources.file_lock import lock, unlock
from millstream.pipeline.loading import load_pipeline
from tests.broker.clients import wait_until
from tests.inference.models import doubling
from tests.inference.sources.places import in_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.consumers.rollout.changes import Entry
    from millstream.consumers.rollout.record import RolloutRecord
    from millstream.consumers.rollout.steps import Steps
    from millstream.pipeline.pipeline import Pipeline

TEXT = """
name: p
kafka: {{bootstrap: "127.0.0.1:1"}}
input: {{topic: events, format: json}}
output: {{topic: predictions}}
model: {{name: m, version: 1, repository: "{url}", cache: cache}}
rollout: {{strategy: manual}}
"""


class Repository:
    """A remote one with version 1, and other versions that tests add."""

    def __init__(self, folder: Path) -> None:
        self.place = in_memory()
        self.folder = folder
        doubling(folder / "models")
        self.add(1)
        (folder / "pipeline.yaml").write_text(TEXT.format(url=self.place.url))
        self.pipeline: Pipeline = load_pipeline(folder / "pipeline.yaml", {})

    def add(self, version: int, *, config: bytes | None = None) -> None:
        for path in (self.folder / "models" / "m" / "1").iterdir():
            content = config if config is not None and path.name == "config.yaml" else path.read_bytes()
            self.place.put(f"m/{version}/{path.name}", content)

    def check(self, version: int, current: RolloutRecord | None) -> tuple[Steps, Entry]:
        """As autopilot checks it."""
        return entry_of(self.pipeline, current, argparse.Namespace(strategy=None, versions=[version], share=None))

    def in_use(self) -> list[str]:
        """Versions in the cache that a process uses."""
        found = []
        for path in (self.folder / "cache" / "locks").glob("content-*"):
            if (held := lock(path)) is None:
                found.append(path.name)
            else:
                unlock(held)
        return found


def test_version_is_checked_in_a_thread(tmp_path: Path) -> None:
    repository = Repository(tmp_path)
    repository.add(2)
    check = VersionCheck(repository.check)
    assert check.of(2, None) == "version 2 is being fetched and checked"
    wait_until(lambda: not isinstance(check.of(2, None), str), 30, "version 2")
    found = check.of(2, None)
    assert not isinstance(found, str)
    assert (found[1].baseline, found[1].candidates) == (1, (2,))


def test_version_that_was_checked_is_not_kept_in_use(tmp_path: Path) -> None:
    repository = Repository(tmp_path)
    repository.add(2)
    repository.check(2, None)
    assert len(list((tmp_path / "cache" / "content").iterdir())) > 0
    assert repository.in_use() == []


def test_version_whose_classes_were_read_is_not_kept_in_use(tmp_path: Path) -> None:
    repository = Repository(tmp_path)
    comparison = repository.pipeline.comparison.model_copy(update={"task": "multiclass"})
    with pytest.raises(PlanError, match="names none"):
        compared_classes_of(repository.pipeline.model_copy(update={"comparison": comparison}))
    assert repository.in_use() == []


def test_version_that_was_corrected_is_checked_again(tmp_path: Path) -> None:
    now = [0.0]
    repository = Repository(tmp_path)
    repository.add(2, config=b"inputs: [")
    due: list[Callable[[], None]] = []
    check = VersionCheck(repository.check, lambda: now[0], due.append)
    check.of(2, None)
    due.pop()()
    refused = check.of(2, None)
    assert isinstance(refused, str)
    assert refused.startswith("version 2 does not start: ")
    repository.add(2)
    assert check.of(2, None) == refused
    assert due == []
    now[0] += RETRY
    assert check.of(2, None) == refused  # until it is checked
    due.pop()()
    assert not isinstance(check.of(2, None), str)


def test_version_that_was_removed_after_its_check_does_not_start(tmp_path: Path) -> None:
    now, removed = [0.0], list[int]()
    repository = Repository(tmp_path)
    repository.add(2)

    def checked(version: int, current: RolloutRecord | None) -> tuple[Steps, Entry]:
        if version in removed:
            raise SourceUnavailable(f"no {version}.")
        return repository.check(version, current)

    due: list[Callable[[], None]] = []
    check = VersionCheck(checked, lambda: now[0], due.append)
    check.of(2, None)
    due.pop()()
    assert not isinstance(check.of(2, None), str)
    removed.append(2)
    now[0] += RETRY
    assert not isinstance(check.of(2, None), str)  # until it is checked
    due.pop()()
    assert check.of(2, None) == "version 2 does not start: no 2"
    removed.clear()
    now[0] += RETRY
    check.of(2, None)
    due.pop()()
    now[0] += MOST_AGE  # nobody has asked meanwhile
    assert check.of(2, None) == "version 2 is being fetched and checked"


def no_version(version: int, _: RolloutRecord | None) -> tuple[Steps, Entry]:
    raise SourceUnavailable(f"no {version}.")


def test_answer_about_another_version_than_the_newest_one_does_not_count() -> None:
    due: list[Callable[[], None]] = []
    check = VersionCheck(no_version, run=due.append)
    check.of(2, None)
    assert check.of(3, None) == "version 3 is being fetched and checked"
    due.pop(0)()
    assert check.of(3, None) == "version 3 is being fetched and checked"
    due.pop(0)()
    assert check.of(3, None) == "version 3 does not start: no 3"


def test_version_does_not_wait_for_the_check_of_another_one() -> None:
    goes_on = threading.Event()

    def slow(version: int, current: RolloutRecord | None) -> tuple[Steps, Entry]:
        assert version != 2 or goes_on.wait(30)
        return no_version(version, current)

    check = VersionCheck(slow)
    check.of(2, None)
    wait_until(lambda: check.of(3, None) == "version 3 does not start: no 3", 30, "version 3")
    assert check.of(2, None) == "version 2 is being fetched and checked"
    goes_on.set()
    wait_until(lambda: check.of(2, None) == "version 2 does not start: no 2", 30, "version 2")


def test_few_checks_run_at_the_same_time_and_none_twice() -> None:
    due: list[Callable[[], None]] = []
    check = VersionCheck(no_version, run=due.append)
    for version in [*range(2, 2 + MOST_CHECKS), 2, 3]:
        assert check.of(version, None) == f"version {version} is being fetched and checked"
    assert check.of(9, None) == "version 9 waits: the checks of version 2, 3, 4, 5 have not ended yet"
    assert len(due) == MOST_CHECKS
    due.pop()()
    assert check.of(9, None) == "version 9 is being fetched and checked"


def test_version_is_checked_later_if_the_system_starts_no_thread() -> None:
    now, starts = [0.0], iter([False, True])

    def run(check: Callable[[], None]) -> None:
        if not next(starts):
            raise RuntimeError("can't start new thread")
        check()

    check = VersionCheck(no_version, lambda: now[0], run)
    assert check.of(2, None) == "version 2 does not start: it can't be checked: can't start new thread"
    now[0] += RETRY
    assert check.of(2, None) == "version 2 does not start: no 2"


def test_bug_in_a_check_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: object) -> tuple[Steps, Entry]:
        raise ZeroDivisionError("bug")

    check = VersionCheck(broken)
    wait_until(lambda: "unexpected ZeroDivisionError: bug" in str(check.of(2, None)), 30, "the first check")
    wait_until(lambda: "unexpected ZeroDivisionError: bug" in str(check.of(3, None)), 30, "the second check")
    assert "an unexpected error" in caplog.text


def test_repository_that_hangs_does_not_hold_up_the_start() -> None:
    goes_on = threading.Event()

    def slow() -> int:
        assert goes_on.wait(30)
        return 2

    with CandidateWatch(slow, 60) as watch:
        assert (watch.answer.version, watch.answer.problem) == (None, "the model's repository has not answered yet")
        goes_on.set()
        wait_until(lambda: watch.answer.version == 2, 30, "the answer")
        assert watch.answer.problem == ""
