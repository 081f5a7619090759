"""The report says what was promised, what was found, and who was left out."""

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from benchmarks.llm import BARE as CHAT
from benchmarks.llm import POOL
from benchmarks.peers.known import FAUST, HANDWRITTEN, JAVA, OURS, OURS_EXACTLY_ONCE
from benchmarks.plot import Curve, bars, curves
from benchmarks.remote import BARE
from benchmarks.remote import OURS as KSERVE
from benchmarks.report import markdown, plot
from benchmarks.targets import Verdict, verdicts

SVG = "{http://www.w3.org/2000/svg}"


def peer(cpu: float, rate: float, *p99: float) -> dict[str, Any]:
    run = {"events": 100, "cpu_us": cpu, "rate": rate, "first": 1.5, "peak_mib": 200.0}
    return {
        "runs": [run, {**run, "cpu_us": cpu + 2}, {**run, "cpu_us": cpu + 1}],
        "latency": {"p50": 1, "p95": 2, "p99": (p99 or (10.0,))[0]},
        "latencies": [{"p50": 1, "p95": 2, "p99": one} for one in p99 or (10.0,)],
    }


def report(**peers: dict[str, Any]) -> dict[str, Any]:
    workload = {
        "name": "vector", "about": "small", "events": 100, "rate": 1000, "seconds": 5, "max_events": 256, "max_wait_ms": 5,
        "limits": {"consume_us": 1.0, "produce_us": 2.0, "infer_us": 0.5, "infer_rate": 1e6},
        "peers": {name.replace("_", " "): found for name, found in peers.items()},
    }  # fmt: skip
    return {
        "machine": {"cores": 2},
        "peers": {"faust": "faust-streaming 1.0"},
        "workloads": [workload],
        "left_out": {"Rust": "cargo is not installed"},
    }


FULL = report(**{
    OURS: peer(4, 100_000, 9, 5, 15),
    OURS_EXACTLY_ONCE: peer(4, 100_000, 40),
    HANDWRITTEN: peer(14, 40_000),
    JAVA: peer(4, 200_000),
    FAUST: peer(200, 2_000),
})  # fmt: skip


def found(promise: str) -> Verdict:
    return next(verdict for verdict in verdicts(FULL) if verdict.promise == promise)


@pytest.mark.parametrize(
    ("promise", "value", "met"),
    [
        ("CPU an event, exactly once / hand-written", 5 / 15, True),
        ("CPU an event, exactly once / raw limits' sum", 5 / 3.5, True),
        ("events/s, exactly once / Java", 0.5, False),
        ("events/s, exactly once / Faust", 50, True),
        ("p99 at a fixed rate, exactly once, ms", 40, True),
    ],
)
def test_medians_are_held_against_limits(promise: str, value: float, met: bool) -> None:
    verdict = found(promise)
    assert verdict.found == pytest.approx(value, abs=1e-3)
    assert verdict.met is met
    assert verdict.margin is not None and (verdict.margin >= 0) is met


def test_what_was_left_out_is_not_judged() -> None:
    assert found("vector: CPU an event, exactly once / Rust").met is None
    assert found("nested: CPU an event, exactly once / hand-written").met is None
    assert found("text, at least once: events/s / raw inference").met is None


def test_markdown_tells_targets_figures_and_who_was_left_out() -> None:
    text = markdown(FULL)
    assert "| events/s, exactly once / Java | >= 1 | 0.5 | | **not met** | -50% |" in text
    assert "| CPU an event, exactly once / hand-written | <= 0.333 | 0.333 | 0.286 to 0.375 | met | +0% |" in text
    assert "| p99 at a fixed rate, at least once / hand-written | <= 1 | 0.9 | 0.5 to 1.5 | met | +10% |" in text
    assert "| vector: CPU an event, exactly once / Rust | <= 1.2 | | | not measured | |" in text
    assert "| hand-written | 15.00 | 1.00 | 40,000 | 1.5 | 200 | 1 | 2 | 10.0 |" in text
    assert "- Rust: cargo is not installed" in text


def test_plot_is_well_formed_and_longer_bars_are_larger_values() -> None:
    root = ET.fromstring(bars("us <all>", [("a & b", {"x": 2.0, "y": 20.0})], ["x"]))
    short, long = [float(bar.attrib["width"]) for bar in root.iter(f"{SVG}rect") if "x" in bar.attrib]
    assert short < long
    assert ET.fromstring(plot(FULL)).tag.endswith("svg")


def test_curves_go_up_and_right_and_are_named() -> None:
    root = ET.fromstring(curves("per <s>", "size", [Curve("a & b", "#123456", [(1, 20.0), (64, 2000.0)])]))
    own = [line for line in root.iter(f"{SVG}polyline") if line.attrib["stroke"] == "#123456"]
    (x, y), (later, higher) = (map(float, point.split(",")) for point in own[0].attrib["points"].split())
    assert later > x
    assert higher < y  # y goes down in SVG
    assert {"per <s>", "size", "a & b", "1", "64", "10", "10,000"} <= {text.text for text in root.iter(f"{SVG}text")}


@pytest.mark.parametrize("value", [0.5, 10.0, 1234.5])
def test_a_single_point_is_seen(value: float) -> None:
    root = ET.fromstring(curves("t", "x", [Curve("c", "#123456", [(16, value)])]))
    assert [dot.attrib["fill"] for dot in root.iter(f"{SVG}circle")] == ["#123456"]


def test_models_on_servers_have_rows_with_ratios_of_the_rounds() -> None:
    def runs(cpu: float, *seconds: float) -> list[dict[str, float]]:
        return [{"events": 100, "seconds": each, "cpu": cpu, "compute_share": 0.5} for each in seconds]

    remote = {"models": {"trivial": {BARE: runs(0.1, 1, 2, 4), KSERVE: runs(0.12, 2, 2, 5)}}}
    llm = {"servers": {"llama": {CHAT: [{"tokens": 10.0, "cpu_ms": 2.0}], POOL: [{"tokens": 9.0, "cpu_ms": 3.0}]}}}
    text = markdown({**FULL, "servers": {"remote": remote, "llm": llm}})
    assert f"| trivial | {KSERVE} | 1200.00 | 1.20 | 50 | 0.80 | 50% of the time |" in text
    assert f"| llama | {POOL} | 9 | 0.90 | 3.00 |" in text
