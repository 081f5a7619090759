"""A worker whose model is on a real Triton, on a real broker: every event has one result, whatever the server does."""

from __future__ import annotations

import json
import signal
from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from millstream.consumers.cli import main as cli
from millstream.consumers.errors import NEEDS_CHANGE
from millstream.consumers.observability import metrics as m
from tests.broker.clients import wait_until
from tests.consumers.processes import Worker
from tests.consumers.python_service import CONFIG, answered, send
from tests.consumers.remote_service import POISON, negating_triton, remote_service
from tests.consumers.service import value_of
from tests.inference.executors.remote_models import missing_for_triton

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from benchmarks.servers.triton_server import Triton
    from tests.broker.choice import Broker
    from tests.consumers.service import Service

pytestmark = pytest.mark.durable
SMALL: dict[str, Any] = {"batch": {"max_events": 16, "max_wait": "1ms"}, "limits": {"in_flight_events": 1000}}


@pytest.fixture(autouse=True)
def needs_triton() -> None:
    if (missing := missing_for_triton()) is not None:
        pytest.skip(missing)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    """A server that no test disturbs."""
    if (missing := missing_for_triton()) is not None:
        pytest.skip(missing)
    with negating_triton(tmp_path_factory.mktemp("triton")) as triton:
        yield triton.start()


def server_of(triton: Triton, **options: object) -> str:
    return json.dumps({"urls": [triton.grpc], "timeout": "2s", **options})


def assert_exactly_once(service: Service, numbers: Iterable[int]) -> None:
    """Each event has one prediction, or one dead letter if it is poison, and nothing is left to read."""
    rejected = [letter.reason for letter in service.dead_letters()]
    expected = Counter(f"e{number}" for number in numbers if number != POISON)
    assert Counter(answered(service)) == expected
    assert rejected == ["model_rejected"] * sum(number == POISON for number in numbers)
    for message in service.predictions():
        found = json.loads(value_of(message))
        assert (found["model"], found["version"]) == ("number", 1)
        assert found["outputs"] == {"y": -float(found["event_id"][1:])}
    assert service.committed() == service.input_ends()


@pytest.mark.parametrize(
    ("how", "protocol"),
    [
        ("killed", "grpc"),
        pytest.param("hangs", "http", marks=pytest.mark.full),
        pytest.param("killed", "http", marks=pytest.mark.full),
        pytest.param("hangs", "grpc", marks=pytest.mark.full),
    ],
)
def test_server_that_is_killed_or_hangs_in_the_middle_costs_nothing_but_time(
    kafka: Broker, tmp_path: Path, protocol: str, how: str
) -> None:
    with negating_triton(tmp_path / "triton") as triton:
        triton.start()
        url = triton.grpc if protocol == "grpc" else triton.http
        service = remote_service(tmp_path, kafka, server_of(triton, urls=[url]), delivery="exactly_once", **SMALL)
        send(service, range(3000))
        with Worker(service.file) as worker:
            worker.wait_ready()
            service.wait_written(500)
            flag = tmp_path / "triton" / "number" / "1" / "hangs"
            triton.kill() if how == "killed" else flag.touch()
            send(service, range(3000, 6000))
            worker.wait_for(lambda: worker.get("/ready")[0] == 503, 30, "not ready")
            worker.wait_for(lambda: m.BLOCKED.name in worker.metrics(), 30, "blocked")
            assert worker.get("/live")[0] == 200
            if how == "killed":
                triton.start()
            else:
                flag.unlink()
            worker.wait_ready()
            service.wait_committed(60)
            assert worker.stop() == 0
            assert worker.log.count("executor: works again") == 1
        assert_exactly_once(service, range(6000))


def test_poison_row_is_found_and_a_slow_server_is_sent_no_more_than_it_takes(kafka: Broker, tmp_path: Path) -> None:
    with negating_triton(tmp_path / "triton") as triton:
        triton.start()
        (tmp_path / "triton" / "number" / "1" / "slow").write_text("0.01")
        # Batches are larger than what the server's model takes at once.
        service = remote_service(tmp_path, kafka, server_of(triton), batch={"max_events": 200, "max_wait": "5ms"})
        send(service, range(2000))
        with Worker(service.file, "--until-idle") as worker:
            assert worker.wait(120) == 0
            assert "poison row" in service.dead_letters()[0].error
        assert_exactly_once(service, range(2000))


@pytest.mark.full
def test_worker_waits_for_a_server_that_is_away_at_its_start(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with negating_triton(tmp_path / "triton") as triton:
        service = remote_service(tmp_path, kafka, server_of(triton))
        send(service, range(100))
        assert cli.run(["check", str(service.file)]) == 1
        assert "UNAVAILABLE" in capsys.readouterr().err
        with Worker(service.file) as worker:
            worker.wait_for(lambda: "UNAVAILABLE" in worker.get("/ready")[1], 30, "waiting")
            assert worker.get("/ready")[0] == 503
            assert service.predictions() == []
            triton.start()
            worker.wait_ready()
            service.wait_committed()
            assert worker.stop() == 0
        assert cli.run(["check", str(service.file)]) == 0
        assert_exactly_once(service, range(100))


@pytest.mark.full
def test_model_that_is_unloaded_and_loaded_anew_is_waited_for(kafka: Broker, tmp_path: Path) -> None:
    with negating_triton(tmp_path / "triton", "--model-control-mode=explicit", "--load-model=number") as triton:
        triton.start()
        service = remote_service(tmp_path, kafka, server_of(triton), delivery="exactly_once", **SMALL)
        with Worker(service.file) as worker:
            worker.wait_ready()
            send(service, range(500))
            service.wait_written(500)
            triton.post("/v2/repository/models/number/unload")
            wait_until(lambda: not triton.answers("/v2/models/number/ready"), 20, "the model to be unloaded")
            send(service, range(500, 1000))
            worker.wait_for(lambda: worker.get("/ready")[0] == 503, 30, "not ready")
            triton.post("/v2/repository/models/number/load")
            worker.wait_ready()
            service.wait_committed()
            assert worker.stop() == 0
        assert_exactly_once(service, range(1000))


@pytest.mark.parametrize(
    ("server", "config", "code", "said"),
    [
        (
            {},
            CONFIG.replace("float64", "float32"),
            NEEDS_CHANGE,
            "tensor `x` is FP64 in model number version 1 on grpc://",
        ),
        (
            {},
            CONFIG.replace("shape: [1]", "shape: [2]").replace("[x]", "[x, x]"),
            NEEDS_CHANGE,
            "tensor `x` has shape [-1, 1]",
        ),
        (
            {},
            CONFIG.replace("tensor: y", "tensor: z"),
            NEEDS_CHANGE,
            "names the output `z`, but the outputs of model number",
        ),
        ({"version": "2"}, CONFIG, NEEDS_CHANGE, "server.version: expected '1', the number of the version's folder"),
    ],
)
def test_config_that_does_not_fit_the_servers_model_ends_the_worker_with_a_message(
    kafka: Broker, tmp_path: Path, shared: Triton, server: dict[str, str], config: str, code: int, said: str
) -> None:
    service = remote_service(tmp_path, kafka, server_of(shared, **server), config=config)
    with Worker(service.file) as worker:
        assert worker.wait() == code
        assert said in worker.log
        assert "Traceback" not in worker.log


def test_model_that_the_server_does_not_have_is_waited_for(kafka: Broker, tmp_path: Path, shared: Triton) -> None:
    service = remote_service(tmp_path, kafka, server_of(shared, model="other"))
    with Worker(service.file) as worker:
        worker.wait_for(lambda: "model other version 1 on grpc://" in worker.get("/ready")[1], 30, "waiting")
        assert worker.stop(signal.SIGTERM) == 0


@pytest.mark.full
def test_several_servers_one_of_which_is_killed(kafka: Broker, tmp_path: Path) -> None:
    with negating_triton(tmp_path / "a") as first, negating_triton(tmp_path / "b") as second:
        first.start()
        second.start()
        server = server_of(first, urls=[first.grpc, second.grpc])
        service = remote_service(tmp_path, kafka, server, delivery="exactly_once", **SMALL)
        send(service, range(2000))
        with Worker(service.file) as worker:
            worker.wait_ready()
            service.wait_written(300)
            first.kill()
            send(service, range(2000, 3000))
            service.wait_committed(60)
            assert f"{first.grpc} gets no more requests until it works again" in worker.log
            first.start()
            worker.wait_for(lambda: f"{first.grpc} works again" in worker.log, 30, "using both again")
            second.kill()
            send(service, range(3000, 4000))
            service.wait_committed(60)
            assert worker.stop() == 0
        assert_exactly_once(service, range(4000))


@pytest.mark.full
def test_quota_holds_for_all_workers_together_while_they_come_and_go(kafka: Broker, tmp_path: Path) -> None:
    per_second = burst = 40
    with negating_triton(tmp_path / "triton") as triton:
        triton.start()
        options = {"requests_per_minute": 60 * per_second, "concurrency": 8}
        service = remote_service(tmp_path, kafka, server_of(triton, **options), batch={"max_events": 1})
        numbers = [1000 * partition + number for partition in range(1, 5) for number in range(300)]
        for partition in range(1, 5):
            send(service, numbers[300 * (partition - 1) : 300 * partition], partition=partition - 1)
        with Worker(service.file) as killed, Worker(service.file) as stays:
            killed.wait_ready()
            stays.wait_ready()
            service.wait_written(200)
            with Worker(service.file) as third:
                third.wait_ready()
                service.wait_written(400)
                assert third.stop() == 0
            killed.send(signal.SIGKILL)
            service.wait_written(600)
            with Worker(service.file) as fourth:
                service.wait_committed(180)
                assert fourth.stop() == 0
            assert stays.stop() == 0
        assert set(answered(service)) == {f"e{number}" for number in numbers}
        times = sorted(map(float, (tmp_path / "triton" / "number" / "1" / "times").read_text().split()))
    assert len(times) >= len(numbers)
    # On its way to the server, a request may take some time. So some arrive closer together than they were sent.
    late = 0.25 * per_second
    for first, begin in enumerate(times):
        for width in (1.0, 5.0, 20.0):
            sent = bisect_right(times, begin + width) - first
            assert sent <= per_second * width + burst + late, f"{sent} requests in {width} s"
