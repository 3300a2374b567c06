"""Say why a checkpoint does not fit a network, and what would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from migrate_kit.checkpoints.fit import Fit, Pair, pair_by_name
from migrate_kit.checkpoints.load_report import LoadReport
from migrate_kit.checkpoints.orders import is_alphabetical
from migrate_kit.checkpoints.originals import Candidate, Original, prove, settle
from migrate_kit.checkpoints.proof import Trial
from migrate_kit.checkpoints.repair import Allowed, plan
from migrate_kit.checkpoints.rules import gaps
from migrate_kit.checkpoints.rules.adapters import Scaling, merge_lora, scaling_beside
from migrate_kit.checkpoints.rules.attention import attention
from migrate_kit.checkpoints.rules.layout import (
    axes_of_convolutions,
    axes_of_linear_layers,
    reshaped,
)
from migrate_kit.checkpoints.rules.legacy import legacy_names, variable_paths
from migrate_kit.checkpoints.rules.quantized import packed, quantization
from migrate_kit.checkpoints.rules.reparametrized import (
    spectral_norm,
    unfold_weight_norm,
    weight_norm,
)
from migrate_kit.checkpoints.rules.wrappers import unwrap
from migrate_kit.checkpoints.runs import copy_of, order_of_calls
from migrate_kit.checkpoints.sides import pieces_of, slots_of
from migrate_kit.checkpoints.structure import choices, place
from migrate_kit.checkpoints.taken import Taken, take_checkpoint, take_model
from migrate_kit.errors import MigrateError, meant
from migrate_kit.results import Finding

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from migrate_kit.checkpoints.checkpoint import Checkpoint
    from migrate_kit.checkpoints.sides import Slot
    from migrate_kit.checkpoints.state import StateDict

# What brings the file's tensors into the model's form, in this order.
_FORMS = (
    legacy_names,
    weight_norm,
    spectral_norm,
    unfold_weight_norm,
    attention,
    axes_of_convolutions,
    axes_of_linear_layers,
)


def diagnose(
    model: torch.nn.Module,
    checkpoint: str
    | os.PathLike[str]
    | Checkpoint
    | StateDict
    | Mapping[str, Any]
    | torch.nn.Module,
    *inputs: Any,
    reference: torch.nn.Module | None = None,
    pairs: Mapping[str, str] | None = None,
    lora_alpha: float | None = None,
) -> LoadReport:
    """Find out what of a checkpoint goes where in a model, and repair what does not load.

    Names, shapes and dtypes are enough: no tensor is read, and the model may be on the meta device.
    Every repair that is proposed was tried: it loads strictly.

    Parameters
    ----------
    model : torch.nn.Module
        The network that shall take the weights. It is not changed.
    checkpoint
        A file's path, what :func:`migrate_kit.load_checkpoint` returned, a state_dict, a dict that
        holds one, or a network.
    *inputs
        What the model is called with: its run shows the order of its layers.
    reference : torch.nn.Module, optional
        The network that the checkpoint was saved from. With ``inputs``, layers of one shape are
        told apart by the values they get, and the repaired model is compared with it.
    pairs : mapping, optional
        What you know: name in the model to name in the checkpoint.
    lora_alpha : float, optional
        What a LoRA in the checkpoint was trained with, if no ``adapter_config.json`` is beside it.

    Returns
    -------
    LoadReport
        ``.repair()`` gives the state_dict, ``.code()`` a script.

    Raises
    ------
    MigrateError
        If there is no network or no tensors in what was given, or the networks cannot run.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Linear(4, 2)
    >>> saved = torch.nn.DataParallel(torch.nn.Linear(4, 2)).state_dict()
    >>> report = diagnose(model, saved)
    >>> report.findings[0].fix
    "model.load_state_dict({k.removeprefix('module.'): v for k, v in state.items()})"
    >>> model.load_state_dict(report.repair())
    <All keys matched successfully>
    """
    network = take_model(model, checkpoint)
    slots = slots_of(network)
    if not slots:
        raise MigrateError(
            "the model has no parameters", type(network).__name__, "pass the network that has them"
        )
    taken = take_checkpoint(checkpoint, slots)
    scaling = scaling_beside(taken.path) if lora_alpha is None else Scaling(float(lora_alpha))
    trial = Trial(network)
    given = pairs or {}

    def told(*, by_names: bool) -> tuple[LoadReport, bool]:
        fit = _named(slots, taken, scaling)
        if by_names:
            pair_by_name(fit)
        _given(fit, taken.state, given)
        chosen = choices(fit)
        if chosen and inputs:
            chosen = choices(fit, order_of_calls(network, inputs))
        beside = _beside(network, taken.state, reference, inputs, fit)
        if beside is not None and chosen:
            settle(fit, chosen, *beside)
        place(fit, chosen)
        _close(fit, network)
        report = LoadReport(network, fit, trial, taken)
        return report, beside is None or _compare(report, beside)

    report, proved = told(by_names=True)
    if not proved:
        # Names can be another layer's by accident; then values alone may tell more.
        again, proved = told(by_names=False)
        if proved:
            again.findings.append(
                Finding("warning", "names of the checkpoint are those of other layers", "", "")
            )
            return again
    return report


def _named(slots: Mapping[str, Slot], taken: Taken, scaling: Scaling | None) -> Fit:
    """Return the fit as far as names go."""
    entries = taken.state.entries
    fit = Fit(
        slots,
        pieces_of(taken.state),
        {name: i for i, name in enumerate(entries)},
        {name: e.memory for name, e in entries.items()},
        is_alphabetical(list(entries)),
        findings=list(taken.findings),
    )
    pieces = variable_paths(fit.pieces, slots)
    pieces, alone = merge_lora(pieces, slots, scaling, fit.findings)
    fit.unexpected |= dict.fromkeys(alone, "a LoRA that could not be merged")
    fit.blocked = alone
    pieces, fit.renamings = unwrap(pieces, slots)
    for form in _FORMS:
        pieces = form(pieces, slots)
    fit.pieces, more = unwrap(pieces, slots)
    fit.renamings += more
    unusable, left_out, findings = quantization(fit.pieces, slots)
    unusable |= packed(fit.pieces, slots)
    fit.findings += findings
    for said, names in ((fit.unexpected, unusable), (fit.left_out, left_out)):
        said.update({s: why for n, why in names.items() for s in fit.pieces[n].sources})
    return fit


def _given(fit: Fit, state: StateDict, pairs: Mapping[str, str]) -> None:
    """Put what the caller knows before everything else."""
    for name, source in pairs.items():
        known = [(name, fit.slots, "model"), (source, state.entries, "checkpoint")]
        for word, names, side in known:
            if word not in names:
                raise MigrateError(
                    f"the {side} has no tensor {word!r}{meant(str(word), names)}",
                    "pairs=",
                    "give full names: {'layer.weight': 'other.weight'}",
                )
        piece = next((p for p in fit.pieces.values() if p.sources == (source,)), None)
        fitting = piece
        if piece is not None and piece.shape != fit.slots[name].shape:
            fitting = reshaped(piece, fit.slots[name].shape)
        if fitting is None:
            raise MigrateError(
                f"{source!r} is {state.entries[source].shape}, {name!r} is {fit.slots[name].shape}",
                "pairs=",
                "pair tensors of one shape",
            )
        fit.clashes.pop(name, None)
        fit.pairs[name] = Pair(fitting, "given", "by pairs=")


def _close(fit: Fit, network: torch.nn.Module) -> None:
    """Say of all that is open why."""
    gaps.tied_weights(fit)
    gaps.renamed_heads(fit)
    gaps.counters(fit)
    gaps.position_embeddings(fit)
    gaps.heads(fit)
    gaps.clashes(fit)
    gaps.lacking(fit)
    gaps.unexpected(fit, [n for n, _ in network.named_buffers() if n not in fit.slots])


def _beside(
    network: torch.nn.Module,
    state: StateDict,
    reference: torch.nn.Module | None,
    inputs: tuple[Any, ...],
    fit: Fit,
) -> tuple[Original, Candidate] | None:
    """Return the original with the checkpoint's weights, and a copy of the model beside it."""
    if reference is None:
        return None
    if not isinstance(reference, torch.nn.Module):
        raise MigrateError(
            f"reference is a {type(reference).__name__}, not a network",
            "reference=",
            "pass the network that the checkpoint was saved from",
        )
    if not inputs:
        what = "reference= was not used: without inputs the networks cannot be run"
        fix = "diagnose(model, checkpoint, *inputs, reference=...)"
        fit.findings.append(Finding("warning", what, "reference=", fix))
        return None
    own = _named(slots_of(reference), Taken(state), None)
    pair_by_name(own)
    _close(own, reference)
    placed, _, problems = plan(own, Allowed())
    if problems:
        error = problems.error()
        raise MigrateError(
            f"the checkpoint does not fit the reference: {error.what}",
            "reference=",
            "pass the network that the checkpoint was saved from",
        )
    original = copy_of(reference)
    loader = Candidate(original, state)
    loader.fill(placed)
    homes = {p.sources[0]: name for name, p in placed.items()}
    return Original(loader.network, homes, inputs), Candidate(network, state)


def _compare(report: LoadReport, beside: tuple[Original, Candidate]) -> bool:
    """Compare the repaired model with the original; whether they compute the same.

    Where no repair was found there is nothing to compare, and nothing was proved.
    """
    placed = report.placed()
    if placed is None:
        return False
    report.proof, finding = prove(placed, *beside)
    # A verdict comes before what led to it.
    report.findings.insert(0, finding)
    return finding.level != "error"
