"""What a port says: what was left out and why, and whether the two are one architecture."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from migrate_kit.porting.hyperparameters import ROUNDING
from migrate_kit.results import Finding, counted, few, number

if TYPE_CHECKING:
    import torch

    from migrate_kit.porting.hyperparameters import Held, Layer
    from migrate_kit.porting.match import Matching
    from migrate_kit.porting.port_report import PortReport
    from migrate_kit.porting.steps import Walk

# At least so much of the layers must be found by their data, and of the weights have a place.
_ENOUGH: Final = 0.5


def same_architecture(
    run: Walk, matching: Matching, tensors: dict[str, torch.Tensor], left: list[str]
) -> bool:
    """Whether enough of both networks was found in the other to load any weights."""
    layers = [p for p, place in matching.places.items() if place.family]
    found = [m for m in matching.found.values() if m.evidence != "order"]
    if not layers or not run.steps:
        return bool(matching.found) or not layers
    floats = sum(t.numel() for t in tensors.values() if t.is_floating_point())
    lost = sum(tensors[n].numel() for n in left)
    return len(found) >= _ENOUGH * len(layers) and lost <= (1 - _ENOUGH) * max(1, floats)


def findings_of(report: PortReport, run: Walk, matching: Matching, held: Held) -> list[Finding]:
    """Return what there is to say before the weights are loaded, the gravest first."""
    found: list[Finding] = []
    total = len([p for p, place in matching.places.items() if place.family])
    if not report.loaded:
        sure = len([m for m in matching.found.values() if m.evidence != "order"])
        nearest = max(
            (m for m in matching.found.values() if m.evidence != "order"),
            key=lambda m: matching.order.index(m.place.path),
            default=None,
        )
        where = f"the last that agrees: {nearest.place.path}" if nearest else ""
        found.append(
            Finding(
                "error",
                f"the cell is another architecture: {sure} of its {counted(total, 'layer')} were"
                f" given what a layer of PyTorch's was given ({len(run.steps)} there);"
                " it keeps its own weights",
                where,
                "build the MindSpore network of the same name and size",
            )
        )
    found.extend(_places(report))
    found.extend(_apart(report, held))
    found.extend(_doubts(report))
    return found


def _places(report: PortReport) -> list[Finding]:
    found = []
    biases = [n for n in report.left_out if n.endswith("bias")]
    others = [n for n in report.left_out if n not in biases]
    if biases:
        found.append(
            Finding(
                "error",
                f"{len(biases)} {'biases have' if len(biases) > 1 else 'bias has'} no place: the"
                " cell's layer was built without one",
                few(biases),
                "build the layer with has_bias=True; without it the outputs cannot agree",
            )
        )
    if others:
        found.append(
            Finding(
                "error" if report.loaded else "info",
                f"{counted(len(others), 'tensor')} of PyTorch's {_have(others)} no place there",
                few(others),
                "a part that only training uses (an auxiliary head) may stay out; for anything else"
                " the cell lacks a layer",
            )
        )
    if report.unfilled:
        found.append(
            Finding(
                "error" if report.loaded else "info",
                f"{counted(len(report.unfilled), 'parameter')} of the cell"
                f" {_have(report.unfilled)} no counterpart and"
                f" {'keep their' if len(report.unfilled) > 1 else 'keeps its'} own values",
                few(report.unfilled),
                "a part that only training uses may keep them; anything else is another network",
            )
        )
    return found


def _have(names: list[str]) -> str:
    return "have" if len(names) > 1 else "has"


def _apart(report: PortReport, held: Held) -> list[Finding]:
    """Say where the cell computes something else although weights and settings agree."""
    if not report.loaded:
        return []
    named = {f.cell for f in report.fixes if f.matters == "output"}
    own = [x for x in held.layers.values() if x.made > ROUNDING and not math.isnan(x.made)]
    between = [x for x in held.layers.values() if x.came > 1e3 * ROUNDING and x not in own]
    found = []
    unknown = [x for x in own if x.path not in named]
    if unknown:
        found.append(_layer("computes something else on the same input", unknown, "made"))
    if between and report.random_error > 1e3 * ROUNDING:
        found.append(
            _layer(
                "is given something else than in PyTorch: look between it and the layer before",
                between,
                "came",
            )
        )
    return found


def _layer(what: str, layers: list[Layer], side: str) -> Finding:
    first = layers[0]
    more = f" ({len(layers) - 1} more)" if len(layers) > 1 else ""
    far = number(getattr(first, side))
    return Finding(
        "error",
        f"{first.kind} {first.path!r} {what}, relative difference {far}{more}",
        f"in PyTorch: {first.module or 'the network itself'}",
        "compare the two lines of code",
    )


def _doubts(report: PortReport) -> list[Finding]:
    found = []
    order = [r for r in report.mapping if r.evidence == "order"]
    if order:
        found.append(
            Finding(
                "warning",
                f"{counted(len(order), 'parameter')} paired by order alone: nothing else told",
                few([f"{r.torch_name} -> {r.cell_name}" for r in order]),
                "check them: the proof below compares the outputs",
            )
        )
    output = [f for f in report.fixes if f.matters == "output"]
    for (kind, what), some in _grouped(output).items():
        first = some[0]
        stuck = [f for f in some if f.obstacle]
        found.append(
            Finding(
                "error" if stuck else "warning",
                f"{what} differs in {counted(len(some), 'layer')} ({kind}): PyTorch"
                f" {first.torch_value}, the cell {first.cell_value}",
                few([f.cell for f in some]),
                f"{stuck[0].obstacle}" if stuck else f"write {first.line or what}",
            )
        )
    training = _grouped([f for f in report.fixes if f.matters == "training"])
    for (kind, what), some in training.items():
        found.append(
            Finding(
                "info",
                f"{what} differs in {counted(len(some), 'layer')} ({kind}), which only training"
                f" sees: PyTorch's is {some[0].torch_value}, the cell's {some[0].cell_value}",
                few([f.cell for f in some]),
                f"write {some[0].line or what}",
            )
        )
    return found


def _grouped(fixes: list) -> dict[tuple[str, str], list]:  # type: ignore[type-arg]
    groups: dict[tuple[str, str], list] = {}  # type: ignore[type-arg]
    for fix in fixes:
        groups.setdefault((fix.kind, fix.what), []).append(fix)
    return groups
