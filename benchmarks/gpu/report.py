"""The report for people, from the figures of `make bench-gpu`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.plot import Curve, curves
from benchmarks.targets import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# Of one batch in flight, two, and more.
COLOURS = {"onnx": ("#79b0ff", "#1f6feb", "#0b3d91"), "torch": ("#f0a58a", "#d1603d", "#8c2f12")}
NO_GPU = "**No GPU was used**: the figures show that everything runs, and nothing about GPUs."


@dataclass(frozen=True, slots=True)
class Point:
    """Figures of one executor, number of workers, of batches in flight and size of micro-batch; of all workers together."""

    executor: str
    workers: int
    in_flight: int  # micro-batches that each worker runs at a time
    batch: int  # events
    executor_rate: float  # events/s of the executor alone
    path_rate: float  # events/s of the whole path
    executor_busy: float | None  # percent of the time that the GPU was busy; None without one
    path_busy: float | None


def markdown(report: Mapping[str, Any]) -> str:
    """The whole report."""
    lines = [
        f"# On a GPU: {report['device']}",
        "",
        *([] if report["device"] != "cpu" else [NO_GPU, ""]),
        "| made on | |",
        "|---|---|",
        *(f"| {name.replace('_', ' ')} | {value} |" for name, value in report["machine"].items()),
        "",
        "## Targets",
        "",
        "MiniLM is all-MiniLM-L6-v2 in ONNX Runtime, with texts of 32 tokens. The executor alone has its inputs ready.",
        "",
        "| target | limit | found | |",
        "|---|---|---|---|",
        *map(_target, report["targets"]),
        "",
        "| MiniLM | events/s | GPU busy |",
        "|---|---|---|",
        *(_figure(name, each) for name, each in report["figures"]["minilm"].items()),
        "",
        "| a call of 32 events, perceptron | the runtime alone, us | added by the executor, us | share |",
        "|---|---|---|---|",
        *(
            f"| {each['executor']}, {each['model']} | {each['bare_us']:,.1f} | {each['added_us']:,.1f} | {each['share']:.1%} |"
            for each in report["figures"]["overhead"]
        ),
        "",
        "The same call is made alone and through the executor, in turns. The added time is the median of the differences. If it "
        "is negative, it is smaller than what calls differ by chance.",
        "",
        "## The path around the executor",
        "",
        "Recorded Avro events of 2 kB (512 floats) through decode, batch, executor and encode, without Kafka, by a worker's own "
        "stages; a perceptron of 9.4 million parameters. The executor alone has its inputs ready, and is called by as many "
        "threads as the path has batches in flight. Several workers are processes that share the device and run at the same "
        "time: their events/s together.",
        "",
        "![events/s by size of micro-batch](gpu.svg)",
        "",
    ]
    for executor in dict.fromkeys(point["executor"] for point in report["points"]):
        lines += _table(executor, [point for point in report["points"] if point["executor"] == executor])
    if report["left_out"]:
        lines += ["## Left out", "", *(f"- {name}: {why}" for name, why in report["left_out"].items()), ""]
    return "\n".join(lines)


def verdict_rows(verdicts: Sequence[Verdict], why_not: str) -> list[dict[str, Any]]:
    """The targets for the report. `why_not`: why some were not measured."""
    return [
        {
            "target": verdict.promise,
            "limit": verdict.limit,
            "at_least": verdict.at_least,
            "found": verdict.found,
            "met": verdict.met,
            "why_not": why_not if verdict.met is None else "",
        }
        for verdict in verdicts
    ]


def plot(report: Mapping[str, Any]) -> str:
    """Events/s by size of micro-batch, of the executor alone and of the path, with the fewest workers; SVG."""
    fewest = min(point["workers"] for point in report["points"])
    points = [point for point in report["points"] if point["workers"] == fewest]
    title = f"events/s on {report['device']}, {fewest} worker{'s' if fewest > 1 else ''}; dashed: the executor alone"
    return curves(title, "events of a micro-batch", list(_curves(points)))


def _curves(points: list[dict[str, Any]]) -> Iterator[Curve]:
    for executor, in_flight in dict.fromkeys((point["executor"], point["in_flight"]) for point in points):
        own = sorted(
            (point for point in points if (point["executor"], point["in_flight"]) == (executor, in_flight)),
            key=lambda point: point["batch"],
        )
        shades = COLOURS[executor]
        colour = shades[min(in_flight, len(shades)) - 1]
        for name, rate in (("path", "path_rate"), ("alone", "executor_rate")):
            through = [(point["batch"], point[rate]) for point in own]
            yield Curve(f"{executor} {name}, {in_flight} in flight", colour, through, dashed=name == "alone")


def _target(row: dict[str, Any]) -> str:
    limit = f"{'at least' if row['at_least'] else 'at most'} {row['limit']:g}"
    if row["found"] is None:
        return f"| {row['target']} | {limit} | | {row['why_not']} |"
    return f"| {row['target']} | {limit} | {row['found']:.3g} | {'met' if row['met'] else '**missed**'} |"


def _figure(name: str, found: dict[str, Any]) -> str:
    said = {
        "fp32": "executor alone, FP32, batches of 64",
        "fp16": "executor alone, FP16, batches of 64",
        "single": "executor alone, FP32, batches of 1",
        "path": "whole path, FP32, batches of 64",
    }[name]
    busy = "" if found["gpu_busy_percent"] is None else f"{found['gpu_busy_percent']:.0f} %"
    return f"| {said} | {found['events_per_second']:,.1f} | {busy} |"


def _table(executor: str, points: list[dict[str, Any]]) -> list[str]:
    return [
        f"### {executor}",
        "",
        "| workers | in flight | micro-batch | call ms | executor alone, events/s | whole path, events/s | kept "
        "| GPU busy alone | GPU busy in path |",
        "|---|---|---|---|---|---|---|---|---|",
        *map(_row, points),
        "",
    ]


def _row(point: dict[str, Any]) -> str:
    workers, in_flight, batch = point["workers"], point["in_flight"], point["batch"]
    alone, whole = point["executor_rate"], point["path_rate"]
    call_ms = workers * in_flight * batch / alone * 1e3
    busy = ["" if point[name] is None else f"{point[name]:.0f} %" for name in ("executor_busy", "path_busy")]
    return (
        f"| {workers} | {in_flight} | {batch} | {call_ms:.2f} | {alone:,.0f} | {whole:,.0f} | {whole / alone:.0%} "
        f"| {busy[0]} | {busy[1]} |"
    )
