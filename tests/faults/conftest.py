"""The length of the fault suite: short with all tests, in full with MILLSTREAM_FAULTS=full."""

from __future__ import annotations

from pathlib import Path

import pytest

ONLY_IN_FULL = (
    # Brokers and networks that die, registries, workers with bugs, and long silences take minutes.
    "test_broker.py",
    "test_checker_catches_bugs.py",
    "test_cluster.py",
    "test_lost_data.py",
    "test_network.py",
    "test_recovery.py",
    "test_registry.py",
    "test_event_that_takes_the_process_down",
    "test_killed_worker_doubles_few_results",
    "test_members_of_the_newer_group_protocol_come_and_go_and_die",
    "test_executor_that_hangs_keeps_the_worker_in_the_group",
    "test_hundreds_of_reloads_leave_memory_and_threads_as_they_were",
    "test_output_topic_deleted_under_the_worker",
    "test_worker_dies_at_each_step_of_an_events_way",
    "test_worker_stopped_with_records_on_their_way_until_they_have_timed_out",
    "test_workers_from_one_to_four_to_two_to_three",
    # The other form of these tests always runs.
    "test_workers_killed_at_random_points[native off]",
    "test_worker_stopped_for_longer_than_its_session_writes_nothing_of_what_has_moved[transaction timed out]",
)
"""Files, tests and forms of tests."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that take long."""
    here = Path(__file__).parent
    for item in items:
        names = {item.path.name, item.name, item.name.partition("[")[0]}
        if item.path.parent == here and not names.isdisjoint(ONLY_IN_FULL):
            item.add_marker("full")
