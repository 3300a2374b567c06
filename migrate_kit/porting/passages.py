"""Layers without parameters: which of PyTorch's operators a cell's pool or activation is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from torch import nn

from migrate_kit.porting.match import SAME, nearness

if TYPE_CHECKING:
    import numpy as np

    from migrate_kit.porting.steps import Passage, Walk

# The operator's stem, and the cells that are it.
_CELLS: Final = {
    "max_pool2d": ("MaxPool2d",),
    "max_pool2d_with_indices": ("MaxPool2d",),
    "avg_pool2d": ("AvgPool2d",),
    "gelu": ("GELU", "FastGelu"),
    "relu": ("ReLU",),
    "silu": ("SiLU",),
    "hardtanh": ("ReLU6", "Hardtanh"),
    "hardswish": ("HSwish",),
    "hardsigmoid": ("HSigmoid",),
    "sigmoid": ("Sigmoid",),
    "tanh": ("Tanh",),
    "leaky_relu": ("LeakyReLU",),
    "elu": ("ELU",),
    "mish": ("Mish",),
    "upsample_nearest2d": ("Upsample",),
    "upsample_bilinear2d": ("Upsample",),
    "upsample_bicubic2d": ("Upsample",),
}
ACTIVATIONS: Final = frozenset(
    (
        "gelu",
        "relu",
        "silu",
        "hardtanh",
        "hardswish",
        "hardsigmoid",
        "sigmoid",
        "tanh",
        "leaky_relu",
        "elu",
        "mish",
    )
)
_NAMES: Final = {
    "gelu": "GELU",
    "relu": "ReLU",
    "silu": "SiLU",
    "hardtanh": "ReLU6",
    "hardswish": "Hardswish",
    "hardsigmoid": "Hardsigmoid",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "leaky_relu": "LeakyReLU",
    "elu": "ELU",
    "mish": "Mish",
}


def stem(operator: str) -> str:
    """Return the bare name of an ATen operator: ``relu`` of ``aten.relu_.default``."""
    return operator.split(".")[1].removesuffix("_")


def stems_of(cell: Any) -> frozenset[str]:
    """Return the operators that a cell without parameters may be; empty for what is not known."""
    for kind in type(cell).__mro__:
        if kind.__module__.startswith("mindspore."):
            found = frozenset(s for s, cells in _CELLS.items() if kind.__name__ in cells)
            if found:
                return found
    return frozenset()


def nearest(
    walk: Walk, cell: Any, given: np.ndarray[Any, Any] | None, used: set[int]
) -> tuple[int, float] | None:
    """Return which operator of PyTorch had this input, and how near it is.

    The same operator where there is one; another activation where only that had this input.
    """
    own = stems_of(cell)
    if given is None or not own:
        return None
    best: tuple[bool, float, int] | None = None
    for number, passage in enumerate(walk.passages):
        name = stem(passage.operator)
        same = name in own
        if number in used or not (same or (name in ACTIVATIONS and own & ACTIVATIONS)):
            continue
        distance = nearness(given, passage.given.numpy())
        if math.isinf(distance) or (distance > SAME and not same):
            continue
        one = (not same, distance, number)
        best = one if best is None or one < best else best
    return None if best is None else (best[2], best[1])


def module_of(  # noqa: PLR0911 - one line an operator
    model: nn.Module, passage: Passage
) -> nn.Module | None:
    """Return a module with the settings of one call: the one it came from, or one made for it."""
    name = stem(passage.operator)
    a = passage.options
    try:
        own = model.get_submodule(passage.module)
    except AttributeError:
        own = None
    if own is not None and type(own).__name__ in {*_NAMES.values(), *_modules(name)}:
        return own
    if name.startswith("max_pool2d"):
        k, s, p, d, c = (*a, *((), 0, 1, False)[len(a) - 1 :])[:5]
        return nn.MaxPool2d(_pair(k), _pair(s) or _pair(k), _pair(p), _pair(d), ceil_mode=bool(c))
    if name == "avg_pool2d":
        k, s, p, c, i = (*a, *((), 0, False, True)[len(a) - 1 :])[:5]
        return nn.AvgPool2d(_pair(k), _pair(s) or _pair(k), _pair(p), bool(c), bool(i))
    if name == "gelu":
        return nn.GELU(str(passage.named.get("approximate", a[0] if a else "none")))
    if name == "leaky_relu":
        return nn.LeakyReLU(float(a[0]) if a else 0.01)
    if name == "hardtanh":
        low, high = (*a, *(-1.0, 1.0)[len(a) :])[:2]
        return nn.ReLU6() if (low, high) == (0, 6) else nn.Hardtanh(float(low), float(high))
    if name in _NAMES:
        made: nn.Module = getattr(nn, _NAMES[name])()
        return made
    return None


def _modules(name: str) -> tuple[str, ...]:
    return {
        "max_pool2d_with_indices": ("MaxPool2d",),
        "max_pool2d": ("MaxPool2d",),
        "avg_pool2d": ("AvgPool2d",),
        "hardtanh": ("Hardtanh", "ReLU6"),
    }.get(name, ("Upsample",) if name.startswith("upsample") else ())


def _pair(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(value) if len(set(value)) > 1 else (value[0] if value else None)
    return value
