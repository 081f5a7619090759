"""The report for people, from the figures of `make bench-gpu`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.plot import Curve, curves

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Of one batch in flight, two, and more.
COLOURS = {"onnx": ("#79b0ff", "#1f6feb", "#0b3d91"), "torch": ("#f0a58a", "#d1603d", "#8c2f12")}
NO_GPU = "**No GPU was used**: this shows that it runs, and nothing about GPUs."


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
        f"# The path around the executor: {report['device']}",
        "",
        "Recorded Avro events of 2 kB (512 floats) through decode, batch, executor and encode, without Kafka, by a worker's own "
        "stages; a perceptron of 9.4 million parameters. The executor alone has its inputs ready, and is called by as many "
        "threads as the path has batches in flight. Several workers are processes that share the device and run at the same "
        "time: their events/s together.",
        *([] if report["device"] != "cpu" else ["", NO_GPU]),
        "",
        f"![events/s by size of micro-batch](gpu-{report['device']}.svg)",
        "",
        "| made on | |",
        "|---|---|",
        *(f"| {name.replace('_', ' ')} | {value} |" for name, value in report["machine"].items()),
        "",
    ]
    for executor in dict.fromkeys(point["executor"] for point in report["points"]):
        lines += _table(executor, [point for point in report["points"] if point["executor"] == executor])
    if report["left_out"]:
        lines += ["## Left out", "", *(f"- {name}: {why}" for name, why in report["left_out"].items()), ""]
    return "\n".join(lines)


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


def _table(executor: str, points: list[dict[str, Any]]) -> list[str]:
    return [
        f"## {executor}",
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
