"""Stack samples and thread times to tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

OWN = ("millstream",)
_FRAME = re.compile(r"^(?P<function>.+) \((?P<file>[^():]*)(?::(?P<line>\d+))?\)$")


@dataclass(frozen=True, slots=True)
class Spot:
    """Where samples fell: the thread, our innermost function, and what it was calling (its own name where nothing)."""

    thread: str
    own: str
    leaf: str


def spots(raw: str) -> Counter[Spot]:
    """Samples by spot, from py-spy's raw format: frames from the outermost on, joined by semicolons, and a count."""
    found: Counter[Spot] = Counter()
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        thread, *frames = stack.split(";")
        if not count.isdigit() or not frames:
            continue
        own = next((named for frame in reversed(frames) if (named := _own(frame))), "(outside)")
        found[Spot(_thread(thread), own, _leaf(frames[-1]))] += int(count)
    return found


def table(found: Mapping[Spot, int], with_lock: Mapping[Spot, int], cpu_us: float, most: int = 45) -> list[str]:
    """Markdown rows, the largest first.

    Args:
        found: samples.
        with_lock: samples of threads that held Python's lock, taken at the same rate over the same time.
        cpu_us: what all samples together stand for, microseconds an event.
        most: rows.
    """
    total = sum(found.values()) or 1
    rows = sorted(found.items(), key=lambda item: -item[1])[:most]
    return [
        "| thread | our function | in | share | us/event | with the lock |",
        "|---|---|---|---|---|---|",
        *(
            f"| {spot.thread} | {spot.own} | {spot.leaf} | {count / total:.1%} | {cpu_us * count / total:.2f} "
            f"| {min(with_lock.get(spot, 0) / count, 1):.0%} |"
            for spot, count in rows
        ),
    ]


def by(found: Mapping[Spot, int], names: Sequence[str]) -> Counter[Spot]:
    """Samples summed over the attributes not in `names`, which become empty."""
    summed: Counter[Spot] = Counter()
    for spot, count in found.items():
        kept = {name: getattr(spot, name) if name in names else "" for name in ("thread", "own", "leaf")}
        summed[Spot(**kept)] += count
    return summed


def _thread(text: str) -> str:
    """`thread (0x7F): compute` -> compute."""
    return text.rpartition(": ")[2].strip() or text


def _own(frame: str) -> str | None:
    match = _FRAME.match(frame)
    if match is None:
        return None
    parts = match["file"].split("/")
    for place, part in enumerate(parts):
        if part.removesuffix(".py") in OWN and "site-packages" not in parts:
            return f"{'/'.join(parts[place:])} {match['function']}"
    return None


def _leaf(frame: str) -> str:
    match = _FRAME.match(frame)
    if match is None:
        return frame
    return (
        f"{match['file'].rpartition('/')[2]}:{match['line']} {match['function']}"
        if match["line"]
        else match["function"]
    )
