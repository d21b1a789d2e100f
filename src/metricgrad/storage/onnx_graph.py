"""An ONNX graph under construction: inputs, operators and constants, each known by its name."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper, numpy_helper
from torch import Tensor

LEARNING = "ai.onnx.ml"
"""The domain of ONNX's own operators for trees and categories."""
RUNTIME = "com.microsoft"
"""The domain of the operators of ONNX Runtime alone."""
OUTPUTS = ("scores", "labels")

_OPSETS = {"": 17, LEARNING: 3, RUNTIME: 1}  # runtimes since 2022 support these versions, and this format
_FORMAT = 8


class Graph:
    """Inputs, operators and constants; every method returns the name of what it adds.

    ``dtype``: the type of numbers in the inputs.
    """

    def __init__(self, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        self.inputs: dict[str, Any] = {}
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add_input(self, name: str, dtype: Any, width: int) -> str:
        """Declare an input ``(rows, width)``, once; one that is named as an output gets another name."""
        own_name = name_input(name)
        info = helper.make_tensor_value_info(own_name, onnx_type(dtype), ["rows", width])
        if self.inputs.setdefault(own_name, info) != info:
            raise ValueError(f"column {name!r}: expected the same kind for all members, got two")
        return own_name

    def add(self, kind: str, *inputs: str, name: str | None = None, output: int = 0, **attributes: Any) -> str:
        """Add an operator, of which one output is used."""
        name = name or f"/{kind}_{len(self.nodes)}"
        outputs = [*(f"{name}_{i}" for i in range(output)), name]  # nobody reads the outputs before the wanted one
        self.nodes.append(helper.make_node(kind, inputs, outputs, name=name, **attributes))
        return name

    def constant(self, value: Any) -> str:
        """Add a constant."""
        name = f"/constant_{len(self.constants)}"
        array = value.detach().numpy() if isinstance(value, Tensor) else np.asarray(value)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def cast(self, x: str, dtype: Any, name: str | None = None) -> str:
        """Convert the type of a value."""
        return self.add("Cast", x, name=name, to=onnx_type(dtype))

    def concatenate(self, columns: list[str]) -> str:
        """Put matrices side by side."""
        return self.add("Concat", *columns, axis=1) if len(columns) > 1 else columns[0]

    def take_columns(self, x: str, places: Any) -> str:
        """Take columns of a matrix: several, as a matrix, or one, as a vector."""
        return self.add("Gather", x, self.constant(np.asarray(places, np.int64)), axis=1)

    def repeat_row(self, row: Any, rows: str) -> str:
        """Repeat one row of numbers for as many rows as another value has."""
        one = np.asarray(row, np.float64)[None]
        count = self.add("Shape", rows, end=1)
        shape = self.add("Concat", count, self.constant([one.shape[1]]), axis=0)
        return self.add("Expand", self.constant(one), shape)

    def average(self, values: list[str]) -> str:
        """Return the mean of several values of the same shape."""
        if len(values) == 1:
            return values[0]
        return self.add("Div", self.add("Sum", *values), self.constant(float(len(values))))

    def make_model(self, name: str, outputs: list[Any]) -> Any:
        """Return the model, with the outputs' types and shapes."""
        made = helper.make_graph(self.nodes, name, list(self.inputs.values()), outputs, self.constants)
        used = {"", *(node.domain for node in self.nodes)}
        opsets = [helper.make_opsetid(domain, number) for domain, number in _OPSETS.items() if domain in used]
        return helper.make_model(made, opset_imports=opsets, ir_version=_FORMAT)


def name_input(column: str) -> str:
    """Return the name of a column's input: another one if an output has it."""
    return f"{column} (column)" if column in OUTPUTS else column


def onnx_type(dtype: Any) -> int:
    """Return ONNX's number of a type of numpy."""
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
