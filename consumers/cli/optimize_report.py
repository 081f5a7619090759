"""How an optimised model compares with the original: for people, as Markdown and as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from millstream.inference.optimizing.differences import Agreement, NumberDifference
from millstream.inference.optimizing.quality import Quality
from millstream.inference.profiling.size_profile import SizeProfile
from millstream.schemas.wording import counted

Table = list[list[str]]
NOISE = 0.05  # of a call's time: a smaller difference means nothing
MUCH = 0.02  # of an output's range: a mean difference above it is pointed out


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the answers of two versions differ on the same events."""

    events: int
    numbers: list[NumberDifference]
    classes: list[Agreement]
    quality: Quality | None  # None: the events have no labels


@dataclass(frozen=True, slots=True)
class Report:
    """Both versions side by side."""

    model: str
    old: int  # the version's number
    new: int
    precision: str
    device: str
    steps: list[str]  # what was done, a sentence each
    bytes: tuple[int, int]  # of the files of the old and the new version
    speed: list[SizeProfile]  # labelled with the version's number
    events: str  # what the events were
    rejected: int  # other events of the file, which the old version rejects
    comparison: Comparison | None  # None: there were no events


def report_lines(report: Report) -> list[str]:
    """The report for a terminal."""
    lines = [
        f"model     {_title(report)}",
        f"events    {_events(report)}",
        *(f"note      {step}" for step in report.steps),
    ]
    for title, rows in _tables(report):
        lines += ["", *([title] if title else []), *_aligned(rows)]
    return [*lines, "", f"verdict   {verdict(report)}"]


def report_markdown(report: Report) -> str:
    """The report as a page."""
    lines = [f"# {_title(report)}", "", f"Events: {_events(report)}.", "", *(f"- {step}." for step in report.steps)]
    for title, rows in _tables(report):
        lines += ["", *([f"## {title[0].upper()}{title[1:]}", ""] if title else [])]
        lines += [f"| {' | '.join(row)} |" for row in (rows[0], ["---"] * len(rows[0]), *rows[1:])]
    return "\n".join([*lines, "", f"{verdict(report)[0].upper()}{verdict(report)[1:]}"])


def report_json(report: Report) -> str:
    """The report as one JSON object."""
    found = asdict(report)
    found["bytes"] = {"old": report.bytes[0], "new": report.bytes[1]}
    found["speed"] = [{"version": int(each.label), **each.speed} for each in report.speed]
    found["verdict"] = verdict(report)
    return json.dumps(found)


def verdict(report: Report) -> str:
    """In one sentence: is the new version faster, and do the answers differ?"""
    speed = _speed_in_words(report)
    if report.comparison is None:
        return f"{speed}; its answers were compared on no event (--blind)."
    said = [f"{each.output} {_how_much(each)}" for each in report.comparison.numbers]
    said += [f"{each.output} agrees in {each.share * 100:.2f} % of the events" for each in report.comparison.classes]
    return f"{'; '.join([speed, *said])}."


def _how_much(difference: NumberDifference) -> str:
    if not difference.max:
        return "doesn't differ"
    width = difference.high - difference.low
    much = f", and on average by {difference.mean / width * 100:.0f} % of its range: LOOK AT THIS" if width else ""
    return f"differs by at most {difference.max:.3g}{much if difference.mean > MUCH * width else ''}"


def _speed_in_words(report: Report) -> str:
    """The verdict on a full batch, and on the smaller ones that have another verdict."""
    before, after = _by_size(report)
    # Medians of calls, because the rates also hold what other programs took of the CPU.
    factors = {size: after[size].p50 / before[size].p50 for size in sorted(before.keys() & after.keys())}
    *smaller, full = factors
    verdict_on_full = _word(factors[full])
    others: dict[str, list[str]] = {}  # another verdict -> the sizes that have it
    for size in smaller:
        if (word := _word(factors[size])) != verdict_on_full:
            others.setdefault(word, []).append(f"{counted(size, 'event')} ({factors[size]:.2f} times)")
    said = f"{verdict_on_full}: a call with {counted(full, 'event')} takes {factors[full]:.2f} times as long"
    but = [f"{word} with {' and '.join(sizes)}" for word, sizes in others.items()]
    return ", but ".join([said, *([", and ".join(but)] if but else [])])


def _word(factor: float) -> str:
    return "slower" if factor > 1 + NOISE else "faster" if factor < 1 - NOISE else "about as fast"


def _by_size(report: Report) -> tuple[dict[int, SizeProfile], dict[int, SizeProfile]]:
    """The figures of both versions, by the events of a call."""
    old, new = (
        {each.events: each for each in report.speed if each.label == str(version)}
        for version in (report.old, report.new)
    )
    return old, new


def _title(report: Report) -> str:
    return f"{report.model}: version {report.new} ({report.precision}) beside version {report.old}, on {report.device}"


def _events(report: Report) -> str:
    compared = "" if report.comparison is None else f"; {report.comparison.events:,} compared"
    rejected = f"; {report.rejected:,} others are rejected by both" if report.rejected else ""
    return f"{report.events}{compared}{rejected}"


def _tables(report: Report) -> list[tuple[str, Table]]:
    return [
        ("", _speed(report)),
        *([] if report.comparison is None else _answers(report.comparison, report)),
    ]


def _speed(report: Report) -> Table:
    before, after = _by_size(report)
    rows = [["", f"version {report.old}", f"version {report.new}", "ratio"]]
    rows.append(["file, bytes", *(f"{size:,}" for size in report.bytes), f"{report.bytes[1] / report.bytes[0]:.2f}"])
    for size in sorted(before.keys() & after.keys()):
        old, new = before[size], after[size]
        rows.append(
            [f"events/s, batch of {size:,}", f"{old.rate:,.0f}", f"{new.rate:,.0f}", f"{new.rate / old.rate:.2f}"]
        )
        for name, ours, theirs in (("p50", old.p50, new.p50), ("p99", old.p99, new.p99)):
            rows.append(
                [
                    f"{name} of {counted(size, 'event')}, ms",
                    f"{ours * 1e3:.3f}",
                    f"{theirs * 1e3:.3f}",
                    f"{theirs / ours:.2f}",
                ]
            )
    return rows


def _answers(comparison: Comparison, report: Report) -> list[tuple[str, Table]]:
    found: list[tuple[str, Table]] = []
    if comparison.numbers:
        rows = [["output", "range before", "max", "mean", "p99"]]
        rows += [
            [each.output, f"{each.low:.4g} to {each.high:.4g}", *(f"{x:.3g}" for x in (each.max, each.mean, each.p99))]
            for each in comparison.numbers
        ]
        found.append(("absolute differences of the outputs", rows))
    if comparison.classes:
        rows = [["output", "same class"]]
        rows += [[each.output, f"{each.share * 100:.2f} %"] for each in comparison.classes]
        found.append(("classes", rows))
    if (quality := comparison.quality) is not None:
        rows = [
            ["measure", "output", f"version {report.old}", f"version {report.new}", "difference", "labels"],
            [
                quality.measure,
                quality.output,
                f"{quality.old:.4f}",
                f"{quality.new:.4f}",
                f"{round(quality.new - quality.old, 4) + 0.0:+.4f}",  # without the sign of -0.0
                f"{quality.events:,}",
            ],
        ]
        found.append(("answers beside the labels", rows))
    return found


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows in columns: the first one to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            f"{cell:<{width}}" if not place else f"{cell:>{width}}"
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
