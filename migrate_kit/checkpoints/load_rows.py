"""One line of a diagnosis: a place in the model, what goes there, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from migrate_kit.checkpoints.fit import SAME_NAME
from migrate_kit.checkpoints.vocabulary import split_name

if TYPE_CHECKING:
    import torch

    from migrate_kit.checkpoints.fit import Clash, Fit, Pair
    from migrate_kit.checkpoints.sides import Piece, Slot

Status = Literal[
    "same name",
    "renamed",
    "made",
    "kept",
    "dtype differs",
    "shape differs",
    "missing",
    "ambiguous",
    "unexpected",
    "left out",
]
# The statuses of a place that gets its value from the checkpoint.
LOADED = ("same name", "renamed", "made", "dtype differs")


@dataclass(frozen=True)
class LoadRow:
    """A place of the model, or a tensor of the checkpoint that has none.

    Attributes
    ----------
    key : str
        The name in the model's state_dict; empty for a tensor that goes nowhere.
    shape, dtype
        Of the place; None and empty without one.
    source : str or None
        The name in the checkpoint; of a value that is made of several, their names joined by +.
    source_shape, source_dtype
        Of the tensor in the checkpoint, before anything is done to it.
    status : str
        ``same name``, ``renamed``; ``made``: computed from the checkpoint's tensors; ``kept``: the
        model's own value stays; ``dtype differs``: it loads and is converted; ``shape differs``;
        ``missing``; ``ambiguous``; ``unexpected``; ``left out``: not needed.
    rule : str
        The rules that brought key and source together, in order, separated by semicolons.
    reason : str
        Why, in a sentence.
    """

    key: str
    shape: tuple[int, ...] | None
    dtype: str
    source: str | None
    source_shape: tuple[int, ...] | None
    source_dtype: str
    status: Status
    rule: str = ""
    reason: str = ""


def rows_of(fit: Fit) -> list[LoadRow]:
    """Return a row for every place, in the model's order, then one for every tensor left over."""
    ambiguous = {name: a for a in fit.ambiguities for name in a.slots}
    rows = []
    for name, slot in fit.slots.items():
        if name in fit.pairs:
            rows.append(_paired(fit, slot, fit.pairs[name]))
        elif name in fit.clashes:
            rows.append(_clashing(slot, fit.clashes[name]))
        elif name in ambiguous:
            one_of = ", ".join(ambiguous[name].theirs[:4])
            more = " ..." if len(ambiguous[name].theirs) > 4 else ""
            reason = f"{ambiguous[name].reason}; one of: {one_of}{more}"
            rows.append(_row(slot, None, "ambiguous", "", reason))
        elif name in fit.kept:
            rows.append(_row(slot, None, "kept", "", fit.kept[name]))
        else:
            rows.append(_row(slot, None, "missing", "", fit.lacking.get(name, "")))
    shown = {s for p in fit.pairs.values() for s in p.piece.sources}
    shown |= {s for c in fit.clashes.values() for s in c.piece.sources}
    several = {path for a in fit.ambiguities for path in a.theirs}
    for piece in fit.in_order():
        rest = [s for s in piece.sources if s not in shown]
        for source in rest:
            shown.add(source)
            rows.append(_alone(fit, piece, source, several))
    return rows


def _paired(fit: Fit, slot: Slot, pair: Pair) -> LoadRow:
    piece = pair.piece
    rules = [*piece.rules, *([] if pair.rule == SAME_NAME else [pair.rule])]
    why = [*piece.why, pair.reason]
    if piece.name != slot.name:
        # The new name was not what counted.
        rules = [r for r in rules if r not in {str(n) for n in fit.renamings}]
        why = [w for w in why if w not in {n.meaning for n in fit.renamings}]
    reason = "; ".join(dict.fromkeys(filter(None, why)))
    status: Status = "same name"
    if piece.dtype != slot.dtype:
        status = "dtype differs"
        converted = (
            f"converted from {_dtype(piece.dtype)} to {_dtype(slot.dtype)} when it is loaded"
        )
        reason = "; ".join(filter(None, (reason, converted)))
    elif piece.make is not None or pair.rule == "tied weights":
        status = "made"
    elif piece.sources != (slot.name,):
        status = "renamed"
    return _row(slot, piece, status, "; ".join(dict.fromkeys(rules)) or SAME_NAME, reason)


def _clashing(slot: Slot, clash: Clash) -> LoadRow:
    rule = "; ".join(dict.fromkeys((*clash.piece.rules, clash.rule)))
    return _row(slot, clash.piece, "shape differs", rule, clash.reason)


def _alone(fit: Fit, piece: Piece, source: str, several: set[str]) -> LoadRow:
    status: Status = "unexpected"
    reason = fit.unexpected.get(source, "")
    if source in fit.left_out:
        status, reason = "left out", fit.left_out[source]
    elif not several.isdisjoint((piece.name, split_name(piece.name)[0])):
        status, reason = "ambiguous", "several places have its shape"
    shape, dtype = piece.shape, _dtype(piece.dtype)
    return LoadRow("", None, "", source, shape, dtype, status, "", reason)


def _row(slot: Slot, piece: Piece | None, status: Status, rule: str, reason: str) -> LoadRow:
    return LoadRow(
        slot.name,
        slot.shape,
        _dtype(slot.dtype),
        None if piece is None else " + ".join(piece.sources),
        None if piece is None else piece.shape,
        "" if piece is None else _dtype(piece.dtype),
        status,
        rule,
        reason,
    )


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
