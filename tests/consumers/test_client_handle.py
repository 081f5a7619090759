"""Native Kafka code runs with versions of confluent-kafka that are known; with others the worker says so, and does without."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka
import pytest
from confluent_kafka import Consumer, Producer

from millstream.consumers.client_handle import TESTED_VERSIONS, handle_of, refusal, report_native
from millstream.schemas.native import VARIABLE, Native, choose_native, native
from tests.native import with_native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
ADD_IT = "Run the tests with MILLSTREAM_NATIVE=try and add the version, as docs/native.md says."
REPORTED = "records are read and written one by one: the same results for more CPU. "


@pytest.fixture(autouse=True)
def _on(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.INFO)
    with with_native(on=True):
        yield


def be(monkeypatch: pytest.MonkeyPatch, version: str, librdkafka: str) -> None:
    monkeypatch.setattr(confluent_kafka, "__version__", version)
    monkeypatch.setattr(confluent_kafka, "libversion", lambda: (librdkafka, 0))


@pytest.mark.skipif(native() is Native.TRY, reason="a new version is tried")
def test_installed_version_is_known(caplog: pytest.LogCaptureFixture) -> None:
    assert refusal() is None, ADD_IT
    report_native()
    assert caplog.messages == []


@pytest.mark.parametrize("page", ["demo", "comparison", "kserve", "dev"])
def test_pinned_version_is_known(page: str) -> None:
    [version] = re.findall(r"^confluent-kafka==(\S+)", (ROOT / f"requirements/{page}.txt").read_text(), re.MULTILINE)
    assert version in TESTED_VERSIONS, ADD_IT


def test_page_lists_the_known_versions() -> None:
    page = (ROOT / "docs/native.md").read_text(encoding="utf-8")
    assert dict(re.findall(r"^\| ([\d.]+) \| ([\d.]+) \| passed \|$", page, re.MULTILINE)) == TESTED_VERSIONS


@pytest.mark.parametrize(("version", "librdkafka"), TESTED_VERSIONS.items())
def test_known_versions_are_used(monkeypatch: pytest.MonkeyPatch, version: str, librdkafka: str) -> None:
    be(monkeypatch, version, librdkafka)
    choose_native({VARIABLE: "on"})
    assert refusal() is None


@pytest.mark.parametrize(
    ("version", "librdkafka"),
    [("2.99.0", "2.99.0"), ("2.16.0", "2.3.0")],
    ids=["newer", "built with the system's librdkafka"],
)
def test_unknown_version_is_reported_in_one_line_and_left_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, version: str, librdkafka: str
) -> None:
    be(monkeypatch, version, librdkafka)
    choose_native({VARIABLE: "on"})
    error_cb = print
    producer = Producer({"error_cb": error_cb})
    with pytest.raises(LookupError, match=f"not tested with confluent-kafka {version} with librdkafka {librdkafka}"):
        handle_of(producer, error_cb)
    report_native()
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        f"{REPORTED}Millstream's native Kafka code was not tested with confluent-kafka {version} with librdkafka {librdkafka}, "
        f"only with {', '.join(TESTED_VERSIONS)}. To try it all the same, set MILLSTREAM_NATIVE=try (`millstream docs native`)."
    )


def test_unknown_version_can_be_tried(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    be(monkeypatch, "2.99.0", "2.99.1")
    choose_native({VARIABLE: "try"})
    error_cb = print
    assert handle_of(Producer({"error_cb": error_cb}), error_cb)[0] is not None
    report_native()
    assert caplog.messages == [
        "MILLSTREAM_NATIVE=try: the native Kafka code runs with confluent-kafka 2.99.0 with librdkafka 2.99.1, untested"
    ]


def test_off_is_reported_and_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    choose_native({VARIABLE: "off"})
    report_native()
    [record] = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.INFO, f"{REPORTED}MILLSTREAM_NATIVE=off.")


@pytest.mark.parametrize("choice", [Native.ON, Native.TRY])
@pytest.mark.parametrize(
    ("name", "replace"),
    [
        ("pypy", lambda patch: patch.setattr(sys.implementation, "name", "pypy")),
        ("free-threaded", lambda patch: patch.setattr("sysconfig.get_config_var", lambda _name: 1)),
    ],
    ids=["PyPy", "free-threaded"],
)
def test_other_python_is_left_alone_whatever_is_chosen(
    monkeypatch: pytest.MonkeyPatch, choice: Native, name: str, replace: Callable[[pytest.MonkeyPatch], None]
) -> None:
    replace(monkeypatch)
    choose_native({VARIABLE: choice})
    assert f"Python is {'a ' if name == 'free-threaded' else ''}{name}" in str(refusal())


@pytest.mark.parametrize("kind", [Consumer, Producer])
def test_client_that_keeps_its_handle_elsewhere_is_left_alone(kind: type) -> None:
    """Also where a version is tried: the callback isn't where it should be."""
    choose_native({VARIABLE: "try"})
    with pytest.raises(LookupError, match="keeps librdkafka's handle elsewhere"):
        handle_of(kind({"group.id": "g", "error_cb": print} if kind is Consumer else {"error_cb": print}), len)
