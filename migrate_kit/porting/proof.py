"""The two networks side by side, layer by layer, with the weights they now share."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from migrate_kit.layers.capture import capture
from migrate_kit.layers.compare import compare
from migrate_kit.layers.runners.mindspore_runner import MindSporeRunner

if TYPE_CHECKING:
    import torch

    from migrate_kit.layers.compare import LayerDiff
    from migrate_kit.layers.store import Trace
    from migrate_kit.porting.hyperparameters import Held
    from migrate_kit.porting.match import Matching


def compared(
    model: torch.nn.Module, cell: Any, inputs: tuple[Any, ...], matching: Matching, held: Held
) -> LayerDiff:
    """Run both in eval mode and compare every pair of layers that was found."""
    ours = capture(copy.deepcopy(model).eval(), *inputs)
    training = [(inner, inner.training) for _, inner in cell.cells_and_names()]
    try:
        cell.set_train(False)
        theirs = capture(MindSporeRunner(cell), *inputs)
    finally:
        for inner, flag in training:
            inner.training = flag
    return compare(ours, theirs, pairing=_names(model, ours, theirs, matching, held))


def _names(
    model: torch.nn.Module, ours: Trace, theirs: Trace, matching: Matching, held: Held
) -> dict[str, str]:
    """Return which cell is which module, where both are recorded and make the same tensor."""
    known = {r.name: r for r in ours.records if r.channel == "forward"}
    there = {r.name: r for r in theirs.records if r.channel == "forward"}
    names: dict[str, str] = {}
    taken: set[str] = set()
    for path, layer in held.layers.items():
        module = layer.module
        if path in matching.found:
            choice = matching.found[path].choice
            if choice.rows is not None or len(choice.steps) > 1:
                continue
        # A module of the network's own may do more than the step in it.
        own = type(model.get_submodule(module)).__module__ if module in known else ""
        if not own.startswith("torch.nn") or path not in there or module in names or path in taken:
            continue
        if known[module].stats.numel == there[path].stats.numel:
            names[module] = path
            taken.add(path)
    return names
