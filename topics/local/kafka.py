"""Apache Kafka as a child process: one node in KRaft combined mode."""

from __future__ import annotations

import atexit
import base64
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from millstream.topics.errors import BrokerError
from millstream.topics.local.child import end, start
from millstream.topics.local.data_folder import lock, mark, stored_cluster
from millstream.topics.local.fetch import log_end
from millstream.topics.local.kafka_jars import kafka_jars
from millstream.topics.local.ports import free_ports, is_listening

if TYPE_CHECKING:
    from types import TracebackType

_READY_TIMEOUT_S = 90.0
_LOOK_INTERVAL_S = 0.05
QUICK_START = ("-XX:TieredStopAtLevel=1",)
"""Options of a Java that runs for seconds: it compiles quickly instead of well, which takes half of the CPU of a start."""


class LocalKafka:
    """A durable broker with data of its own, in a temporary folder or in one that keeps it; a context manager.

    It never outlives the process that started it, nor (on Linux) the thread that did: start it from one that stays.
    """

    heap = "512m"  # most memory of its Java
    java_options: tuple[str, ...] = ()  # more options of it

    def __init__(
        self, cache: Path, port: int | None = None, cluster_id: str | None = None, data: Path | None = None
    ) -> None:
        """Args:
        cache: folder that keeps Kafka's jars.
        port: to listen on; None: a free one.
        cluster_id: None: that of `data`, else a random one.
        data: folder that keeps the broker's data; None: a temporary one, which `stop` deletes.
        """
        self._cache = cache
        self._port, self._controller_port = (port, *free_ports(1)) if port else free_ports(2)
        self._cluster_id = cluster_id or random_uuid()
        self._kept = None if data is None else data.absolute()
        self._lock: int | None = None  # of `data`: a file descriptor
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """`host:port`; it stays the same over a restart."""
        return f"127.0.0.1:{self._port}"

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> Path:
        """The file with its output, once it was launched."""
        assert self._folder is not None
        return self._folder / "broker.log"

    def start(self) -> None:
        """Start the broker, on the data that an earlier start left, and wait until it answers. Raises BrokerError."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start it and go on."""
        jars = kafka_jars(self._cache)
        if self._folder is None:
            stored = None if self._kept is None else self._take(self._kept)
            self._cluster_id = stored or self._cluster_id
            self._folder = self._kept or Path(tempfile.mkdtemp(prefix="millstream-kafka-"))
            atexit.register(self.stop)  # also if the process is interrupted
            self._write_settings(self._folder)
            if stored is None:
                self._format(jars, self._folder)
            mark(self._folder, self._cluster_id)
        java = ["java", *self.java_options, "-Xms256m", f"-Xmx{self.heap}", "-cp", f"{jars}/*"]
        self._process = start([*java, "kafka.Kafka", "server.properties"], self.log, cwd=self._folder)

    def _take(self, folder: Path) -> str | None:
        """Lock the folder that keeps the data, before anything in it changes. Returns the ID of its cluster, if it has one."""
        self._lock = lock(folder)
        try:
            return stored_cluster(folder)
        except BrokerError:
            self.stop()
            raise

    def wait_ready(self) -> None:
        """Wait until it answers. Raises BrokerError."""
        assert self._process is not None
        try:
            self._wait_until_ready(self._process, self.log)
        except BaseException:
            self.stop()
            raise

    def wait(self) -> NoReturn:
        """Wait as long as its process runs. Raises BrokerError: it has ended, though nobody called `stop`."""
        assert self._process is not None
        status = self._process.wait()
        how = f"signal {-status}" if status < 0 else f"status {status}"
        raise BrokerError(
            f"Apache Kafka on {self.bootstrap} has ended ({how}). Start the broker again."
            f"{log_end(self.log, 'Its log ends:')}"
        )

    def kill(self) -> None:
        """End the broker as a crash does (SIGKILL). Its data stays: `start` brings it back."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Shut the broker down in order and start it on the same data and port."""
        self._end(signal.SIGTERM)
        self.start()

    def stop(self) -> None:
        """End the broker, and delete its data unless a folder keeps it."""
        self._end(signal.SIGTERM if self._kept else signal.SIGKILL)  # data that is deleted needs no order
        if self._folder is not None:
            if self._kept is None:
                shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
            atexit.unregister(self.stop)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _settings(self) -> dict[str, object]:
        """Its server.properties."""
        return server_settings(1, self._port, self._controller_port)

    def _write_settings(self, folder: Path) -> None:
        settings = "".join(f"{name}={value}\n" for name, value in self._settings().items())
        (folder / "server.properties").write_text(settings)
        (folder / "broker.log").unlink(missing_ok=True)

    def _format(self, jars: Path, folder: Path) -> None:
        command = ["java", *QUICK_START, "-cp", f"{jars}/*", "kafka.tools.StorageTool", "format"]
        done = subprocess.run(
            [*command, "-t", self._cluster_id, "-c", "server.properties"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            self.stop()
            raise BrokerError(f"Apache Kafka could not format its storage:\n{done.stdout}{done.stderr}")

    def _wait_until_ready(self, process: subprocess.Popen[bytes], log: Path) -> None:
        """Ready means that *our* broker answers: the port may have become another's since it was checked."""
        deadline = time.monotonic() + _READY_TIMEOUT_S
        # A client's connection to an ephemeral port that nobody listens on may become one to itself, and take the port.
        while not is_listening(self._port) and time.monotonic() < deadline and process.poll() is None:
            time.sleep(_LOOK_INTERVAL_S)
        client = AdminClient(
            {"bootstrap.servers": self.bootstrap, "reconnect.backoff.max.ms": 200, "log_level": 0},
        )
        answer = ""
        while time.monotonic() < deadline and process.poll() is None:
            try:
                cluster_id = str(client.list_topics(timeout=1.0).cluster_id)
            except KafkaException as error:
                answer = f" The client says: {error.args[0].str()}."
                continue
            if cluster_id == self._cluster_id:
                return
            answer = f" Another cluster answers there: {cluster_id}."
        state = f"ended with status {process.returncode}"
        if process.poll() is None:
            state = f"not ready within {_READY_TIMEOUT_S:.0f} s. On a busy machine, a second try may help"
        log_text = log.read_text(errors="replace")
        if "Address already in use" in log_text:
            raise BrokerError(
                f"port {self._port} is taken: another program listens there, perhaps a broker. Use that one, end it, or choose "
                "another port: millstream broker --port PORT"
            )
        if "Failed to acquire lock" in log_text:
            raise BrokerError(f"{log.parent}: another broker uses this data folder. End it, or choose another folder.")
        raise BrokerError(
            f"Apache Kafka did not start on {self.bootstrap}: {state}.{answer}{log_end(log, 'Its log ends:')}"
        )

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            end(process, how)


def random_uuid() -> str:
    """A cluster id as Kafka writes them: 16 random bytes in URL-safe base64, no leading dash, no padding."""
    while (text := base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")).startswith("-"):
        pass
    return text


def server_settings(node_id: int, port: int, controller_port: int) -> dict[str, object]:
    """Settings that start fast: few internal partitions, one replica, groups that form at once."""
    return {
        "process.roles": "broker,controller",
        "node.id": node_id,
        "controller.quorum.voters": f"{node_id}@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": "data",
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        # A killed broker may register again only when its old session is over.
        "broker.session.timeout.ms": 4000,
        "broker.heartbeat.interval.ms": 500,
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.num.partitions": 4,
        "log.cleaner.dedupe.buffer.size": 20971520,
    }
