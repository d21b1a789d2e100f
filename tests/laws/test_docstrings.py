"""What a user hovers over is complete: every public name has a numpydoc docstring that matches its signature."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import re
from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property
from types import ModuleType
from typing import Any, get_type_hints

import pytest

import metricgrad as mg
from metricgrad.public_names import ON_DEMAND, available

pytestmark = pytest.mark.quick

SECTIONS = {
    *("Parameters", "Other Parameters", "Attributes", "Returns", "Yields", "Raises", "Warns"),
    *("Notes", "References", "See Also", "Examples", "Methods", "Warnings"),
}
# What takes scores on any scale says "scores" for "logits"; the rest is word for word the same.
WORDS = {
    "task": '"binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or '
    '``(N, K, ...)`` with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or '
    '``(N, ...)``, or soft labels of the shape of the logits. None is "binary" if the shapes leave no other reading, '
    "else an error.",
    "average": "How the values of the classes become one. None returns one per class. "
    '"samples" is the mean over rows, for multi-label problems.',
    "labels": "The classes that count; leave a negative class out.",
    "empty_classes": "What a class without positives does to the macro average: "
    '"count" (as in scikit-learn) or "skip".',
    "ignore_index": "Targets of this value do not count.",
    "process_group": "Make value and gradient those of all processes' data together; "
    "every process must call the loss and ``backward``.",
    "weight": "Per sample or per element.",
    "mask": "True for what counts.",
}
TAKING_SCORES = ["Evaluator", "bootstrap", "compare_paired", "decisions.TuningSpec", "evaluate", "tune_threshold"]


def public() -> Iterator[tuple[str, Any]]:
    """Yield the classes and functions of the public names, each once, with the name a user calls it by."""
    seen = set()
    on_demand = [name for name in ON_DEMAND if importlib.util.find_spec(name)]
    names = [*available(), *on_demand]
    modules = [(f"{name}.", value) for name in names if isinstance(value := getattr(mg, name), ModuleType)]
    for prefix, module, names in [("", mg, available()), *((p, m, m.__all__) for p, m in modules)]:
        for name in names:
            value = getattr(module, name)
            if (inspect.isclass(value) or inspect.isroutine(value)) and id(value) not in seen:
                seen.add(id(value))
                yield prefix + name, value


def members(owner: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties that this library wrote, a class's own and inherited ones."""
    for name in dir(owner):
        value = inspect.getattr_static(owner, name)
        value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        inner = value.func if isinstance(value, cached_property) else getattr(value, "fget", value)
        inner = getattr(inner, "fn", inner)  # a method that is there only if the wrapped classifier has it
        if name.startswith("_") or not inspect.isfunction(inner) or not inner.__module__.startswith("metricgrad"):
            continue
        if "." in inner.__qualname__:  # a function of a module that a class refers to is described there
            yield name, value if isinstance(value, property | cached_property) else inner


EVERYTHING = dict(public())
METHODS = {
    f"{name}.{inner}": (owner, inner, value)
    for name, owner in EVERYTHING.items()
    if inspect.isclass(owner)
    for inner, value in members(owner)
}


def sections(doc: str) -> dict[str, str]:
    """Return the sections of a numpydoc docstring by title; what comes first is under ""."""
    lines, found, title = doc.splitlines(), {"": ""}, ""
    for i, line in enumerate(lines):
        below = lines[i + 1] if i + 1 < len(lines) else ""
        if line in SECTIONS and set(below) == {"-"}:
            assert len(below) == len(line), f"the line under {line} is not as long"
            title = line
            assert title not in found, f"two sections {title}"
            found[title] = ""
        elif not (title and set(line) == {"-"} and lines[i - 1] == title):
            found[title] += f"{line}\n"
    return found


def entries(section: str) -> dict[str, tuple[str, str]]:
    """Return type and description of each entry ``name : type``; ``a, b : type`` stands for two."""
    found: dict[str, tuple[str, str]] = {}
    for head, body in re.findall(r"^(\S.*)\n((?:[ \t]+.*\n|\n)*)", section, re.MULTILINE):
        names, _, kind = head.partition(" : ")
        for name in names.split(","):
            found[name.strip().lstrip("*")] = kind.strip(), " ".join(body.split())
    return found


def described(value: Any) -> dict[str, tuple[str, str]]:
    """Return the entries of the parameters of a class or function."""
    found = sections(inspect.getdoc(value) or "")
    return entries(found.get("Parameters", "") + "\n" + found.get("Other Parameters", ""))


def signature(value: Any, bound: bool) -> tuple[dict[str, inspect.Parameter], bool]:
    """Return the public parameters, those of a TypedDict of keywords among them, and whether anything is returned."""
    signed = inspect.signature(value)
    parameters = dict(list(signed.parameters.items())[bound:])
    for name, parameter in list(parameters.items()):
        if parameter.kind is parameter.VAR_KEYWORD and "Unpack" in str(parameter.annotation):
            del parameters[name]
            options = get_type_hints(value)[name].__args__[0]
            parameters |= {key: parameter.replace(name=key) for key in get_type_hints(options)}
    shown = {name: parameter for name, parameter in parameters.items() if not name.startswith("_")}
    return shown, signed.return_annotation not in (None, "None", inspect.Signature.empty)


def says_default(text: str, default: Any) -> bool:
    """Tell whether a docstring names the default that the signature has."""
    if repr(default) == "<factory>":  # of a dataclass, whose signature does not show what it makes
        return True
    if isinstance(default, float) and "/" in text:
        return float(Fraction(text)) == default
    name = getattr(default, "__name__", None)  # of a metric
    return text in (repr(default), repr(name))


def check(value: Any, parameters: dict[str, inspect.Parameter], returns: bool, attributes: bool) -> None:
    """Fail unless the docstring has a summary and describes these parameters and what is returned."""
    doc = inspect.getdoc(value) or ""
    summary = doc.split("\n\n")[0].strip()
    assert summary.endswith((".", ":")), f"expected a summary that ends in a full stop, got {summary!r}"
    found, told = sections(doc), described(value)
    extra = entries(found.get("Attributes", "")) if attributes else {}
    assert not parameters.keys() - told.keys() - extra.keys(), "these parameters are not described"
    assert not told.keys() - parameters.keys(), "these are described and do not exist"
    for name, (kind, description) in [*told.items(), *extra.items()]:
        assert kind, f"{name} has no type"
        assert description, f"{name} has no description"
    for name, (kind, _) in told.items():
        default = parameters[name].default
        if default is not inspect.Parameter.empty and parameters[name].kind is not inspect.Parameter.VAR_KEYWORD:
            assert re.search(r"\b(default|optional)\b", kind), f"{name} has a default, which its type does not say"
            said = re.search(r"\bdefault (.+)$", kind)
            assert not said or says_default(said[1], default), f"{name} has another default, {default!r}"
    assert not returns or "Returns" in found or "Yields" in found, "expected a section Returns"


@pytest.mark.parametrize("name", EVERYTHING)
def test_a_public_class_or_function_is_described(name: str) -> None:
    value = EVERYTHING[name]
    of_class = inspect.isclass(value)
    parameters, returns = signature(value, bound=False)
    # The values that this library returns are dataclasses, whose fields are attributes to a user.
    check(value, parameters, returns and not of_class, attributes=of_class and dataclasses.is_dataclass(value))


@pytest.mark.parametrize("name", METHODS)
def test_a_public_method_or_property_is_described(name: str) -> None:
    owner, inner, value = METHODS[name]
    if isinstance(value, property | cached_property):
        check(value, {}, returns=False, attributes=False)
    else:
        # From the class, since an override without a docstring has that of its base, in editors too.
        check(getattr(owner, inner), *signature(value, bound=True), attributes=False)


def worded(owner: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Return the descriptions of shared parameters, of a class and of what calling it takes, and what they should be.

    A sentence about a choice, as '"samples" is ...' or 'None returns ...', is there if the type has that choice.
    """
    every = described(owner) | (described(owner.forward) if hasattr(owner, "forward") else {})
    told, wanted = {}, {}
    for name in every.keys() & WORDS.keys():
        kind, told[name] = every[name]
        choices = re.findall(r"'(\w+)'", kind) + ["None"] * ("None" in kind)
        said = [(re.match(r'"(\w+)"|(None)', text), text) for text in re.split(r"(?<=\.) ", WORDS[name])]
        wanted[name] = " ".join(text for about, text in said if not about or (about[1] or about[2]) in choices)
    return told, wanted


@pytest.mark.parametrize("name", [name for name in EVERYTHING if name.endswith("Loss")])
def test_losses_describe_the_same_parameter_in_the_same_words(name: str) -> None:
    told, wanted = worded(EVERYTHING[name])
    if name.startswith("keras."):  # which has the classes in the last axis
        wanted = {key: words.replace("(N, K, ...)", "(N, ..., K)") for key, words in wanted.items()}
    assert told == wanted


@pytest.mark.parametrize("name", TAKING_SCORES)
def test_so_does_what_takes_scores(name: str) -> None:
    told, wanted = worded(EVERYTHING[name])
    assert {"task", "average", "labels", "empty_classes"} <= told.keys()
    assert told == {key: words.replace("logits", "scores") for key, words in wanted.items()}


@pytest.mark.parametrize(
    ("doc", "message"),
    [
        ("Add.", "not described"),
        ("Add.\n\nParameters\n----------\na : int\n    One.\n", "not described"),
        ("Add.\n\nParameters\n----------\na, b, c : int, optional\n    All.\n", "do not exist"),
        ("Add.\n\nParameters\n----------\na, b : int, optional\n", "no description"),
        ("Add.\n\nParameters\n----------\na, b : int\n    Both.\n", "has a default"),
        ("Add.\n\nParameters\n----------\na : int\n    One.\nb : int, default 1\n    Two.\n", "another default, 0"),
        ("Add.\n\nParameters\n----------\na, b : int, optional\n    Both.\n", "section Returns"),
        ("", "summary"),
    ],
)
def test_the_check_can_fail(doc: str, message: str) -> None:
    def add(a: int, b: int = 0) -> int:
        return a + b

    add.__doc__ = doc
    with pytest.raises(AssertionError, match=message):
        check(add, *signature(add, bound=False), attributes=False)
