"""What is still open: places without a value, tensors without a place, pairs that do not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from migrate_kit.checkpoints.fit import Clash, Pair
from migrate_kit.checkpoints.rules.positions import is_position_embedding, resized
from migrate_kit.checkpoints.sides import Piece, is_derived
from migrate_kit.checkpoints.vocabulary import split_name, vocabulary

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Sequence

    from migrate_kit.checkpoints.fit import Fit
    from migrate_kit.checkpoints.sides import Slot

TIED = "tied weights"
COUNTER = "num_batches_tracked"
SECOND_SET = "a second set of the same weights, under another prefix"
_SPECTRAL = (
    "weight_orig",
    "weight_u",
    "weight_v",
    "parametrizations.weight.original",
    "parametrizations.weight.0._u",
    "parametrizations.weight.0._v",
)
_STATISTICS = ("running_mean", "running_var")


def tied_weights(fit: Fit) -> None:
    """Fill a place that is one tensor with a place that is filled."""
    filled: dict[Hashable, tuple[str, Pair]] = {}
    for name, pair in fit.pairs.items():
        if fit.slots[name].memory is not None:
            filled.setdefault(fit.slots[name].memory, (name, pair))
    for slot in fit.open_slots():
        if slot.memory in filled:
            name, pair = filled[slot.memory]
            piece = replace(pair.piece, rules=(*pair.piece.rules, TIED))
            reason = f"in the model it is one tensor with {name!r}"
            fit.pairs[slot.name] = Pair(piece, TIED, reason)


def counters(fit: Fit) -> None:
    """Leave at its value what counts training batches, or follows from the network's settings."""
    for slot in fit.open_slots():
        if not is_derived(slot.name):
            continue
        leaf = slot.name.rpartition(".")[2]
        known = vocabulary("buffer").get(leaf)
        meaning = known.meaning if known else "what the layer saves beside its tensors"
        if leaf == COUNTER:
            meaning += "; files from before PyTorch 0.4.1 have none"
        if not slot.is_tensor or leaf == COUNTER or not _is_meta(slot):
            fit.kept[slot.name] = meaning
    for name, clash in list(fit.clashes.items()):
        if is_derived(name) and not _is_meta(fit.slots[name]):
            leaf = name.rpartition(".")[2]
            del fit.clashes[name]
            fit.kept[name] = vocabulary("buffer")[leaf].meaning
            for source in clash.piece.sources:
                fit.left_out[source] = "the model's own, of another size, stays"


def position_embeddings(fit: Fit) -> None:
    """Offer to resize the grid of a position embedding."""
    for name, clash in list(fit.clashes.items()):
        slot = fit.slots[name]
        # The positions of a text, looked up in a table, are no grid.
        if not is_position_embedding(name) or slot.family == "embedding":
            continue
        offer = resized(clash.piece, slot.shape)
        if offer is not None:
            reason = f"a position embedding: {offer.rules[-1]}, bicubic with antialias as timm does"
            fit.clashes[name] = replace(clash, reason=reason, argument="positions", offer=offer)


def heads(fit: Fit) -> None:
    """Find the layers of another number of classes: only their first axis differs."""
    for name in list(fit.clashes):
        path, leaf = split_name(name)
        if leaf != "weight" or fit.slots[name].family not in ("linear", "conv"):
            continue
        bias = f"{path}.bias" if path else "bias"
        members = [n for n in (name, bias) if n in fit.slots]
        pieces = [fit.clashes[n].piece if n in fit.clashes else None for n in members]
        if all(
            p is not None and _other_count(p, fit.slots[n])
            for p, n in zip(pieces, members, strict=True)
        ):
            had, has = fit.clashes[name].piece.shape[0], fit.slots[name].shape[0]
            reason = f"the checkpoint has {had} classes or outputs here, the model {has}"
            for n in members:
                fit.clashes[n] = replace(fit.clashes[n], reason=reason, argument="head")


def renamed_heads(fit: Fit) -> None:
    """Bring a last layer together with the only one of its kind that is left in the file."""
    ours = [s for s in fit.open_slots() if s.family in ("linear", "conv") and _is_weight(s.name)]
    theirs = [p for p in fit.open_pieces() if _is_weight(p.name) and len(p.shape) > 1]
    if len(ours) != 1 or len(theirs) != 1 or not _other_count(theirs[0], ours[0]):
        return
    path, other = split_name(ours[0].name)[0], split_name(theirs[0].name)[0]
    for leaf in ("weight", "bias"):
        slot, name = (f"{p}.{leaf}" if p else leaf for p in (path, other))
        if slot in fit.slots and name in fit.pieces:
            rule = "the only layer left"
            fit.clashes[slot] = Clash(fit.pieces[name], rule, "")


def clashes(fit: Fit) -> None:
    """Say of every other clash what differs."""
    for name, clash in fit.clashes.items():
        if clash.reason:
            continue
        had, has = clash.piece.shape, fit.slots[name].shape
        if sorted(had) == sorted(has) and had != has:
            reason = "the same numbers in another order: transposed, or another layer"
        elif len(had) != len(has):
            reason = f"{len(had)} axes for {len(has)}"
        else:
            axes = [str(i) for i, (a, b) in enumerate(zip(had, has, strict=True)) if a != b]
            reason = f"another size along axis {', '.join(axes)}"
            if axes == ["1"] and len(had) == 4:
                reason += ": the network was built for another number of input channels"
        fit.clashes[name] = replace(clash, reason=reason)


def lacking(fit: Fit) -> None:
    """Say of every place that is still open why it may be."""
    for slot in fit.open_slots():
        leaf = slot.name.rpartition(".")[2]
        if leaf in _STATISTICS:
            reason = (
                "BatchNorm's statistics are not in the file: with the initial ones the output is"
                " wrong in eval mode"
            )
        elif not slot.is_tensor:
            reason = "what the layer saves beside its tensors"
        elif split_name(slot.name)[1] in _SPECTRAL:
            reason = "the model's weight has spectral norm, the checkpoint's has not"
        else:
            reason = _maybe_tied(fit, slot) or "nothing in the file fits"
        fit.lacking[slot.name] = reason


def _maybe_tied(fit: Fit, slot: Slot) -> str:
    """Say of an output layer that the original may have shared it with its embedding."""
    tables = (
        n
        for n, p in fit.pairs.items()
        if fit.slots[n].family == "embedding" and p.piece.shape == slot.shape
    )
    table = next(tables, None)
    if slot.family != "linear" or table is None:
        return ""
    source = fit.pairs[table].piece.sources[0]
    return (
        f"it has the size of {table!r}: if the original tied the two,"
        f" diagnose(..., pairs={{{slot.name!r}: {source!r}}})"
    )


def unexpected(fit: Fit, own_buffers: Sequence[str]) -> None:
    """Say of every tensor of the file that goes nowhere why it may."""
    paths = {split_name(n)[0] for n in fit.slots}
    buffers = set(own_buffers)
    for piece in fit.open_pieces():
        out = _not_needed(fit, piece, buffers)
        said = fit.left_out if out else fit.unexpected
        for source in piece.sources:
            said.setdefault(source, out or _no_place(fit, piece, paths))


def _not_needed(fit: Fit, piece: Piece, buffers: Collection[str]) -> str:
    leaf = piece.name.rpartition(".")[2]
    if leaf in vocabulary("extra"):
        return vocabulary("extra")[leaf].meaning
    if piece.name in buffers:
        return "the model makes this buffer itself (persistent=False)"
    if _second_set(fit, piece):
        return SECOND_SET
    return vocabulary("buffer")[leaf].meaning if leaf in vocabulary("buffer") else ""


def _no_place(fit: Fit, piece: Piece, paths: Collection[str]) -> str:
    path, _, leaf = piece.name.rpartition(".")
    if piece.name in fit.slots:
        return "its place in the model is taken"
    if leaf in _STATISTICS and path in paths:
        return "the model's layer keeps no statistics (track_running_stats=False)"
    if leaf == "bias" and path in paths:
        return "the model's layer has no bias"
    return "the model has no place for it"


def _second_set(fit: Fit, piece: Piece) -> bool:
    end = piece.name
    while "." in end:
        end = end.partition(".")[2]
        pair = fit.pairs.get(end)
        if pair is not None and pair.piece.shape == piece.shape:
            return "." in end
    return False


def _other_count(piece: Piece, slot: Slot) -> bool:
    a, b = piece.shape, slot.shape
    return len(a) == len(b) > 0 and a[0] != b[0] and a[1:] == b[1:]


def _is_weight(name: str) -> bool:
    return split_name(name)[1] == "weight"


def _is_meta(slot: Slot) -> bool:
    return isinstance(slot.value, torch.Tensor) and slot.value.is_meta
