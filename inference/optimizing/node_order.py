"""Sorts a graph's nodes as ONNX demands it: each one after those whose outputs it takes."""

from collections.abc import Iterator
from graphlib import TopologicalSorter
from typing import Any


def sort_nodes(graph: Any) -> None:
    """Sort the nodes of a `GraphProto` in place. Nodes that don't depend on each other keep their order, as far as possible."""
    nodes = list(graph.node)
    maker = {name: place for place, node in enumerate(nodes) for name in node.output if name}
    sorter = TopologicalSorter(
        {place: {maker[name] for name in _taken(node) if name in maker} for place, node in enumerate(nodes)}
    )
    sorter.prepare()
    order: list[int] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        order += ready
        sorter.done(*ready)
    ordered = [nodes[place] for place in order]
    del graph.node[:]
    graph.node.extend(ordered)


def _taken(node: Any) -> Iterator[str]:
    """The tensors that a node takes, also those that the graphs inside of it take from outside."""
    yield from node.input
    for attribute in node.attribute:
        for inner in (attribute.g, *attribute.graphs):
            for each in inner.node:
                yield from _taken(each)
