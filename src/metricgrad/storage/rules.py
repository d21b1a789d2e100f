"""A decision rule alone in a JSON file, to be kept beside a model that another library saves."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypedDict

from metricgrad import __version__, strict_json
from metricgrad.atomic_files import write_file
from metricgrad.decisions.rules import Rule
from metricgrad.storage.values import NotPlainError, decode, encode


class _RuleFile(TypedDict):
    """What a file of a rule holds."""

    format: Literal[1]
    metricgrad: strict_json.Name
    rule: dict[str, Any]


def save_rule(rule: Rule, path: str | Path) -> Path:
    """Write a decision rule into a JSON file; an existing one is replaced.

    Parameters
    ----------
    rule : Rule
        What ``mg.tune_threshold`` found, ``tuning.rule``, or any other rule of ``mg.decisions``.
    path : str or Path
        Where to write, such as ``"model/rule.json"``.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ValueError
        If it is no rule of this library.

    Examples
    --------
    >>> import tempfile
    >>> from metricgrad.decisions import Threshold
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     load_rule(save_rule(Threshold((0.5, 0.1)), f"{folder}/rule.json"))
    Threshold(threshold=(0.5, 0.1))

    """
    if not isinstance(rule, Rule):
        raise ValueError(f"rule: expected a decision rule, such as tuning.rule, got {type(rule).__name__}")
    try:
        encoded = encode(rule)
    except NotPlainError as error:
        raise ValueError(f"rule: expected one of this library, got {rule!r}; a file holds no code") from error
    place = Path(path).resolve()
    write_file(place, strict_json.seal({"format": 1, "metricgrad": __version__, "rule": encoded}))
    return place


def load_rule(path: str | Path) -> Rule:
    """Return the rule that ``save_rule`` wrote. Nothing in the file is run, and its hash is compared first.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    Rule
        An equal rule.

    Raises
    ------
    ValueError
        If the file was changed since it was written, or holds no rule.

    """
    place = Path(path)
    contents = strict_json.unseal(strict_json.read_file(place), _RuleFile, place.name)
    try:
        rule = decode(contents["rule"])
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{place.name}: expected a rule, got {strict_json.first_line(error)}") from error
    if not isinstance(rule, Rule):
        raise ValueError(f"{place.name}: expected a rule, got {type(rule).__name__}")
    return rule
