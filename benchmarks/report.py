"""The report for people: Markdown and a plot, from the figures in bench.json."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks import llm, remote
from benchmarks.peers.known import HANDWRITTEN, OURS, OURS_EXACTLY_ONCE, OURS_TWO_WORKERS
from benchmarks.plot import bars
from benchmarks.targets import Report, Verdict, figure, verdicts

if TYPE_CHECKING:
    from collections.abc import Mapping

SERVERS = {"remote": remote.table, "llm": llm.table}
"""Workload of models on servers -> makes the rows."""


def markdown(report: Report) -> str:
    """The whole report."""
    on = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
    lines = [
        "# Bench",
        "",
        "Millstream beside what a user would take instead: the same events, model and limits, one run, a real broker, which "
        "shares the machine. Machines are noisy: ratios within one run are what counts. Who they are and what was tried: "
        "[benchmarks](../README.md).",
        "",
        f"Machine: {on}.",
        f"Peers: {', '.join(report['peers'].values())}.",
        "",
        "![CPU an event](bench.svg)",
        "",
        *_targets(verdicts(report)),
    ]
    for workload in report["workloads"]:
        lines += _workload(workload)
    for name, found in report.get("servers", {}).items():
        lines += [f"## Models on servers: {name}", "", f"[More]({name}.md).", "", *SERVERS[name](found), ""]
    if report["left_out"]:
        lines += ["## Left out", "", *(f"- {who}: {why}" for who, why in report["left_out"].items()), ""]
    return "\n".join(lines)


def plot(report: Report) -> str:
    """The CPU time per event of every peer in every workload, as SVG."""
    groups = [
        (
            f"{workload['name']}: {workload['about']}",
            {peer: figure(workload, peer, "cpu_us") for peer in workload["peers"]} | _raw(workload),
        )
        for workload in report["workloads"]
    ]
    return bars("CPU microseconds an event, logarithmic", groups, (OURS, OURS_EXACTLY_ONCE, OURS_TWO_WORKERS))


def _raw(workload: Mapping[str, Any]) -> dict[str, float]:
    limits = workload.get("limits")
    return {"raw limits": sum(limits[f"{part}_us"] for part in ("consume", "produce", "infer"))} if limits else {}


def _targets(found: list[Verdict]) -> list[str]:
    lines = [
        "## Targets",
        "",
        "Of the vector workload, exactly once with metrics on, where nothing else is said. Medians of the rounds are held "
        "against the limits (memory and start: the most); behind them the least and most that a round gives by itself.",
        "",
        "| target | limit | found | rounds | | by |",
        "|---|---|---|---|---|---|",
    ]
    for one in found:
        limit = f"{'>=' if one.at_least else '<='} {one.limit:.3g}"
        if one.found is None or one.margin is None:
            lines.append(f"| {one.promise} | {limit} | | | not measured | |")
        else:
            rounds = " {:.3g} to {:.3g}".format(*one.rounds) if one.rounds else ""
            met = "met" if one.met else "**not met**"
            lines.append(f"| {one.promise} | {limit} | {one.found:.3g} |{rounds} | {met} | {one.margin:+.0%} |")
    return [*lines, ""]


def _workload(workload: Mapping[str, Any]) -> list[str]:
    latency = workload["rate"]
    lines = [
        f"## {workload['name']}",
        "",
        f"{workload['about'].capitalize()}; {workload['events']:,} events (slow peers take fewer), micro-batches of at most "
        f"{workload['max_events']} events or {workload['max_wait_ms']} ms. From when a backlog can be read, by a warm peer, "
        f"until all of it is answered. Latencies at {latency:,} events/s, open loop, from when an event was due until a "
        f"reader of committed records has its prediction; where there were several rounds, the one of the median p99.",
        "",
        "| peer | CPU us/event | / hand-written | events/s | first prediction s | peak MiB | p50 ms | p95 ms | p99 ms |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    base = figure(workload, HANDWRITTEN, "cpu_us") if HANDWRITTEN in workload["peers"] else None
    for peer, found in workload["peers"].items():
        cpu = figure(workload, peer, "cpu_us")
        waits = found["latency"] or {"p50": "", "p95": "", "p99": ""}
        ratio = f"{cpu / base:.2f}" if base else ""
        lines.append(
            f"| {peer} | {cpu:,.2f} | {ratio} | {figure(workload, peer, 'rate'):,.0f} | {figure(workload, peer, 'first'):.1f} "
            f"| {figure(workload, peer, 'peak_mib'):.0f} | {waits['p50']} | {waits['p95']} | {waits['p99']} |"
        )
    limits = workload["limits"]
    if limits:
        lines += [
            "",
            f"Raw limits, CPU us/event: consume {limits['consume_us']:.2f}, produce {limits['produce_us']:.2f}, infer "
            f"{limits['infer_us']:.2f} ({limits['infer_rate']:,.0f} events/s on one thread).",
        ]
    return [*lines, ""]
