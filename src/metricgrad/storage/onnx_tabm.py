"""TabM as ONNX operators: embeddings of the features, and layers that hold those of all members, in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from metricgrad.storage.onnx_graph import Graph
    from metricgrad.training.tabm import TabM


def add_member_logits(graph: Graph, network: TabM, x: str) -> str:
    """Add the logits of every member, ``(rows, members, outputs)``."""
    # One row more, since ONNX Runtime divides by zero in a product of several matrices with those of no rows.
    x = graph.add("Pad", x, graph.constant([0, 0, 1, 0]))
    if network.embedding is not None:
        x = _add_embedding(graph, network.embedding, x)
    x = graph.add("Unsqueeze", x, graph.constant([1]))  # every member sees the same
    for linear, _activation, _dropout in network.backbone.blocks:
        x = graph.add("Relu", _add_shared_layer(graph, linear, x))
    logits = _add_layer_of_each(graph, network.output.weight, x)
    logits = graph.add("Add", logits, graph.constant(network.output.bias))
    return graph.add("Slice", logits, graph.constant([0]), graph.constant([-1]), graph.constant([0]))


def _add_embedding(graph: Graph, embedding: Any, x: str) -> str:
    """Add a linear and a piecewise-linear embedding of each feature, side by side: ``(rows, features × size)``."""
    cells = graph.add("Unsqueeze", x, graph.constant([2]))
    linear = _scale(graph, embedding.linear0, cells)
    in_bins = _scale(graph, embedding.impl, cells)
    lowest = np.zeros(embedding.impl.weight.shape[1], np.float32)
    highest = np.ones_like(lowest)
    lowest[0], highest[-1] = -np.inf, np.inf  # the outer bins have no end
    in_bins = graph.add("Min", graph.add("Max", in_bins, graph.constant(lowest)), graph.constant(highest))
    pieces = _add_layer_of_each(graph, embedding.linear.weight, in_bins)
    return graph.add("Flatten", graph.add("Add", linear, pieces), axis=1)


def _scale(graph: Graph, layer: Any, x: str) -> str:
    return graph.add("Add", graph.add("Mul", x, graph.constant(layer.weight)), graph.constant(layer.bias))


def _add_shared_layer(graph: Graph, layer: Any, x: str) -> str:
    """Add a layer whose weights the members share, each with factors of its own before and after."""
    x = graph.add("Mul", x, graph.constant(layer.r))
    x = graph.add("MatMul", x, graph.constant(layer.weight.T))
    x = graph.add("Mul", x, graph.constant(layer.s))
    return graph.add("Add", x, graph.constant(layer.bias))


def _add_layer_of_each(graph: Graph, weights: Any, x: str) -> str:
    """Multiply ``(rows, n, inputs)`` by ``(n, inputs, outputs)``, a matrix for each of the n."""
    rows_second = graph.add("Transpose", x, perm=[1, 0, 2])
    products = graph.add("MatMul", rows_second, graph.constant(weights))
    return graph.add("Transpose", products, perm=[1, 0, 2])
