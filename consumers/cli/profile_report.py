"""How the figures of batch sizes are told: a table, YAML, JSON and a chart."""

import json
from collections.abc import Callable, Mapping, Sequence

from millstream.consumers.demo.chart import Line, Panel, chart
from millstream.inference.profiling.batch_settings import BatchSettings
from millstream.inference.profiling.size_profile import SizeProfile

_COLOURS = ("#1f6feb", "#d1570a", "#2da44e")
_COLUMNS: tuple[tuple[str, Callable[[SizeProfile], str]], ...] = (
    ("threads", lambda each: each.label),
    ("batch", lambda each: f"{each.events:,}"),
    ("events/s", lambda each: f"{each.rate:,.0f}"),
    ("p50, ms", lambda each: f"{each.p50 * 1e3:.3f}"),
    ("p99, ms", lambda each: f"{each.p99 * 1e3:.3f}"),
    ("µs/event", lambda each: f"{each.us_per_event:,.2f}"),
    ("memory, MB", lambda each: _megabytes(each.memory)),
    ("GPU, MB", lambda each: _megabytes(each.gpu_memory)),
    ("padding, %", lambda each: "-" if each.padding is None else f"{each.padding * 100:.0f}"),
    ("calls", lambda each: f"{each.calls:,}"),
)
_OPTIONAL = {
    "GPU, MB": lambda each: each.gpu_memory is not None,
    "padding, %": lambda each: each.padding is not None,
}
"""Columns that are shown only where one of the profiles has the figure."""


def table(profiles: Sequence[SizeProfile]) -> list[str]:
    """A heading and a line for each batch size, in columns."""
    columns = [(name, show) for name, show in _COLUMNS if name not in _OPTIONAL or any(map(_OPTIONAL[name], profiles))]
    cells = [[name for name, _ in columns], *([show(each) for _, show in columns] for each in profiles)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in cells]


def settings_yaml(settings: BatchSettings, target: float | None, threads: int | None) -> str:
    """The settings, to paste into the pipeline file. `threads`: None leaves them as they are."""
    lines = ["batch:", f"  max_events: {settings.max_events}"]
    if settings.max_wait is not None:
        lines.append(f"  max_wait: {_duration(settings.max_wait)}")
    if target is not None:
        lines.append(f"  target_p99: {_duration(target)}")
    if threads is not None:
        lines += ["model:", f"  threads: {threads}"]
    return "\n".join(lines)


def row_json(profile: SizeProfile) -> str:
    """A batch size as a JSON object."""
    return json.dumps(
        {
            "threads": int(profile.label),
            **profile.speed,
            "memory_bytes": profile.memory,
            "gpu_memory_bytes": profile.gpu_memory,
            "padding": profile.padding,
            "calls": profile.calls,
        }
    )


def settings_json(settings: BatchSettings, target: float | None, threads: int | None) -> str:
    """The settings as a JSON object."""
    batch: dict[str, int | str] = {"max_events": settings.max_events}
    if settings.max_wait is not None:
        batch["max_wait"] = _duration(settings.max_wait)
    if target is not None:
        batch["target_p99"] = _duration(target)
    found = {"batch": batch} if threads is None else {"batch": batch, "model": {"threads": threads}}
    return json.dumps({"settings": found, "meets_target": settings.meets_target, "reason": settings.reason})


def plot(title: str, by_threads: Mapping[int, Sequence[SizeProfile]]) -> str:
    """Throughput and latency by batch size, as SVG."""

    def lines(value: Callable[[SizeProfile], float]) -> list[Line]:
        return [
            Line(
                "1 thread" if threads == 1 else f"{threads} threads",
                colour,
                [each.events for each in some],
                list(map(value, some)),
            )
            for (threads, some), colour in zip(by_threads.items(), _COLOURS, strict=False)
        ]

    panels = [
        Panel("thousand events/s", lines(lambda each: each.rate / 1e3)),
        Panel("p99 of a call, ms", lines(lambda each: each.p99 * 1e3)),
    ]
    return chart(title, panels, unit="events")


def _megabytes(size: int | None) -> str:
    return "-" if size is None else f"{size / 1e6:,.1f}"


def _duration(seconds: float) -> str:
    """As the pipeline file takes it."""
    if not seconds or 1e-3 <= seconds < 1:
        return f"{seconds * 1e3:.6g}ms"
    return f"{seconds:.6g}s" if seconds >= 1 else f"{seconds * 1e6:.6g}us"
