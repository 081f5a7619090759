"""A connection to Redis that sends many commands at once."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from millstream.inference.errors import FeatureStoreError, FeatureStoreUnavailable

T = TypeVar("T")

TOGETHER = 256  # commands that are sent at once: more save nothing, and their answers take more memory


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Where a Redis server is, and how to log in."""

    url: str  # redis://HOST:PORT/DATABASE, rediss:// with TLS, or unix://PATH; without a password
    timeout: float  # seconds for connecting, and for the answers of each `TOGETHER` commands
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: Path | None = None  # certificate authorities (PEM) to trust in place of the system's


class UnexpectedAnswer(Exception):  # noqa: N818
    """Redis never answers so: a proxy or another program does. Raised by `accept`, see `RedisConnection.ask`."""


class RedisConnection:
    """One connection, opened when it is first needed. One thread uses it.

    It uses redis-py's connection, which logs in and speaks TLS. Its pipelines would take twice the CPU: they pack each argument
    of each command, and keep an object of each command for its answer.
    """

    def __init__(self, address: RedisAddress, place: str) -> None:
        """Args:
        address: of the server.
        place: of the section in the pipeline file, for messages.

        Raises:
            FeatureStoreError: the package `redis` is missing, or the URL is none.
        """
        self._url, self._timeout = address.url, address.timeout
        try:
            self._redis: Any = import_module("redis")
        except ImportError:
            raise FeatureStoreError(
                f"{place}: a feature store of type redis needs the package redis. Install it: pip install 'millstream[redis]'"
            ) from None
        self._connection: Any = _connection(self._redis, address, place)
        self._worked = False  # whether the open connection has answered

    def ask(self, commands: Sequence[bytes], accept: Callable[[Any], T]) -> list[T]:
        """Send commands, and return what `accept` makes of each answer.

        Args:
            commands: in Redis' protocol.
            accept: gets each answer as it comes, which may be anything that Redis' protocol has, or a `WrongType`. It raises
                UnexpectedAnswer.

        Raises:
            FeatureStoreUnavailable: the server can't be reached, doesn't answer in time, refuses commands, or answers otherwise
                than Redis.
        """
        accepted: list[T] = []
        for start in range(0, len(commands), TOGETHER):
            some = commands[start : start + TOGETHER]
            was_open = self._worked
            try:
                accepted += self._ask(some, accept)
            except self._redis.ConnectionError as error:
                # A server closes connections that it thinks are idle, or when it restarts: a new one may work at once.
                if not was_open or isinstance(error, self._redis.TimeoutError | self._redis.AuthenticationError):
                    raise self._unavailable(error) from error
                accepted += self._ask_again(some, accept)
            except (self._redis.RedisError, OSError, UnexpectedAnswer) as error:
                raise self._unavailable(error) from error
        return accepted

    def _ask_again(self, commands: Sequence[bytes], accept: Callable[[Any], T]) -> list[T]:
        try:
            return self._ask(commands, accept)
        except (self._redis.RedisError, OSError, UnexpectedAnswer) as error:
            raise self._unavailable(error) from error

    def _ask(self, commands: Sequence[bytes], accept: Callable[[Any], T]) -> list[T]:
        connection, due = self._connection, time.monotonic() + self._timeout
        accepted: list[T] = []
        complete = False
        try:
            connection.connect()  # does nothing if it is open
            connection.send_packed_command([b"".join(commands)])
            for _ in commands:
                accepted.append(accept(self._answer()))
                if time.monotonic() > due:
                    raise self._redis.TimeoutError(f"no answer to all of {len(commands)} commands in time")
            self._worked = complete = True
        finally:
            if not complete:  # the rest of the answers would be taken for those of the next commands
                self._worked = False
                connection.disconnect()
        return accepted

    def _answer(self) -> Any:
        try:
            return self._connection.read_response(disable_decoding=True)
        except self._redis.ResponseError as error:
            if str(error).startswith("WRONGTYPE"):
                return WrongType()
            raise

    def _unavailable(self, error: Exception) -> FeatureStoreUnavailable:
        said = " ".join(str(error).split()) or type(error).__name__
        if said.startswith(("MOVED", "ASK ")):
            advice = " It is a node of a Redis Cluster. Name a server outside of one, or a proxy of the cluster."
        elif isinstance(error, UnexpectedAnswer):
            advice = " Check that it is Redis, or speaks exactly its protocol."
        elif isinstance(error, self._redis.TimeoutError):
            advice = f" The timeout is {self._timeout * 1000:g} ms (feature_store.timeout)."
        else:
            advice = ""
        return FeatureStoreUnavailable(f"the feature store at {self._url} doesn't answer: {said.rstrip('.')}.{advice}")

    def close(self) -> None:
        """Close it. The next `ask` opens it again."""
        self._worked = False
        self._connection.disconnect()


class WrongType:
    """Redis' answer if a key has a value of another type than the command reads."""


def _connection(redis: Any, address: RedisAddress, place: str) -> Any:
    """redis-py's connection, not open yet."""
    settings: dict[str, Any] = {
        "socket_timeout": address.timeout,
        "socket_connect_timeout": address.timeout,
        "socket_keepalive": True,
        # The caller retries with a back-off that it reports.
        "retry": import_module("redis.retry").Retry(import_module("redis.backoff").NoBackoff(), 0),
        "protocol": 2,
        "client_name": "millstream",
    }
    if address.username is not None:
        settings["username"] = address.username
    if address.password is not None:
        settings["password"] = address.password
    if address.ca is not None:
        settings["ssl_ca_certs"] = str(address.ca)
    if address.url.startswith("unix://"):
        del settings["socket_keepalive"]
    try:
        return redis.ConnectionPool.from_url(address.url, **settings).make_connection()
    except ValueError as error:
        raise FeatureStoreError(f"{place}: {' '.join(str(error).split()).rstrip('.')}. Correct the URL.") from None


def bulk(word: bytes) -> bytes:
    """One word of a command in Redis' protocol. Its length is before it, so it may have any bytes."""
    return b"$%d\r\n%b\r\n" % (len(word), word)
