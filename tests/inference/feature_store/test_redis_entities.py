"""Entries in a real Redis server: hashes and JSON objects, and what is wrong with keys, values and the server."""

from __future__ import annotations

import json
import re
import shutil
import socketserver
import subprocess
import time
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.servers.redis_server import MISSING, RedisServer
from millstream.inference.errors import FeatureStoreError, FeatureStoreUnavailable
from millstream.inference.feature_store.key_template import parse_template
from millstream.inference.feature_store.redis_connection import TOGETHER, RedisAddress, RedisConnection
from millstream.inference.feature_store.redis_entities import MAX_BYTES, READERS, RedisEntities
from millstream.inference.times import Time
from millstream.topics.local.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from millstream.inference.feature_store.interface import Entries

TYPES = {"orders": "float64", "city": "string"}
SLOW = 0.2  # seconds


def entities(
    address: str | RedisAddress,
    value: str = "hash",
    types: Mapping[str, str] = TYPES,
    updated: tuple[str, Time] | None = None,
) -> RedisEntities:
    if isinstance(address, str):
        address = RedisAddress(address, timeout=10)
    template = parse_template("customer:{id}", "key")
    return RedisEntities(RedisConnection(address, "p.yaml:1"), template, READERS[value](types, "place"), updated)


def rows(found: Entries) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_list() for column in found.table.columns.values()), strict=True))


def test_hashes_are_read_in_the_order_of_their_keys(redis_server: RedisServer) -> None:
    redis_server.put({f"customer:{n}": {"orders": n, "city": f"é{n}", "other": "x" * 100} for n in range(3 * TOGETHER)})
    numbers = [*range(3 * TOGETHER - 1, -1, -1), 5]
    found = entities(redis_server.url).read([b"customer:%d" % n for n in numbers])
    assert rows(found) == [(float(n), f"é{n}") for n in numbers]
    assert found.is_there.all()
    assert (found.wrong, found.updated) == ({}, None)


def test_json_objects_are_read_by_paths(redis_server: RedisServer) -> None:
    document = {"stats": {"orders": 3}, "tags": ["a", "b"], "other": [{}]}
    redis_server.client().set("customer:1", json.dumps(document))
    types = {"stats.orders": "int64", "tags[]": "string", "tags[-1]": "string"}
    found = entities(redis_server.url, "json", types).read([b"customer:1", b"customer:2", None])
    assert rows(found) == [(3, ["a", "b"], "b"), (None, None, None), (None, None, None)]
    assert found.is_there.tolist() == [True, False, False]


def test_missing_key_missing_field_and_empty_text_differ(redis_server: RedisServer) -> None:
    redis_server.put({"customer:1": {"city": ""}, "customer:2": {"other": 1}})
    found = entities(redis_server.url).read([b"customer:1", b"customer:2", b"customer:3", None])
    assert rows(found) == [(None, ""), (None, None), (None, None), (None, None)]
    assert found.is_there.tolist() == [True, False, False, False]


def test_wrong_entries_are_told_and_their_neighbours_are_read(redis_server: RedisServer) -> None:
    redis_server.put({"customer:1": {"orders": 1}, "customer:3": {"orders": "many"}, "customer:4": {"orders": 4}})
    redis_server.client().set("customer:2", "text")
    found = entities(redis_server.url).read([b"customer:%d" % n for n in range(1, 5)])
    assert [rows(found)[row][0] for row in (0, 3)] == [1.0, 4.0]
    assert found.wrong == {
        1: "the entry 'customer:2' isn't a hash in Redis (`value: hash`)",
        2: "the entry 'customer:3' can't be read: field `orders`: expected text with a number, such as 33.5 (as in JSON: no "
        "leading zeros, no plus sign, and not too large for a double), found 'many'",
    }


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"not JSON", "the entry 'customer:1' can't be read: "),
        (b"[1]", "the entry 'customer:1' can't be read: "),
        (b'{"orders": "many"}', "the entry 'customer:1' can't be read: orders: expected a number"),
        (b"", "the entry 'customer:1' can't be read: "),
        (b"\xff", "the entry 'customer:1' can't be read: "),
        (b" " * (MAX_BYTES + 1), "the entry 'customer:1' has 1,048,577 bytes, more than the limit of 1,048,576"),
    ],
)
def test_wrong_document_is_told_and_its_neighbours_are_read(redis_server: RedisServer, value: bytes, says: str) -> None:
    redis_server.client().mset({"customer:0": b'{"orders": 7}', "customer:1": value})
    redis_server.put({"customer:2": {"orders": 1}})
    found = entities(redis_server.url, "json").read([b"customer:1", b"customer:0", b"customer:2"])
    assert rows(found)[1] == (7.0, None)
    assert found.wrong[0].startswith(says)
    assert found.wrong[2] == "the entry 'customer:2' isn't a string in Redis with a JSON object (`value: json`)"
    assert 1 not in found.wrong


def test_contradicting_paths_are_told_in_one_sentence_with_one_full_stop() -> None:
    with pytest.raises(FeatureStoreError, match=r"^p\.yaml:1: paths `a` and `a\.b`: .*\w\.$"):
        READERS["json"]({"a": "string", "a.b": "int64"}, "p.yaml:1")


def test_huge_value_of_a_hash_is_refused(redis_server: RedisServer) -> None:
    redis_server.put({"customer:1": {"orders": 1, "city": "x" * (MAX_BYTES + 1)}, "customer:2": {"orders": 2}})
    found = entities(redis_server.url).read([b"customer:1", b"customer:2"])
    assert found.wrong == {0: "the entry 'customer:1' has 1,048,578 bytes, more than the limit of 1,048,576"}
    assert rows(found)[1] == (2.0, None)


@pytest.mark.parametrize(
    "value", [b"\r\nFLUSHALL\r\n", b"\0", b"*3\r\n$3\r\nSET\r\n", b"{customer}", b"\xff\xfe", b"k" * 900_000, b"* ?[a]"]
)
def test_hostile_key_is_a_key_like_any_other(redis_server: RedisServer, value: bytes) -> None:
    key = b"customer:" + value
    client = redis_server.client()
    client.hset(key, mapping={"orders": 5})
    client.hset("customer:1", mapping={"orders": 1})
    found = entities(redis_server.url).read([b"customer:1", key, key + b"x"])
    assert [row[0] for row in rows(found)] == [1.0, 5.0, None]
    assert client.dbsize() == 2


def test_time_of_an_entry_is_read(redis_server: RedisServer) -> None:
    redis_server.put({"customer:1": {"at": 1000}, "customer:2": {"orders": 1}, "customer:3": {"at": "soon"}})
    form = Time("milliseconds", "epoch", whole=False)
    found = entities(redis_server.url, types={"orders": "float64", "at": "float64"}, updated=("at", form)).read(
        [b"customer:1", b"customer:2", b"customer:3"]
    )
    assert found.updated is not None
    assert found.updated[0] == 1.0
    assert found.updated[1] != found.updated[1]  # NaN
    assert list(found.wrong) == [2]


def test_keys_that_are_all_none_need_no_server() -> None:
    pytest.importorskip("redis")
    assert rows(entities("redis://127.0.0.1:1/0").read([None])) == [(None, None)]


def test_server_that_is_down_is_unavailable_and_works_again_once_it_is_back(redis_server: RedisServer) -> None:
    redis_server.put({"customer:1": {"orders": 1}})
    store = entities(redis_server.url)
    assert rows(store.read([b"customer:1"])) == [(1.0, None)]
    redis_server.kill()
    for _ in range(2):
        with pytest.raises(
            FeatureStoreUnavailable, match=rf"the feature store at {redis_server.url} doesn't answer: .+"
        ):
            store.read([b"customer:1"])
    redis_server.start()
    redis_server.put({"customer:1": {"orders": 2}})
    assert rows(store.read([b"customer:1"])) == [(2.0, None)]


def test_connection_that_the_server_closed_is_opened_again_at_once(redis_server: RedisServer) -> None:
    redis_server.put({"customer:1": {"orders": 1}})
    store = entities(redis_server.url)
    store.read([b"customer:1"])
    redis_server.client().client_kill_filter(_type="normal", skipme=True)
    assert rows(store.read([b"customer:1"])) == [(1.0, None)]


def test_frozen_server_times_out_and_its_late_answers_are_not_taken_for_others(redis_server: RedisServer) -> None:
    redis_server.put({"customer:1": {"orders": 1}, "customer:2": {"orders": 2}})
    store = entities(RedisAddress(redis_server.url, timeout=SLOW))
    store.read([b"customer:1"])
    redis_server.freeze()
    began = time.monotonic()
    with pytest.raises(FeatureStoreUnavailable, match=r"The timeout is 200 ms \(feature_store.timeout\)\."):
        store.read([b"customer:1"])
    assert time.monotonic() - began >= SLOW
    redis_server.thaw()
    assert rows(entities(redis_server.url).read([b"customer:2"])) == [(2.0, None)]  # it answers again
    assert rows(store.read([b"customer:2"])) == [(2.0, None)]


def test_slow_server_times_out(redis_server: RedisServer) -> None:
    store = entities(RedisAddress(redis_server.url, timeout=SLOW))
    store.read([b"customer:1"])
    redis_server.client().client_pause(2000)
    with pytest.raises(FeatureStoreUnavailable, match="The timeout is 200 ms"):
        store.read([b"customer:1"])
    assert rows(entities(redis_server.url).read([b"customer:1"])) == [(None, None)]  # it answers again
    assert rows(store.read([b"customer:1"])) == [(None, None)]


def test_tls_checks_the_servers_certificate(tmp_path: Path) -> None:
    pytest.importorskip("redis")
    if MISSING is not None or shutil.which("openssl") is None:
        pytest.skip(MISSING or "needs openssl: apt-get install --no-install-recommends openssl")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(certificate), "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(["openssl", "req", "-x509", *made, *names], check=True, capture_output=True)
    (port,) = free_ports(1)
    tls = [
        "--tls-port",
        str(port),
        "--tls-cert-file",
        str(certificate),
        "--tls-key-file",
        str(key),
        "--tls-auth-clients",
        "no",
    ]
    with RedisServer(*tls) as server:
        server.put({"customer:1": {"orders": 1}})
        url = f"rediss://127.0.0.1:{port}/0"
        assert rows(entities(RedisAddress(url, 10, ca=certificate)).read([b"customer:1"])) == [(1.0, None)]
        with pytest.raises(FeatureStoreUnavailable, match="certificate verify failed"):
            entities(url).read([b"customer:1"])


def test_wrong_password_and_missing_permission_are_outages_that_say_so() -> None:
    pytest.importorskip("redis")
    with _protected() as server:
        url = server.url
        with pytest.raises(FeatureStoreUnavailable, match="Authentication required"):
            entities(url).read([b"customer:1"])
        with pytest.raises(FeatureStoreUnavailable, match="invalid username-password pair") as wrong:
            entities(RedisAddress(url, 10, password="guess")).read([b"customer:1"])
        assert "guess" not in str(wrong.value)
        reader = RedisAddress(url, 10, username="reader", password="read")
        assert rows(entities(reader).read([b"customer:1"])) == [(None, None)]
        assert entities(reader).check() == "keys 'customer:' and the like can be read"
        with pytest.raises(FeatureStoreUnavailable, match="no permissions"):
            entities(reader, "json").check()
        assert "read" not in repr(reader).replace("reader", "")


def _protected() -> RedisServer:
    if MISSING is not None:
        pytest.skip(MISSING)
    user = "reader on >read ~customer:* -@all +hmget +hello +auth +client +select"
    return RedisServer("--requirepass", "secret", "--user", *user.split())


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """The URL of a server that gives this answer to each command but those of the log-in."""

    class Connection(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while line := self.rfile.readline():
                words = [self.rfile.read(int(self.rfile.readline()[1:]) + 2) for _ in range(int(line[1:]))]
                self.wfile.write(answer if words[0].strip() in {b"GET", b"HMGET"} else b"+OK\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connection) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"redis://127.0.0.1:{server.server_address[1]}/0"
        server.shutdown()


@pytest.mark.parametrize(
    ("value", "answer", "says"),
    [
        ("hash", b":5\r\n", "HMGET with 2 fields got a value of type int"),
        ("hash", b"+OK\r\n", "HMGET with 2 fields got a value of type bytes"),
        ("hash", b"$-1\r\n", "HMGET with 2 fields got nothing"),
        ("hash", b"*1\r\n$1\r\n1\r\n", "HMGET with 2 fields got a list of 1"),
        ("hash", b"*3\r\n$-1\r\n$-1\r\n$-1\r\n", "HMGET with 2 fields got a list of 3"),
        ("hash", b"*2\r\n:1\r\n$1\r\n1\r\n", "HMGET with 2 fields got a list of 2 (bytes, int)"),
        ("hash", b"*2\r\n*0\r\n$-1\r\n", "HMGET with 2 fields got a list of 2 (NoneType, list)"),
        ("hash", b"$x\r\n", "doesn't answer"),
        ("hash", b":x\r\n", "doesn't answer"),
        ("hash", 5000 * b"*1\r\n", "doesn't answer"),
        ("json", b":5\r\n", "GET got a value of type int"),
        ("json", b"*0\r\n", "GET got a list of 0"),
    ],
)
def test_answer_that_redis_never_gives_is_an_outage(value: str, answer: bytes, says: str) -> None:
    with answering(answer) as url:
        asked = entities(url, value)
        with pytest.raises(FeatureStoreUnavailable, match=re.escape(says)):
            asked.read([b"customer:1", b"customer:2"])
        asked.close()


@pytest.mark.parametrize("url", ["http://a", "redis://127.0.0.1:x"])
def test_url_that_is_none_is_one_message(url: str) -> None:
    pytest.importorskip("redis")
    with pytest.raises(FeatureStoreError, match=r"p.yaml:1: .+ Correct the URL\."):
        entities(url)
