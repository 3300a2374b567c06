"""Settings that differ although every weight is in place: found by name, proved by trying them.

Each layer of the cell is held to PyTorch's input and its output is replaced by PyTorch's, so that
one run shows every layer that differs by itself, and not only the first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from migrate_kit.porting import passages
from migrate_kit.porting.cells import Guided
from migrate_kit.porting.match import laid_out, made_by, relative
from migrate_kit.porting.settings import Difference, settings

if TYPE_CHECKING:
    import numpy as np
    import torch

    from migrate_kit.porting.match import Matched
    from migrate_kit.porting.steps import Walk

# What one layer in float32 is apart from another float32 arithmetic: measured below 2e-6.
ROUNDING: Final = 5e-6


# A cell that gets another parameter would no longer load the checkpoints of the network as written.
_SHAPES: Final = ("has_bias", "affine")
_REBUILD: Final = "build the cell with it: it changes which parameters there are"


@dataclass(slots=True)
class Layer:
    """One layer of the cell held to PyTorch's input.

    ``came`` is how far its input was from PyTorch's before that, ``made`` how far its output is;
    NaN where there was nothing to compare, infinite where the shapes differ.
    """

    path: str
    module: str
    cell: Any
    kind: str
    came: float = math.nan
    made: float = math.nan
    passage: int | None = None


@dataclass(slots=True)
class Fix:
    """One setting of the cell to be changed.

    Attributes
    ----------
    cell, module : str
        Paths of the layer in both networks.
    what, torch_value, cell_value
        The setting, and what both have.
    line : str
        The argument to write where the cell is built.
    before, after : float
        How far this layer's output is from PyTorch's on PyTorch's input, without and with it.
    """

    cell: str
    module: str
    kind: str
    what: str
    torch_value: Any
    cell_value: Any
    line: str
    matters: str
    before: float = math.nan
    after: float = math.nan
    obstacle: str = ""
    difference: Difference | None = None
    live: Any = None


@dataclass(slots=True)
class Held:
    """A run in which every layer is held."""

    layers: dict[str, Layer] = field(default_factory=dict)
    output: Any = None


def hold(walk: Walk, found: dict[str, Matched], cell: Any, inputs: tuple[Any, ...]) -> Held:
    """Run the cell with every known layer held to PyTorch's input and output."""
    held = Held()
    turn: dict[str, int] = {}
    used: set[int] = set()
    now: dict[str, Any] = {}

    def before(path: str, inner: Any, given: np.ndarray[Any, Any] | None) -> Any:
        expected: np.ndarray[Any, Any] | None
        if path in found:
            calls = found[path].calls
            choice = calls[min(turn.get(path, 0), len(calls) - 1)]
            turn[path] = turn.get(path, 0) + 1
            step = walk.steps[choice.steps[0]]
            expected = None if step.given is None else step.given.numpy()
            now[path] = (step.module, made_by(walk, choice), None)
        else:
            near = passages.nearest(walk, inner, given, used)
            if near is None:
                now.pop(path, None)
                return None
            used.add(near[0])
            passage = walk.passages[near[0]]
            expected = passage.given.numpy()
            now[path] = (passage.module, passage.made.numpy(), near[0])
        like = None if given is None or expected is None else laid_out(expected, given)
        came = math.inf if like is None or given is None else relative(given, like)
        one = Layer(path, now[path][0], inner, type(inner).__name__, came, math.nan, now[path][2])
        seen = held.layers.get(path)
        if seen is None or came > seen.came:
            held.layers[path] = one
        return like

    def after(path: str, inner: Any, given: Any, made: np.ndarray[Any, Any] | None) -> Any:
        del given, inner
        if path not in now or made is None:
            return None
        expected = now.pop(path)[1]
        like = None if expected is None else laid_out(expected, made)
        apart = math.inf if like is None else relative(made, like)
        seen = held.layers[path].made
        held.layers[path].made = apart if math.isnan(seen) else max(seen, apart)
        return like

    watched = set(found) | {
        path for path, inner in cell.cells_and_names() if path and passages.stems_of(inner)
    }
    held.output = Guided(cell, before, after, watched)(inputs)
    return held


def differences(
    model: torch.nn.Module, walk: Walk, found: dict[str, Matched], held: Held
) -> list[Fix]:
    """Return every setting in which a layer of the cell differs from its counterpart."""
    fixes: list[Fix] = []
    for path, layer in held.layers.items():
        module, rank = _module_of(model, walk, found, layer)
        if module is None:
            continue
        fixes.extend(
            Fix(
                path,
                layer.module,
                layer.kind,
                d.what,
                d.torch_value,
                d.cell_value,
                d.line,
                d.matters,
                before=layer.made,
                obstacle=_REBUILD if d.what in _SHAPES else d.obstacle,
                difference=d,
                live=layer.cell,
            )
            for d in settings(module, layer.cell, rank)
        )
        if layer.passage is not None:
            fixes.extend(_activation(walk, layer, type(module).__name__))
    return fixes


def _activation(walk: Walk, layer: Layer, wanted: str) -> list[Fix]:
    """Say that the cell has another activation, where it has."""
    assert layer.passage is not None  # noqa: S101 - the caller has looked
    passage = walk.passages[layer.passage]
    if passages.stem(passage.operator) in passages.stems_of(layer.cell):
        return []
    return [
        Fix(
            layer.path,
            layer.module,
            layer.kind,
            "activation",
            wanted,
            layer.kind,
            f"nn.{_CELL_NAMES.get(wanted, wanted)}()",
            "output",
            before=layer.made,
            obstacle="another cell is to be put in its place",
        )
    ]


_CELL_NAMES: Final = {"Hardswish": "HSwish", "Hardsigmoid": "HSigmoid"}


def _module_of(
    model: torch.nn.Module, walk: Walk, found: dict[str, Matched], layer: Layer
) -> tuple[torch.nn.Module | None, int | None]:
    if layer.passage is not None:
        passage = walk.passages[layer.passage]
        return passages.module_of(model, passage), passage.given.dim()
    step = walk.steps[found[layer.path].choice.steps[0]]
    weight = step.parts.get("weight") or step.parts.get("running_mean")
    owner = step.module if weight is None else weight.name.rpartition(".")[0]
    try:
        module = model.get_submodule(owner)
    except AttributeError:
        return None, None
    return module, None if step.given is None else step.given.dim()


def apply(fixes: list[Fix]) -> list[Fix]:
    """Correct the live cells; return those that could be."""
    done = []
    for fix in fixes:
        if fix.difference is not None and not fix.obstacle:
            fix.difference.apply(fix.live)
            done.append(fix)
    return done


def undo(fixes: list[Fix]) -> None:
    """Give the live cells back what they had."""
    for fix in fixes:
        if fix.difference is not None and not fix.obstacle:
            fix.difference.undo(fix.live)
