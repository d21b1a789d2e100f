"""Options that other libraries have and this one has not, or under another name: what to do instead, for messages."""

from __future__ import annotations

import difflib
import inspect
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

INSTEAD = {
    "class_weight": "give each sample the weight of its class, weight= when the loss is called",
    "from_logits": "leave it out: losses always take logits, and evaluate and tune_threshold scores on any scale",
    "num_classes": "leave it out: the number of classes is that of the columns; say task='multiclass' or 'multilabel'",
    "num_labels": "leave it out: the number of labels is that of the columns; say task='multilabel'",
    "pos_label": "leave it out: the positive class is 1",
    "pos_weight": "a metric has its own balance; mg.baselines.bce(positive_weight=...) weighs the positives",
    "reduction": "leave it out: a metric is one number of the whole batch; average=None gives one per class",
    "sample_weight": "it is weight= here",
    "size_average": "leave it out: a metric is one number of the whole batch; average=None gives one per class",
    "smooth": "leave it out: 0/0 is safe; mg.baselines.dice(smooth=...) has it",
    "weight": "give weights with the data, when the loss is called",
    "y_pred": "the arguments are scores and then targets",
    "y_score": "the arguments are scores and then targets",
    "y_true": "the arguments are scores and then targets",
    "zero_division": "0/0 is 0; another value by functools.partial(mg.metrics.f1, empty=1.0)",
}


def explain_unknown(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Let a function answer an option that it does not have with what to do instead, in a ``TypeError`` as Python's."""
    signature = inspect.signature(function)
    known = [name for name in signature.parameters if name != "self"]
    owner = function.__qualname__.removesuffix(".__init__")

    @wraps(function)
    def checked(*args: Parameters.args, **options: Parameters.kwargs) -> Result:
        for name in options:
            if name not in signature.parameters:
                close = difflib.get_close_matches(name, known, n=1)
                instead = INSTEAD.get(name) or (
                    f"did you mean {close[0]}=?" if close else f"it takes {', '.join(known)}"
                )
                raise TypeError(f"{owner}: unknown option {name}=; {instead}")
        return function(*args, **options)

    return checked
