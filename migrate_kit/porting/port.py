"""Put the weights of a PyTorch network into a MindSpore cell, and prove that they compute alike."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from migrate_kit.errors import MigrateError
from migrate_kit.porting import hyperparameters
from migrate_kit.porting.cells import Guided, as_array, put_back, set_values, values_of
from migrate_kit.porting.free import Loose, pair_loose
from migrate_kit.porting.match import Matched, Matching, relative, squeezed
from migrate_kit.porting.port_report import Mapped, PortReport
from migrate_kit.porting.proof import compared
from migrate_kit.porting.randomize import randomized
from migrate_kit.porting.steps import Part, walk
from migrate_kit.porting.verdict import findings_of, same_architecture

if TYPE_CHECKING:
    import os

    from migrate_kit.porting.steps import Walk

# What PyTorch counts and MindSpore does not.
COUNTERS: Final = "num_batches_tracked"


def port(
    torch_model: torch.nn.Module,
    cell: Any,
    *inputs: Any,
    out: str | os.PathLike[str] | None = None,
    apply_fixes: bool = False,
) -> PortReport:
    """Load a PyTorch network's weights into a MindSpore cell of the same architecture.

    No names are needed. Both networks run with the same random weights; each layer of the cell is
    paired with the step of PyTorch that was given the same input, so fused or split projections,
    other orders and other names do not matter. Settings that differ (eps, padding, the form of
    GELU ...) are listed with the line to write, each tried on the live cell.

    Parameters
    ----------
    torch_model : torch.nn.Module
        It is not changed. Its eval mode is ported.
    cell : mindspore.nn.Cell
        Gets the weights in place; its training flag stays. If it is another architecture it keeps
        its own.
    *inputs : Tensor
        What both networks are called with: ``torch_model(*inputs)``, ``cell(*inputs)``.
    out : path, optional
        Also write the cell's parameters: ``.ckpt`` or ``.safetensors``.
    apply_fixes : bool
        Leave the corrected settings on the live cell. Without it they are tried and taken back.

    Returns
    -------
    PortReport
        ``mapping``, ``fixes``, ``diff`` (layer by layer), ``R`` of the output, ``findings``.

    Raises
    ------
    MigrateError
        If a network cannot run on the inputs, or MindSpore is missing.

    Examples
    --------
    >>> import torch
    >>> from migrate_kit.layers.runners.mindspore_import import load
    >>> ms = load()
    >>> report = port(torch.nn.Linear(3, 2), ms.nn.Dense(3, 2), torch.ones(1, 3))
    >>> report.ok, [(row.torch_name, row.cell_name) for row in report.mapping]
    (True, [('weight', 'weight'), ('bias', 'bias')])
    """
    _check(torch_model, cell, inputs)
    target = None if out is None else _target(out)
    before = values_of(cell)
    try:
        report = _ported(torch_model, cell, inputs, before, apply_fixes=apply_fixes)
    except BaseException:
        put_back(cell, before)
        raise
    if target is not None and report.loaded:
        report.path = _written(cell, target)
    return report


def _ported(
    torch_model: torch.nn.Module,
    cell: Any,
    inputs: tuple[Any, ...],
    before: dict[str, torch.Tensor],
    *,
    apply_fixes: bool,
) -> PortReport:
    model = randomized(torch_model)
    tensors = _tensors(model)
    run = walk(model, inputs)
    matching = Matching(run, tensors, cell).run(inputs)
    loose = _place_loose(run, tensors, cell, matching)
    if loose:  # now that they are in place, the data says more
        matching = Matching(run, tensors, cell).run(inputs)
        loose = _place_loose(run, tensors, cell, matching)
    held = hyperparameters.hold(run, matching.found, cell, inputs)
    fixes = hyperparameters.differences(model, run, matching.found, held)
    done = hyperparameters.apply(fixes)
    again = hyperparameters.hold(run, matching.found, cell, inputs) if done else held
    for fix in done:
        fix.after = again.layers[fix.cell].made
    proved = _apart(Guided(cell)(inputs), run.output)
    mapping = [*_mapped(matching.found), *_mapped_loose(loose, tensors, cell)]
    report = PortReport(torch_model, cell, mapping, fixes)
    report.random_error = proved
    left, empty = _left_over(mapping, tensors, before, cell)
    report.left_out, report.unfilled = left, empty
    report.loaded = same_architecture(run, matching, tensors, left)
    report.findings = findings_of(report, run, matching, again)
    if not report.loaded:
        hyperparameters.undo(done)
        put_back(cell, before)
        return report
    _load(torch_model, cell, mapping, before, matching)
    if not apply_fixes:
        hyperparameters.undo(done)
    report.applied = apply_fixes
    report.diff = compared(torch_model, cell, inputs, matching, again)
    report.judge()
    return report


# --- the weights ----------------------------------------------------------------------------------


def _place_loose(
    run: Walk, tensors: dict[str, torch.Tensor], cell: Any, matching: Matching
) -> list[Loose]:
    placed = {p.name for m in matching.found.values() for ps in m.choice.parts.values() for p in ps}
    held = {n for m in matching.found.values() for n, _ in m.place.parameters.values()}
    free = {n: p for n, p in cell.parameters_and_names() if n not in held}
    shapes = {
        n: tuple(t.shape)
        for n, t in tensors.items()
        if n not in placed and t.is_floating_point() and not n.endswith(COUNTERS)
    }
    pairs = pair_loose(run, shapes, free, matching.found)
    for pair in pairs:
        set_values(free[pair.name], tensors[pair.source])
    return pairs


def _mapped(found: dict[str, Matched]) -> list[Mapped]:
    rows = []
    for one in found.values():
        for role, parts in one.choice.parts.items():
            if role not in one.place.parameters:
                continue
            name, parameter = one.place.parameters[role]
            shape = tuple(parameter.shape)
            rows.append(
                Mapped(
                    " + ".join(map(str, parts)),
                    name,
                    _transform(parts, shape),
                    one.evidence,
                    one.choice.distance,
                    one.rivals,
                    parts,
                    shape,
                )
            )
    return rows


def _mapped_loose(loose: list[Loose], tensors: dict[str, torch.Tensor], cell: Any) -> list[Mapped]:
    own = dict(cell.parameters_and_names())
    rows = []
    for one in loose:
        part = Part(one.source, tuple(tensors[one.source].shape))
        shape = tuple(own[one.name].shape)
        transform = _transform((part,), shape)
        rows.append(
            Mapped(
                one.source, one.name, transform, one.evidence, math.nan, one.rivals, (part,), shape
            )
        )
    return rows


def _transform(parts: tuple[Part, ...], shape: tuple[int, ...]) -> str:
    if len(parts) > 1:
        return f"joined from {len(parts)}"
    part = parts[0]
    if part.start is not None:
        return f"rows {part.start} to {part.stop}"
    return "identity" if part.shape == shape else f"reshape to {shape}"


def _left_over(
    mapping: list[Mapped],
    tensors: dict[str, torch.Tensor],
    before: dict[str, torch.Tensor],
    cell: Any,
) -> tuple[list[str], list[str]]:
    used = {p.name for row in mapping for p in row.parts}
    named = {row.cell_name for row in mapping}
    left = [
        n
        for n, t in tensors.items()
        if n not in used and t.is_floating_point() and not n.endswith(COUNTERS)
    ]
    trained = {n for n, p in cell.parameters_and_names() if p.requires_grad}
    return left, [n for n in before if n not in named and n in trained]


def _load(
    torch_model: torch.nn.Module,
    cell: Any,
    mapping: list[Mapped],
    before: dict[str, torch.Tensor],
    matching: Matching,
) -> None:
    """Write the real weights; what has no source gets back what it had, or what does nothing."""
    tensors = _tensors(torch_model)
    own = dict(cell.parameters_and_names())
    named = {row.cell_name for row in mapping}
    neutral = {n for m in matching.found.values() for n, _ in m.place.parameters.values()} - named
    for name, parameter in own.items():
        # A bias that was added to the cell is new, and what a layer lacks was neutral already.
        if name not in named and name not in neutral and name in before:
            set_values(parameter, before[name])
    for row in mapping:
        values = torch.cat([p.of(tensors).detach().cpu() for p in row.parts])
        set_values(own[row.cell_name], values)


def _tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name: t.detach() for name, t in named}


# --- the rest -------------------------------------------------------------------------------------


def _check(torch_model: Any, cell: Any, inputs: tuple[Any, ...]) -> None:
    if not isinstance(torch_model, torch.nn.Module):
        raise MigrateError(
            f"the first argument is a {type(torch_model).__name__}, not a torch.nn.Module",
            "port(torch_model, cell, *inputs)",
            "build the network and load its weights first: mk.diagnose helps where they do not fit",
        )
    if not (hasattr(cell, "cells_and_names") and hasattr(cell, "parameters_and_names")):
        raise MigrateError(
            f"the second argument is a {type(cell).__name__}, not a mindspore.nn.Cell",
            "port(torch_model, cell, *inputs)",
            "build the MindSpore network first; its weights may be anything",
        )
    if not inputs:
        raise MigrateError(
            "no inputs were given: the networks are paired by what they compute",
            "port(torch_model, cell, *inputs)",
            "add what the network is called with, e.g. torch.randn(1, 3, 224, 224)",
        )
    names = [n for n, _ in cell.parameters_and_names()]
    twice = sorted({n for n in names if names.count(n) > 1}) if len(names) < 1 << 14 else []
    if twice:
        raise MigrateError(
            f"two parameters of the cell are called {twice[0]!r}",
            type(cell).__name__,
            "give each a name of its own, and keep cells in a CellList",
        )


def _apart(ours: Any, theirs: Any) -> float:
    a, b = as_array(ours), _first(theirs)
    if a is None or b is None or squeezed(a.shape) != squeezed(tuple(b.shape)):
        return math.inf
    return relative(a, b.numpy().reshape(a.shape))


def _first(value: Any) -> torch.Tensor | None:
    from torch.utils._pytree import tree_leaves

    return next((t for t in tree_leaves(value) if isinstance(t, torch.Tensor)), None)


def _target(out: str | os.PathLike[str]) -> Path:
    path = Path(out)
    if path.suffix not in (".ckpt", ".safetensors"):
        raise MigrateError(
            f"out= ends in {path.suffix!r}, which says no format",
            str(path),
            "end it in .ckpt or .safetensors",
        )
    return path


def _written(cell: Any, path: Path) -> Path:
    from migrate_kit.checkpoints.write import write_state_dict

    form = "mindspore" if path.suffix == ".ckpt" else "safetensors"
    write_state_dict(values_of(cell), path, form)
    return path
