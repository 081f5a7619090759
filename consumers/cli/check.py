"""`millstream check`: everything that a worker would find wrong at its start, without starting one."""

import argparse

from rich.console import Console

from millstream.consumers.cli.arguments import add_pipeline, read_pipeline
from millstream.consumers.decode.named_fields import check_labels
from millstream.consumers.shadow.compared_output import check_compared_item, check_compared_output
from millstream.consumers.worker.plan import Plan, check_answers, make_plan
from millstream.inference.repository import load_version
from millstream.inference.signature import TensorInput, blank
from millstream.schemas.directory import DirectoryStore
from millstream.topics.admin import require


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    add_pipeline(parser)
    parser.add_argument("--offline", action="store_true", help="leave Kafka's topics out")


def run(args: argparse.Namespace) -> int:
    """Check; 0 when a worker would start."""
    console = Console(highlight=False, soft_wrap=True)
    pipeline = read_pipeline(args)
    console.print(f"pipeline  {pipeline.name} ({pipeline.path})", markup=False)
    plan = make_plan(pipeline)
    console.print(f"schema    {plan.reader.name}, id {plan.reader.id}{_of_several(plan)}", markup=False)
    for line in _mapping(plan):
        console.print(line, markup=False)
    plan.executor.warm_up()
    refusal = check_answers(plan)
    sizes = ", ".join(map(str, plan.executor.batch_sizes))
    ran = f"runs on {plan.executor.device} with {sizes} events" if refusal is None else f"refused: {refusal}"
    console.print(f"warm-up   {ran}", markup=False)
    check_labels(pipeline, plan.store)
    shadows = [load_version(pipeline.model.repository, *pipeline.shadow_model(shadow)) for shadow in pipeline.shadows]
    check_compared_output(pipeline, [plan.model, *shadows])
    if refusal is None:
        check_compared_item(pipeline, [plan.model, *shadows], plan.executor.run(blank(plan.model.signature.inputs, 1)))
    if args.offline:
        console.print("topics    not asked (--offline)")
    else:
        require(pipeline.client_config(), pipeline)
        console.print(f"topics    all there on {pipeline.kafka.bootstrap}", markup=False)
    if refusal is None:
        console.print("ok        a worker would start")
    else:
        console.print(
            "unsure    a worker would start, but the model refuses blank events: send it a real one to see that it answers"
        )
    return 0


def _of_several(plan: Plan) -> str:
    """The ids of all files with the schema's name, where there are several: which one is taken must not be a surprise."""
    ids = plan.store.ids_of(plan.reader.name) if isinstance(plan.store, DirectoryStore) else []
    listed = ", ".join(map(str, ids))
    return f" (files with this name: {listed}; all events are read with the highest)" if len(ids) > 1 else ""


def _mapping(plan: Plan) -> list[str]:
    signature = plan.model.signature
    return [
        f"model     {plan.model.place}",
        *(f"input     {_filling(entry)}" for entry in signature.inputs),
        *(f"output    {entry.name}, from {entry.tensor}" for entry in signature.outputs),
    ]


def _filling(entry: TensorInput) -> str:
    shape = f"up to {entry.max_length} items" if entry.max_length else str(list(entry.shape))
    return f"{entry.tensor}: {entry.dtype} {shape} an event, {'a mask' if entry.mask else 'from ' + ', '.join(entry.fields)}"
