"""`millstream check`: finds all mistakes that would stop a worker at its start, without starting one."""

import argparse

from rich.console import Console

from millstream.consumers.cli.arguments import add_pipeline, read_pipeline
from millstream.consumers.decode.named_fields import check_labels
from millstream.consumers.shadow.compared_output import check_compared_item, check_compared_output
from millstream.consumers.worker.plan import Plan, check_answers, make_plan
from millstream.inference.repository import load_version
from millstream.inference.signature import TensorInput, blank
from millstream.schemas.directory import DirectoryStore
from millstream.topics.admin import Admin, require


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    add_pipeline(parser)
    parser.add_argument("--offline", action="store_true", help="don't check the topics in Kafka")


def run(args: argparse.Namespace) -> int:
    """Check; returns 0 if a worker would start."""
    console = Console(highlight=False, soft_wrap=True)
    pipeline = read_pipeline(args)
    console.print(f"pipeline  {pipeline.name} ({pipeline.path})", markup=False)
    plan = make_plan(pipeline)
    console.print(f"schema    {_schema(plan)}", markup=False)
    for line in _mapping(plan):
        console.print(line, markup=False)
    plan.executor.warm_up()
    refusal = check_answers(plan)
    sizes = ", ".join(map(str, plan.executor.batch_sizes))
    ran = f"runs on {plan.executor.device} with {sizes} events" if refusal is None else f"refused: {refusal}"
    console.print(f"warm-up   {ran}", markup=False)
    if warning := check_labels(pipeline, plan.store):
        console.print(f"labels    {warning}", markup=False)
    shadows = [load_version(pipeline.model.repository, *pipeline.shadow_model(shadow)) for shadow in pipeline.shadows]
    check_compared_output(pipeline, [plan.model, *shadows])
    if refusal is None and pipeline.comparison.item is not None:
        check_compared_item(pipeline, [plan.model, *shadows], plan.executor.run(blank(plan.model.signature.inputs, 1)))
    if args.offline:
        console.print("topics    not checked (--offline)")
    else:
        require(Admin(pipeline.client_config()), pipeline)
        console.print(f"topics    all exist on {pipeline.kafka.bootstrap}", markup=False)
    if refusal is None:
        console.print("ok        a worker would start")
    else:
        console.print(
            "unsure    a worker would start, but the model rejects blank events: send a real one to see whether it works"
        )
    return 0


def _schema(plan: Plan) -> str:
    """The schema of the events. If several files have its name, also their IDs, so that users see which one is used."""
    if plan.reader is None:
        return "none (events are JSON objects, of which the named paths are read)"
    ids = plan.store.ids_of(plan.reader.name) if isinstance(plan.store, DirectoryStore) else []
    listed = ", ".join(map(str, ids))
    several = f" (files with this name: {listed}; all events are read with the highest ID)" if len(ids) > 1 else ""
    return f"{plan.reader.name}, id {plan.reader.id}{several}"


def _mapping(plan: Plan) -> list[str]:
    signature = plan.model.signature
    return [
        f"model     {plan.model.place}",
        *(f"input     {_filling(entry)}" for entry in signature.inputs),
        *(f"output    {entry.name}, from {entry.tensor}" for entry in signature.outputs),
    ]


def _filling(entry: TensorInput) -> str:
    shape = f"up to {entry.max_length} items" if entry.max_length else str(list(entry.shape))
    return f"{entry.tensor}: {entry.dtype} {shape} per event, {'a mask' if entry.mask else 'from ' + ', '.join(entry.fields)}"
