"""The text that the demo prints at its end."""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from millstream.consumers.demo.results import Latency, Results, Tally
from millstream.consumers.demo.screen import latency_text
from millstream.consumers.demo.stream import FlightStream
from millstream.inference.auc import auc
from millstream.schemas.wording import counted

NEXT_STEPS = """Try next
  millstream demo --workers 2 --rate 0        as fast as two workers per version can process
  millstream init flights                     create a folder with this pipeline, to start your own from
  millstream options                          list all options of a pipeline file"""


@dataclass(frozen=True, slots=True)
class Sent:
    """What the feeder did."""

    events: int
    seconds: float
    rate: float  # requested events per second; 0: as fast as results come
    held_back: float  # seconds during which due events waited, because too many had no result
    broken: int  # events that were broken on purpose


def summary(sent: Sent, stream: FlightStream, results: Mapping[int, Results], *, model: str = "") -> str:
    """The text, without a newline at the end. `model` says where the model ran, if it wasn't in the workers."""
    rate = f", {sent.events / sent.seconds:,.0f}/s" if sent.seconds else ""
    lines = [
        f"Sent       {sent.events:,} events in {sent.seconds:.1f} s{rate}, {sent.broken} of them broken on purpose"
    ]
    if not sent.rate:
        lines.append("           as fast as results came: so the latency is mostly time in the queue")
    elif sent.held_back > 0.05 * sent.seconds:
        lines.append(
            f"           too fast for this machine: for {sent.held_back:.1f} s, events waited for the results of earlier ones"
        )
    if model:
        lines.append(f"Model      {model}")
    for version, result in results.items():
        lines += ["", *_version(version, result.tally(sent.events), result.latency(), ranking(stream, result))]
    lines += ["", *samples(stream, results), "", NEXT_STEPS]
    return "\n".join(lines)


def _version(version: int, tally: Tally, latency: Latency, ranked: str) -> list[str]:
    verdict = "adds up" if tally.adds_up else "DOES NOT ADD UP"
    sums = f"{counted(tally.predicted, 'prediction')} + {counted(tally.dead, 'dead letter')} = {tally.predicted + tally.dead:,}"
    reasons = ", ".join(f"{reason} {count}" for reason, count in tally.reasons.items()) or "none"
    extra = [
        f"{count:,} {what}"
        for count, what in ((tally.unanswered, "without a result"), (tally.strangers, "for an event that wasn't sent"))
        if count
    ]
    return [
        f"Version {version}  {sums} of {tally.sent:,} events: {verdict}" + "".join(f", {text}" for text in extra),
        f"           dead letters by reason: {reasons}; written twice: {tally.duplicates}",
        f"           latency p50/p95/p99 {latency_text(latency)} ms, from writing an event to reading its prediction",
        f"           {ranked}",
    ]


def ranking(stream: FlightStream, result: Results) -> str:
    """A sentence on how well the predictions rank the true outcomes."""
    numbers, scores = result.scores()
    late = stream.late(numbers.tolist())
    known = late.is_not_null()
    truths = late.filter(known)
    if truths.n_unique() < 2:
        return "AUC unknown: there are too few flights, or all have the same outcome"
    area = auc(truths, pl.Series(scores).filter(known))
    return f"AUC {area:.3f} against the true outcomes of {len(truths):,} flights (0.5 is guessing, 1 is never wrong)"


def samples(stream: FlightStream, results: Mapping[int, Results], most: int = 3) -> list[str]:
    """Some predictions with the true outcomes: late flights and punctual ones."""
    everywhere = None
    for result in results.values():
        numbers = set(result.scores()[0].tolist())
        everywhere = numbers if everywhere is None else everywhere & numbers
    chosen = sorted(everywhere or ())[-1000:]
    late = [number for number, was_late in zip(chosen, stream.late(chosen), strict=True) if was_late]
    punctual = [number for number, was_late in zip(chosen, stream.late(chosen), strict=True) if was_late is False]
    return [sample(stream, results, number) for number in (*late[-most:], *punctual[-most:])]


def sample(stream: FlightStream, results: Mapping[int, Results], number: int) -> str:
    """One event's predictions and outcome; "" if a version has no prediction for it."""
    scores = {version: result.score(number) for version, result in results.items()}
    if None in scores.values():
        return ""
    said = ", ".join(f"version {version}: {score:.0%} late" for version, score in scores.items())
    outcome = {True: "arrived late", False: "arrived on time", None: "arrival unknown"}[stream.late([number])[0]]
    return f"{stream.name_of(number):<16} {said}; {outcome}"
