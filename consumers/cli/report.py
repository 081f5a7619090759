"""`millstream report`: writes one page with figures and plots about a pipeline's predictions, shadows and rollout."""

import argparse
import time

from millstream.consumers.cli.given import read_pipeline
from millstream.consumers.cli.log_lines import log_to_stderr
from millstream.consumers.cli.report_page import about_page, refuse_unknown_segment, refuse_unwritable, write_page
from millstream.consumers.cli.say import say
from millstream.consumers.cli.telling import SCHEMA_TIMEOUT, Telling, require_scipy
from millstream.consumers.cli.work import OWN_LOGGERS
from millstream.consumers.control.topic import open_reader
from millstream.consumers.errors import WorkerError
from millstream.consumers.resilience.limited_retry import LimitedRetry
from millstream.consumers.rollout.record import RolloutRecord
from millstream.consumers.schema_store import open_store
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.store import SchemaStore

DAY = 86_400_000  # ms


def run(args: argparse.Namespace) -> int:
    """Write the page."""
    log_to_stderr(args.log_level, OWN_LOGGERS)
    require_scipy("report")
    from millstream.consumers.evaluation.topic import read_figures  # noqa: PLC0415
    from millstream.consumers.report.live import LiveReport, Span  # noqa: PLC0415  (needs SciPy)
    from millstream.consumers.report.page import page, shown  # noqa: PLC0415
    from millstream.consumers.report.rollouts import rollout_sections  # noqa: PLC0415

    pipeline = read_pipeline(args)
    refuse_unknown_segment(pipeline, args.segment)
    end = args.end if args.end is not None else round(time.time() * 1000)
    start = args.start if args.start is not None else end - DAY
    if start >= end:
        args.parser.error("--from: expected a time before --to.")
    refuse_unwritable(args.output)
    telling = Telling()
    store = open_store(pipeline)
    steps = [] if pipeline.rollout is None else read_figures(pipeline, store).steps
    rollouts = [] if pipeline.rollout is None else rollout_sections(steps, _changes(pipeline, store))
    level = pipeline.rollout.level if pipeline.rollout is not None and steps else None
    report = LiveReport(pipeline, Span(start, end), LimitedRetry(SCHEMA_TIMEOUT, say), telling.reading, args.segment)
    parts = report.parts()
    telling.clear()
    if lack := report.lack(parts):
        if not rollouts:
            raise WorkerError(f"there is nothing to report: {lack}")
        say(f"the page shows no predictions: {lack}")
    write_page(
        args.output, page(f"{pipeline.name}: models in service", about_page(level), [*rollouts, *map(shown, parts)])
    )
    for said in (*(each.verdict for each in rollouts), *(each.verdict for each in parts)):
        print(said)
    return 0


def _changes(pipeline: Pipeline, store: SchemaStore) -> list[RolloutRecord | None]:
    """All changes of rollouts that the control topic still has. None: somebody deleted the record."""
    with open_reader(pipeline, store, say) as reader:
        return [own.record for own in reader.read_to_end() if own.counts]
