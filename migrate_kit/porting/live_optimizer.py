"""Put a PyTorch optimizer's state into a live MindSpore optimizer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from migrate_kit.errors import MigrateError
from migrate_kit.layers.runners import mindspore_import
from migrate_kit.porting.moments import OptimizerState
from migrate_kit.porting.optimizer_state import KINDS, optimizer_state
from migrate_kit.results import Finding, counted, few

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from torch import nn

_EXPERIMENTAL = "mindspore.experimental.optim."


def load_optimizer(
    optimizer: Any,
    state: Mapping[str, Any] | str | os.PathLike[str] | OptimizerState,
    names: Mapping[str, str] | None = None,
    *,
    model: nn.Module | None = None,
) -> OptimizerState:
    """Put a PyTorch optimizer's state into a MindSpore optimizer, in place.

    Parameters
    ----------
    optimizer
        ``mindspore.nn.SGD``, ``Momentum`` or ``Adam``, or ``mindspore.experimental.optim.AdamW``.
    state, names, model
        As for :func:`optimizer_state`.

    Returns
    -------
    OptimizerState
        What was put in; its findings name the arguments that differ from PyTorch's.

    Raises
    ------
    MigrateError
        If there is no counterpart, or a tensor does not fit; the optimizer is then as it was.
    """
    kind = type(optimizer)
    to = kind.__name__
    path = f"{_EXPERIMENTAL if kind.__module__.startswith(_EXPERIMENTAL) else 'mindspore.nn.'}{to}"
    if to in KINDS and path != KINDS[to].cell:
        raise MigrateError(f"state for {path} is not known", "optimizer", f"take {KINDS[to].cell}")
    if isinstance(state, OptimizerState):
        found = state
    else:
        found = optimizer_state(state, names, to=to, model=model)
    if found.optimizer != path:
        raise MigrateError(f"the state is for {found.optimizer}", path, f"give to={to!r}")
    own = {parameter.name: parameter for parameter in optimizer.get_parameters()}
    missing = [name for name in found.entries if name not in own]
    if missing:
        raise MigrateError(
            f"{counted(len(missing), 'tensor')} that the optimizer lacks: {few(missing)}",
            path,
            f"check names=; its own are {few([p.name for p in optimizer.parameters])}",
        )
    values = {name: _fitted(name, t, own[name]) for name, t in found.entries.items()}
    tensor = mindspore_import.load().Tensor
    for name, value in values.items():
        own[name].set_data(tensor(value, own[name].dtype))
    return found.with_findings(_differing(optimizer, found.arguments))


def _fitted(name: str, tensor: torch.Tensor, parameter: Any) -> Any:
    """Return the array in the parameter's shape, which may have axes of length one more."""
    shape = tuple(parameter.shape)
    if [n for n in shape if n != 1] != [n for n in tensor.shape if n != 1]:
        raise MigrateError(
            f"shape {tuple(tensor.shape)} for {shape}",
            few([name]),
            "check names=: they follow the order in which PyTorch's optimizer got its parameters",
        )
    # NumPy has no bfloat16; the parameter's own dtype is set when it is put in.
    exact = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    return exact.reshape(shape).numpy()


def _differing(optimizer: Any, arguments: Mapping[str, Any]) -> list[Finding]:
    """Say which arguments of the live optimizer are not PyTorch's; what is unreadable is not."""
    groups = getattr(optimizer, "param_groups", None)
    place = (
        groups[0]
        if groups
        else vars(optimizer)
        | {p.name: p for p in optimizer.get_parameters() if p.name in ("learning_rate", "momentum")}
    )
    found = []
    for name, wanted in arguments.items():
        own = _number(place.get(name))
        if own is None or _alike(own, wanted):
            continue
        what = f"{name} is {own!r} here and {wanted!r} in PyTorch"
        found.append(Finding("warning", what, type(optimizer).__name__, f"{name}={wanted!r}"))
    decay = arguments.get("weight_decay")
    if not groups and decay and not getattr(optimizer, "is_group", True):
        names = [p.name for p in optimizer.parameters if "gamma" in p.name or "beta" in p.name]
        if names:
            what = f"{counted(len(names), 'parameter')} called gamma or beta decay not, as no group"
            fix = f'[{{"params": net.trainable_params(), "weight_decay": {decay}}}]'
            found.append(Finding("warning", what, few(names), fix))
    return found


def _number(value: Any) -> Any:
    """Return a setting as plain numbers; None where it is a schedule or of several groups."""
    if hasattr(value, "asnumpy"):
        return value.asnumpy().item() if value.size == 1 else None
    if isinstance(value, tuple) and not all(isinstance(v, float | int) for v in value):
        return None
    return value if isinstance(value, bool | int | float | tuple) else None


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    # MindSpore keeps float32.
    return math.isclose(float(one), float(other), rel_tol=1e-6)
