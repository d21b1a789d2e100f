"""States of what takes part in a run, as tensors and plain values: modules, optimisers, generators, random numbers.

Tensors that are sharded over processes (DTensor) become whole ones, and are sharded again when they are loaded.
"""

from __future__ import annotations

import importlib
import random
import sys
from collections import Counter, OrderedDict
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

_PLAIN_TYPES = (bool, int, float, complex, str, bytes, torch.Size, torch.dtype, torch.device)


def get_state(name: str, part: Any) -> Any:
    """Return the state of a part, or raise if it could not be loaded again; every process calls it."""
    if isinstance(part, torch.Generator):
        return None  # one for each process, which is kept with the random states
    if not hasattr(part, "state_dict"):
        return _make_loadable(name, part, gather=True)
    _check_sharding(name, part)
    return _make_loadable(name, part.state_dict(), gather=isinstance(part, torch.nn.Module | Optimizer))


def load_state(part: Any, saved: Any, saved_description: Any = None) -> None:
    """Put a state into a part, an optimiser if it was described like this one. Every process calls it."""
    if isinstance(part, Optimizer):
        # torch compares the number of parameters alone.
        if saved_description != describe_optimiser(part):
            raise ValueError(f"it is of {saved_description}, here there is {describe_optimiser(part)}")
        saved = {**saved, "state": _shard_optimiser_state(part, saved["state"])}
    elif isinstance(part, torch.nn.Module):
        here = part.state_dict()
        sharded = OrderedDict((key, _shard_like(here.get(key), value)) for key, value in saved.items())
        saved = _copy_attributes(sharded, saved)
    part.load_state_dict(saved)


def describe_optimiser(optimiser: Optimizer) -> str:
    """Return the kind of an optimiser and the shapes of its parameters.

    >>> describe_optimiser(torch.optim.SGD(torch.nn.Linear(3, 2).parameters()))
    'SGD of (2, 3), (2,)'
    """
    shapes = (str(tuple(parameter.shape)) for parameter in _list_parameters(optimiser))
    return f"{type(optimiser).__name__} of {', '.join(shapes)}"


def _list_parameters(optimiser: Optimizer) -> list[Tensor]:
    """Return the parameters in the order by which the optimiser's state numbers them."""
    return [parameter for group in optimiser.param_groups for parameter in group["params"]]


def _make_loadable(name: str, value: Any, gather: bool) -> Any:
    """Return a value with sharded tensors whole (None but on rank 0); refuse what ``weights_only`` would not load."""
    kind = type(value)
    if kind in (dict, OrderedDict, Counter):
        found: Any = kind()
        for key, item in value.items():
            found[_make_loadable(name, key, gather=False)] = _make_loadable(f"{name}[{key!r}]", item, gather)
        return _copy_attributes(found, value)
    if kind in (list, tuple, set):
        return kind(_make_loadable(name, item, gather) for item in value)
    if gather and _is_sharded(value):
        whole = value.detach().full_tensor()
        return whole.cpu() if get_rank() == 0 else None
    if value is None or kind in (Tensor, torch.nn.Parameter, *_PLAIN_TYPES):
        return value
    raise ValueError(f"{name}: expected tensors and plain values, got {kind.__name__}; convert it")


def _copy_attributes(new: Any, old: Any) -> Any:
    """Return a dict with the attributes of another: a module's state has the versions of its layers in one."""
    if isinstance(old, OrderedDict):
        vars(new).update(vars(old))
    return new


# Sharded tensors


def _is_sharded(value: Any) -> bool:
    """Return whether a value is a DTensor, without importing its class."""
    return isinstance(value, Tensor) and hasattr(value, "full_tensor")


def _shard_like(here: Any, whole: Any) -> Any:
    """Return a whole tensor sharded as the one here is, if it is."""
    if not _is_sharded(here) or not isinstance(whole, Tensor):
        return whole
    distribute = importlib.import_module("torch.distributed.tensor").distribute_tensor
    return distribute(whole.to(here.device), here.device_mesh, here.placements)


def _shard_optimiser_state(optimiser: Optimizer, saved: dict[Any, dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    """Return the states of all parameters, sharded as these are.

    ``set_optimizer_state_dict`` of torch does this too, but steps an optimiser that has no state yet: a run resumed
    before its first step would then not equal one that was never interrupted.
    """
    parameters = _list_parameters(optimiser)
    sharded: dict[Any, dict[str, Any]] = {}
    for number, parameter_state in saved.items():
        parameter = parameters[number]
        sharded[number] = {}
        for key, value in parameter_state.items():
            sharded[number][key] = _shard_like(parameter, value) if _has_shape_of(value, parameter) else value
    return sharded


def _has_shape_of(value: Any, parameter: Tensor) -> bool:
    """Return whether a part of an optimiser's state has a number for each of a parameter's."""
    return isinstance(value, Tensor) and value.dim() > 0 and value.shape == parameter.shape


def _check_sharding(name: str, part: Any) -> None:
    """Refuse what is sharded in ways that do not tell how to shard it again."""
    if isinstance(part, torch.nn.Module):
        if any(type(module).__name__ == "FullyShardedDataParallel" for module in part.modules()):
            raise ValueError(f"{name}: expected no FullyShardedDataParallel (FSDP1), got one; use fully_shard (FSDP2)")
    elif isinstance(part, Optimizer):
        for parameter, state in part.state.items():
            for key, value in state.items():
                if _is_sharded(value) and not _has_shape_of(value, parameter):
                    raise ValueError(
                        f"{name}: expected sharded states of their parameter's shape {tuple(parameter.shape)}, got "
                        f"{key!r} of shape {tuple(value.shape)}; save this optimiser with torch.distributed.checkpoint"
                    )


# Random states


def get_random_state() -> dict[str, Any]:
    """Return the random states of Python, torch and, where it is in use, numpy, as plain values."""
    found: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.get_rng_state_all()
    if numpy := sys.modules.get("numpy"):
        kind, words, *rest = numpy.random.get_state()
        found["numpy"] = (kind, words.tolist(), *rest)
    return found


def set_random_state(state: dict[str, Any]) -> None:
    """Put random states back."""
    random.setstate(state["python"])
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
    if "numpy" in state:
        importlib.import_module("numpy").random.set_state(state["numpy"])


# Processes


def get_rank() -> int:
    """Return the number of this process."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def get_world_size() -> int:
    """Return how many processes there are."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def gather_from_processes(value: Any) -> list[Any]:
    """Return the values of all processes, each of which calls it."""
    found: list[Any] = [value]
    if get_world_size() > 1:
        found *= get_world_size()
        dist.all_gather_object(found, value)
    return found
