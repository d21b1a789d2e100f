"""Source text that is written by rules: parameters that many losses share, and the presets for Keras.

    python tests/support/generated_sources.py

rewrites the docstrings in ``losses/`` and ``integrations/keras/losses.py`` from ``SHARED_PARAMETERS``, and
``integrations/keras/presets.py`` from ``losses/presets.py``. A test fails where a file differs from what this writes.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "metricgrad"
TORCH_PRESETS = PACKAGE / "losses" / "presets.py"
KERAS_PRESETS = PACKAGE / "integrations" / "keras" / "presets.py"
KERAS_LOSSES = PACKAGE / "integrations" / "keras" / "losses.py"
LINE_LENGTH = 120

_BINARY = '"binary": logits of any shape with targets of that shape.'
_MULTILABEL = '"multilabel": logits ``(N, K)`` or ``(N, K, ...)`` with targets of that shape.'
_MULTICLASS = (
    '"multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft labels of the shape of the '
    "logits."
)
_NO_TASK = 'None is "binary" if the shapes leave no other reading, else an error.'
_AVERAGE = "How the values of the classes become one."
_SAMPLES = '"samples" is the mean over rows, for multi-label problems.'

SHARED_PARAMETERS = {
    "task : {'binary', 'multilabel', 'multiclass'} or None": f"{_BINARY} {_MULTILABEL} {_MULTICLASS} {_NO_TASK}",
    "task : {'binary', 'multilabel', 'multiclass'}": f"{_BINARY} {_MULTILABEL} {_MULTICLASS}",
    "task : {'binary', 'multilabel'} or None": f"{_BINARY} {_MULTILABEL} {_NO_TASK}",
    "average : {'macro', 'micro', 'weighted', 'samples'} or None": f"{_AVERAGE} None returns one per class. {_SAMPLES}",
    "average : {'macro', 'micro', 'weighted', 'samples'}": f"{_AVERAGE} {_SAMPLES}",
    "average : {'macro', 'micro', 'weighted'} or None": f"{_AVERAGE} None returns one per class.",
    "average : {'macro', 'micro', 'weighted'}": _AVERAGE,
    "threshold : float or sequence of float": (
        "The threshold of a step on probabilities; with several, the loss is the mean over them."
    ),
    "labels : iterable of int, optional": "The classes that count; leave a negative class out.",
    "empty_classes : {'count', 'skip'}": (
        'What a class without positives does to the macro average: "count" (as in scikit-learn) or "skip".'
    ),
    "ignore_index : int, optional": "Targets of this value do not count.",
    "process_group : ProcessGroup or 'world', optional": (
        "Make value and gradient those of all processes' data together; every process must call the loss and "
        "``backward``."
    ),
    "reduction : {'mean', 'sum', 'none'}": (
        '"mean": Σ weight·term / Σ weight. "sum": Σ weight·term. "none": weight·term of each, 0 for what does not '
        "count."
    ),
    "surrogate : LogitSigmoid or Annealed, optional": (
        "``LogitSigmoid(beta)``, or ``Annealed`` from one to another, applied to logits minus the threshold; as β "
        "grows, the loss approaches 1 − the hard metric. By default ``LogitSigmoid()``."
    ),
    "logits : Tensor": "Raw scores, never probabilities; the shape is that of the task.",
    "weight : Tensor, optional": "Per sample or per element.",
    "mask : Tensor, optional": "True for what counts.",
}
"""By the line that names a parameter, without its default: what follows it."""

KERAS_EXAMPLES = {
    "soft_set": """\
>>> round(float(soft_set("f2")([1, 0, 1], [2.0, -1.0, 0.0])), 4)
0.2422""",
    "sigmoid_f1": """\
>>> round(float(sigmoid_f1()([[1, 0], [0, 1]], [[1.0, -1.0], [-2.0, 2.0]])), 4)
0.1952""",
    "unbounded_f1": """\
>>> round(float(unbounded_f1()([[1, 0], [0, 1]], [[1.0, 0.0], [0.0, 1.0]])), 4)
0.0""",
    "mfom_f1": """\
>>> round(float(mfom_f1()([[1, 0], [0, 1]], [[1.0, -1.0], [-2.0, 2.0]])), 4)
0.3524""",
    "multiclass_f_beta": """\
>>> logits = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
>>> round(float(multiclass_f_beta([0.5, 1.0, 2.0])([0, 1, 2], logits)), 4)
0.3643""",
    "soft_dice": """\
>>> round(float(soft_dice()([1, 0], [2.0, -1.0])), 4)
0.1806""",
}
"""The presets that Keras has, with their examples: Keras takes the targets first."""

KERAS_HEADER = '''\
"""Presets for Keras: one short function per published method, each a ``metricgrad.keras.MetricLoss``.

They are those of ``metricgrad.presets``, on whose pages the differences between papers and released code are named. The
file is written from ``losses/presets.py`` by ``tests/support/generated_sources.py``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from metricgrad.core.metrics import f1, f_beta
from metricgrad.core.surrogates import Identity, Linear, LogitSigmoid, TopTwo, Unbounded, UnitsVsZeros
from metricgrad.integrations.keras.losses import MetricLoss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from metricgrad.core.batch import Task
    from metricgrad.core.metrics import Metric
    from metricgrad.core.metrics.averages import Average, EmptyClasses

    Step = Callable[..., Any]
'''


def write_shared_parameters(source: str, classes_last: bool = False) -> str:
    """Return source text with the shared parameters of its docstrings written anew.

    ``classes_last``: whether the classes are the last axis, as in Keras.
    """
    lines = source.split("\n")
    written = []
    place = 0
    while place < len(lines):
        line = lines[place]
        place += 1
        written.append(line)
        text = SHARED_PARAMETERS.get(re.sub(r", default .*$", "", line.strip()))
        if text is None:
            continue
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        while lines[place].startswith(indent):
            place += 1
        if classes_last:
            text = text.replace("(N, K, ...)", "(N, ..., K)")
        written += textwrap.wrap(
            text, LINE_LENGTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
        )
    return "\n".join(written)


def write_keras_presets(torch_source: str) -> str:
    """Return the source of the presets for Keras, given that of the presets for torch."""
    functions = [node for node in ast.parse(torch_source).body if isinstance(node, ast.FunctionDef)]
    written = [KERAS_HEADER]
    for function in functions:
        if function.name in KERAS_EXAMPLES:
            segment = ast.get_source_segment(torch_source, function)
            assert segment is not None
            written.append(_write_keras_preset(function.name, segment))
    return "\n\n".join(written)


def _write_keras_preset(name: str, source: str) -> str:
    # Keras has no process groups, losses have names, and thresholds are no tensors.
    source = source.replace("process_group: ProcessGroup | None = None", f'name: str = "{name}"')
    source = source.replace("process_group=process_group", "name=name")
    source = source.replace(" | Tensor = ", " = ")
    source = _replace_parameter(source, "process_group", f"name : str, default '{name}'", "The name that Keras shows.")
    source = source.replace("(N, K, ...)", "(N, ..., K)")
    # There are no learned surrogates either.
    source = re.sub(r"    classes: int \| None = None,\n", "", source)
    source = _replace_parameter(source, "classes")
    source = source.replace(", or where learning starts.", ".")
    source = source.replace("_smooth_errors(classes, alpha, beta)", "UnitsVsZeros(alpha, beta)")
    source = _remove_section(source, "Notes")
    source = _remove_section(source, "See Also")
    see_also = f"    See Also\n    --------\n    metricgrad.presets.{name} : The same in torch.\n\n"
    examples = textwrap.indent(KERAS_EXAMPLES[name], "    ")
    return (
        re.sub(
            r"    Examples\n    --------\n.*?\n    \"\"\"\n",
            lambda _: f'{see_also}    Examples\n    --------\n{examples}\n    """\n',
            source,
            count=1,
            flags=re.DOTALL,
        )
        + "\n"
    )


def _replace_parameter(source: str, name: str, header: str = "", text: str = "") -> str:
    """Return source text in which a parameter of the docstring has become another one, or none."""
    replacement = f"    {header}\n        {text}\n" if header else ""
    return re.sub(rf"    {name} : [^\n]*\n(?:        [^\n]*\n)+", lambda _: replacement, source, count=1)


def _remove_section(source: str, title: str) -> str:
    """Return source text without a section of the docstring, which another section follows."""
    return re.sub(rf"    {title}\n    -+\n.*?\n\n(?=    \S[^\n]*\n    -+\n)", "", source, count=1, flags=re.DOTALL)


def list_generated() -> Iterator[tuple[Path, str]]:
    """Yield every file that is written by rules, and what it should hold."""
    for path in sorted((PACKAGE / "losses").rglob("*.py")):
        yield path, write_shared_parameters(path.read_text())
    yield KERAS_LOSSES, write_shared_parameters(KERAS_LOSSES.read_text(), classes_last=True)
    yield KERAS_PRESETS, write_keras_presets(write_shared_parameters(TORCH_PRESETS.read_text()))


if __name__ == "__main__":
    for path, text in list_generated():
        if path.read_text() != text:
            path.write_text(text)
            print(path)
