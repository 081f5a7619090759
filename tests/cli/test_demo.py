import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.broker.choice import Broker
from tests.broker.clients import wait_until
from tests.cli.command import COMMAND, ENVIRON, millstream

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """The demo with one model version, far from its end; its temporary files are in `folder`."""
    command = [COMMAND, "demo", "--plain", "--model-version", "1", "--events", "1000000", *arguments]
    demo = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**ENVIRON, "TMPDIR": str(folder)}
    )
    with demo:
        try:
            yield demo
        finally:
            demo.kill()


def workers_of(demo: "subprocess.Popen[str]") -> dict[int, str]:
    """Processes below the demo that are not zombies: pid -> when each started, so that a pid used again is another."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent, *rest = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        if int(parent) == demo.pid and state != "Z":
            found[int(folder.name)] = rest[17]
    return found


def alive(workers: dict[int, str]) -> bool:
    for pid, started in workers.items():
        try:
            state, _, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if state != "Z" and rest[17] == started:
            return True
    return False


def wait_for_events(demo: "subprocess.Popen[str]") -> None:
    assert demo.stdout is not None
    for line in demo.stdout:
        if "lag" in line:
            return
    assert demo.stderr is not None
    pytest.fail(f"the demo ended early: {demo.stderr.read()}")


def test_events_of_both_versions_add_up() -> None:
    done = millstream("demo", "--events", "2000", "--plain", "--rate", "0")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "Version 1  1,992 predictions + 8 dead letters = 2,000 of 2,000 events: adds up\n" in done.stdout
    assert "Version 2  1,990 predictions + 10 dead letters = 2,000 of 2,000 events: adds up\n" in done.stdout
    assert "undecodable 6, unfit 2, unknown_schema 2" in done.stdout
    areas = [float(area) for area in re.findall(r"AUC (\d\.\d+)", done.stdout)]
    assert len(areas) == 2
    assert 0.6 < areas[0] < areas[1] < 1


@needs_proc
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.full)])
def test_signal_drains_sums_up_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path) as demo:
        wait_for_events(demo)
        workers = workers_of(demo)
        assert len(workers) == 1
        demo.send_signal(number)
        out, err = demo.communicate(timeout=60)
        assert (demo.returncode, err) == (0, "")
        assert re.search(r"= ([\d,]+) of \1 events: adds up", out)
        assert not alive(workers)
        assert not list(tmp_path.glob("millstream-demo-*"))


@needs_proc
@pytest.mark.full
def test_signal_while_workers_start_leaves_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as demo:
        wait_until(lambda: bool(workers_of(demo)), 30, "a worker")
        workers = workers_of(demo)
        demo.send_signal(signal.SIGTERM)
        out, _ = demo.communicate(timeout=60)
        assert demo.returncode == 0
        assert out.endswith("Stopped before the first event.\n")
        assert not alive(workers)
        assert not list(tmp_path.glob("millstream-demo-*"))


@needs_proc
def test_killed_demo_takes_its_workers_along(tmp_path: Path) -> None:
    with running(tmp_path, "--workers", "2") as demo:
        wait_until(lambda: len(workers_of(demo)) == 2, 30, "two workers")
        workers = workers_of(demo)
        demo.kill()
        demo.wait()
        wait_until(lambda: not alive(workers), 10, "the workers' end")


@needs_proc
def test_dead_worker_ends_the_demo_with_its_log(tmp_path: Path) -> None:
    with running(tmp_path) as demo:
        wait_for_events(demo)
        (worker,) = workers_of(demo)
        os.kill(worker, signal.SIGKILL)
        _, err = demo.communicate(timeout=60)
        assert demo.returncode == 1
        assert f"the worker of version 1 (pid {worker}) ended with status -9. Its log ends:\n" in err
        assert "millstream.consumers.worker.worker: ready" in err
        assert "Traceback" not in err


@pytest.mark.durable
def test_real_broker_is_left_as_it_was(kafka: Broker) -> None:
    def topics() -> set[str]:
        return set(AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=10).topics)

    arguments = ("--events", "500", "--rate", "0", "--plain", "--model-version", "2")
    done = millstream("demo", *arguments, "--bootstrap", kafka.bootstrap)
    assert done.returncode == 0, done.stderr
    assert "= 500 of 500 events: adds up" in done.stdout
    wait_until(lambda: not any(topic.startswith("demo-") for topic in topics()), 10, "the demo's topics to be gone")


@pytest.mark.full
def test_broker_that_is_away_is_one_clear_message() -> None:
    done = millstream("demo", "--bootstrap", "127.0.0.1:9", "--plain")
    assert done.returncode == 1
    assert "no Kafka broker answers at 127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["--rate", "-1"], ["--workers", "5"]])
def test_impossible_option_is_wrong_use(arguments: list[str]) -> None:
    assert millstream("demo", *arguments).returncode == 2


@pytest.mark.durable
def test_shadow_is_judged_by_the_comparison_job(kafka: Broker) -> None:
    load = ("--events", "3000", "--rate", "1500")
    done = millstream("demo", "--shadow", *load, "--bootstrap", kafka.bootstrap, timeout=300)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    areas = [float(area) for area in re.findall(r"AUC (\d\.\d+) by the comparison job", done.stdout)]
    assert len(areas) == 2
    assert 0.5 < areas[0] < areas[1] < 1


@pytest.mark.full
def test_reload_shows_the_switch_and_a_higher_auc() -> None:
    done = millstream("demo", "--reload", "--events", "4000", "--rate", "1000", "--workers", "2", timeout=300)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "--> version 2 is in the repository now." in done.stdout
    assert "--> version 2 answers, " in done.stdout
    assert "4,000 predictions for 4,000 events: " in done.stdout
    assert done.stdout.endswith("No event was lost, and the AUC went up.\n")
    areas = [float(area) for area in re.findall(r"^  version \d: AUC (\d\.\d+)", done.stdout, re.MULTILINE)]
    assert 0.5 < areas[0] < areas[1] < 1


def test_more_workers_than_partitions_find_no_work_in_the_reload_either() -> None:
    assert millstream("demo", "--reload", "--workers", "5").returncode == 2


@pytest.mark.full
@pytest.mark.durable
def test_rollout_promotes_the_better_version_and_rolls_the_broken_one_back(kafka: Broker) -> None:
    done = millstream("demo", "--rollout", "--rate", "600", "--bootstrap", kafka.bootstrap, timeout=500)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "departures, each with one prediction, of the version that it names" in done.stdout
    actions = re.findall(r"^ *[\d.]+ s  (\w+) by autopilot: ", done.stdout, re.MULTILINE)
    assert actions == ["start", "step", "watch", "promote", "start", "rollback"]
    assert re.search(r"rollback by autopilot: .*accuracy is too bad", done.stdout)
    assert re.findall(r"^(yes|NO) ", done.stdout, re.MULTILINE) == ["yes"] * 5
    caught = re.search(r"version 3 answered ([\d,]+) events, [\d.]+% of all", done.stdout)
    assert caught is not None
    assert int(caught[1].replace(",", "")) > 0


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        ([], 1, "The demo with a rollout needs a real broker"),
        (["--bootstrap", "127.0.0.1:9", "--rate", "0"], 2, "--rate 0: a rollout takes its time"),
        pytest.param(
            ["--bootstrap", "127.0.0.1:9"], 1, "no Kafka broker answers at 127.0.0.1:9", marks=pytest.mark.full
        ),
    ],
)
def test_rollout_that_can_not_be_shown_says_why(arguments: list[str], status: int, says: str) -> None:
    done = millstream("demo", "--rollout", *arguments)
    assert done.returncode == status
    assert says in done.stderr
    assert "Traceback" not in done.stderr
