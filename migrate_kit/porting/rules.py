"""What MindSpore's layers call the parameters of PyTorch's, read from a table.

A rule speaks of one parameter of one kind of layer. Where no rule speaks, the name stays.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from migrate_kit.errors import MigrateError
from migrate_kit.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import torch

# For the path of each layer the names of its class and of those it is built on, nearest first.
Kinds: TypeAlias = "Mapping[str, Sequence[str]]"

# What may happen to a tensor that has no place on the other side, or comes from nowhere.
NOT_MOVED = ("drop", "argument", "no counterpart", "ones", "zeros", "keep", "unfilled")


class ParameterRule(NamedTuple):
    """One parameter of one kind of layer, and where it goes.

    ``absent`` says what the cell's parameter holds where torch has none: ones, zeros, or keep.
    """

    torch_layer: str
    cell: str
    torch_parameter: str
    cell_parameter: str
    transform: str
    absent: str
    status: str
    note: str
    source: str


class Move(NamedTuple):
    """Where one tensor goes; one of the two names is empty where there is no other side."""

    torch_name: str
    cell_name: str
    transform: str

    @property
    def moved(self) -> bool:
        """Whether values travel."""
        return self.transform not in NOT_MOVED


@cache
def _rules() -> tuple[ParameterRule, ...]:
    return tuple(ParameterRule(**row) for row in read_table("mindspore_layers"))


@cache
def parameter_rules(torch_layer: str, cell: str = "") -> tuple[ParameterRule, ...]:
    """Return the rules for a kind of layer, the usual cell first.

    Parameters
    ----------
    torch_layer : str
        The name of the class, e.g. ``BatchNorm2d``.
    cell : str
        Only for this cell, e.g. ``nn.BatchNorm2d``.

    Examples
    --------
    >>> [(r.torch_parameter, r.cell_parameter) for r in parameter_rules("LayerNorm")][:2]
    [('weight', 'gamma'), ('bias', 'beta')]
    >>> parameter_rules("ConvTranspose1d")[0].transform
    'unsqueeze(2)'
    """
    return tuple(r for r in _rules() if r.torch_layer == torch_layer and cell in ("", r.cell))


def forward(transform: str, tensor: Any) -> Any:
    """Return what the cell holds for a tensor of torch's: the same bits in another shape.

    Parameters
    ----------
    transform : str
        ``identity``, or ``unsqueeze(2)`` and ``squeeze(2)``, one after the other.
    tensor
        Anything with ``shape`` and ``reshape``: a tensor, an array.

    Examples
    --------
    >>> import numpy as np
    >>> forward("unsqueeze(2)", np.zeros((8, 4, 3))).shape
    (8, 4, 1, 3)
    """
    return _reshaped(_steps(transform), tensor, transform)


def backward(transform: str, tensor: Any) -> Any:
    """Return what torch holds for a tensor of the cell's; it undoes :func:`forward`.

    Examples
    --------
    >>> import numpy as np
    >>> backward("unsqueeze(2)", np.zeros((8, 4, 1, 3))).shape
    (8, 4, 3)
    """
    steps = [(not add, at) for add, at in reversed(_steps(transform))]
    return _reshaped(steps, tensor, transform)


def _steps(transform: str) -> list[tuple[bool, int]]:
    """Return the steps of a transform: whether an axis is added, and where."""
    if transform == "identity":
        return []
    steps = []
    for step in transform.split():
        name, _, at = step.removesuffix(")").partition("(")
        if name not in ("unsqueeze", "squeeze") or not at.isdecimal():
            raise MigrateError(
                f"no such transform: {transform!r}",
                "tables/mindspore_layers.csv",
                "write identity, or steps such as unsqueeze(2) and squeeze(3)",
            )
        steps.append((name == "unsqueeze", int(at)))
    return steps


def _reshaped(steps: Sequence[tuple[bool, int]], tensor: Any, transform: str) -> Any:
    if not steps:
        return tensor
    shape = list(tensor.shape)
    for add, at in steps:
        if add and at <= len(shape):
            shape.insert(at, 1)
        elif not add and at < len(shape) and shape[at] == 1:
            del shape[at]
        else:
            raise MigrateError(
                f"{transform} does not fit the shape {tuple(tensor.shape)}",
                "a parameter's transform",
                "check that the two layers are of one kind",
            )
    return tensor.reshape(tuple(shape))


def class_names(layer: Any) -> tuple[str, ...]:
    """Return the names of a layer's class and those it is built on, as the table writes them.

    Examples
    --------
    >>> import torch
    >>> class_names(torch.nn.Flatten())
    ('Flatten', 'Module', 'object')
    """
    found = []
    for kind in type(layer).__mro__:
        room = f"{kind.__module__}."
        if room.startswith("mindspore.mint."):
            found.append(f"mint.nn.{kind.__name__}")
        elif room.startswith("mindspore.nn."):
            found.append(f"nn.{kind.__name__}")
        else:
            found.append(kind.__name__)
    return tuple(found)


def rename(name: str, kinds: Kinds) -> tuple[str, ...]:
    """Return what a tensor of torch's may be called in a cell, the likeliest name first.

    Parameters
    ----------
    name : str
        A key of a state dict.
    kinds : mapping of str to sequence of str
        For the path of each module the names of its class and the classes it is built on; ``""``
        is the whole.

    Examples
    --------
    >>> rename("norm.weight", {"norm": ["LayerNorm"]})
    ('norm.gamma', 'norm.weight')
    >>> rename("linear1.bias", {"": ["TransformerEncoderLayer"], "linear1": ["Linear"]})
    ('dense1.bias', 'linear1.bias')
    """
    return tuple(dict.fromkeys(new for new, _, _ in _candidates(name, kinds, {}) if new))


def _candidates(
    name: str, kinds: Kinds, cell_kinds: Kinds
) -> list[tuple[str, str, ParameterRule | None]]:
    """Return (name in the cell, transform, rule); the name is empty where the tensor is dropped."""
    path, _, leaf = name.rpartition(".")
    places = dict.fromkeys((_renamed_path(path, kinds), path))
    found: list[tuple[str, str, ParameterRule | None]] = []
    rules = _nearest(leaf, kinds.get(path, ()))
    for place in places:
        dot = f"{place}." if place else ""
        cells = cell_kinds.get(place, ())
        # Where the cell's own class has rules, they come first: a Dense and a 1x1 convolution both
        # call their tensor weight, and hold it in different shapes.
        for rule in sorted(rules, key=lambda rule: rule.cell not in cells):
            new = rule.cell_parameter
            if "*" in new:  # a pattern keeps what the star stands for
                new = leaf
            found.append((dot + new if new else "", rule.transform, rule))
        found.append((dot + leaf, "identity", None))
    return found


def _nearest(leaf: str, names: Sequence[str]) -> tuple[ParameterRule, ...]:
    """Return the rules for a parameter of the nearest class that has any."""
    for kind in names:
        rules = [r for r in parameter_rules(kind) if fnmatchcase(leaf, r.torch_parameter)]
        if rules:
            return tuple(rules)
    return ()


def _renamed_path(path: str, kinds: Kinds) -> str:
    """Return the path with each child called what its parent's cell calls it."""
    parts = path.split(".") if path else []
    new = []
    for i, part in enumerate(parts):
        child = part
        for kind in kinds.get(".".join(parts[:i]), ()):
            for rule in parameter_rules(kind):
                if rule.torch_parameter == f"{part}.*":
                    child = rule.cell_parameter.removesuffix(".*")
        new.append(child)
    return ".".join(new)


def kinds_of(layer: Any) -> dict[str, tuple[str, ...]]:
    """Return the class names of every layer in a torch module or a MindSpore cell, by path.

    Examples
    --------
    >>> import torch
    >>> kinds_of(torch.nn.Sequential(torch.nn.ReLU()))["0"]
    ('ReLU', 'Module', 'object')
    """
    if hasattr(layer, "named_modules"):
        return {path: class_names(child) for path, child in layer.named_modules()}
    if hasattr(layer, "cells_and_names"):
        return {path: class_names(child) for path, child in layer.cells_and_names()}
    return {}


def moves(module: torch.nn.Module, cell: Any) -> list[Move]:
    """Return where each tensor of a torch module goes in a cell, and what fills the rest.

    Both may be one layer or a whole of layers whose children have the same names.

    Parameters
    ----------
    module : torch.nn.Module
    cell
        A MindSpore Cell; only its parameters' names are read.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> import torch
    >>> cell = SimpleNamespace(parameters_and_names=lambda: [("gamma", None), ("beta", None)])
    >>> moves(torch.nn.LayerNorm(4, bias=False), cell)  # doctest: +NORMALIZE_WHITESPACE
    [Move(torch_name='weight', cell_name='gamma', transform='identity'),
     Move(torch_name='', cell_name='beta', transform='zeros')]
    """
    names = [name for name, _ in cell.parameters_and_names()]
    return moves_by_name(module.state_dict(keep_vars=True), names, kinds_of(module), kinds_of(cell))


def moves_by_name(
    names: Iterable[str], cell_names: Iterable[str], kinds: Kinds, cell_kinds: Kinds | None = None
) -> list[Move]:
    """Return the moves between two sets of names; see :func:`moves` and :func:`kinds_of`.

    Examples
    --------
    >>> moves_by_name(["bn.weight"], ["bn.bn2d.gamma"], {"bn": ["BatchNorm3d"]})
    [Move(torch_name='bn.weight', cell_name='bn.bn2d.gamma', transform='identity')]
    """
    free = dict.fromkeys(cell_names)
    found = []
    for name in names:
        choices = _candidates(name, kinds, cell_kinds or {})
        new, transform = next(
            ((new, transform) for new, transform, _ in choices if new in free), ("", "")
        )
        if new:
            del free[new]
        else:
            said = [rule.transform for new, _, rule in choices if rule and not new]
            transform = said[0] if said else "no counterpart"
        found.append(Move(name, new, transform))
    return found + [Move("", name, _filled(name, kinds)) for name in free]


def _filled(cell_name: str, kinds: Kinds) -> str:
    """Say what a cell's parameter holds where torch has none."""
    for path, names in kinds.items():
        for place in {path, _renamed_path(path, kinds)}:
            dot = f"{place}." if place else ""
            if not cell_name.startswith(dot):
                continue
            rest = cell_name[len(dot) :]
            for kind in names:
                for rule in parameter_rules(kind):
                    if rule.absent and fnmatchcase(rest, rule.cell_parameter):
                        return rule.absent
    return "unfilled"
