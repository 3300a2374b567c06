"""Weight norm and spectral norm: their old names, their new names, and the plain weight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from migrate_kit.checkpoints.sides import Piece, made_of
from migrate_kit.checkpoints.vocabulary import join_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from migrate_kit.checkpoints.sides import Shape, Slot

    Pieces = dict[str, Piece]

_OLD_G, _OLD_V = "weight_g", "weight_v"
_NEW_G, _NEW_V = "parametrizations.weight.original0", "parametrizations.weight.original1"
_OLD_SPECTRAL = ("weight_orig", "weight_u", "weight_v")
_NEW_SPECTRAL = (
    "parametrizations.weight.original",
    "parametrizations.weight.0._u",
    "parametrizations.weight.0._v",
)
_SAME = "PyTorch's older and newer name of one tensor"


def weight_norm(pieces: Pieces, slots: Mapping[str, Slot]) -> Pieces:
    """Give ``weight_g`` and ``weight_v`` the form that the model has: old, new or plain."""
    named = dict(pieces)
    for old, new in (((_OLD_G, _OLD_V), (_NEW_G, _NEW_V)), ((_NEW_G, _NEW_V), (_OLD_G, _OLD_V))):
        for path in _paths(pieces, old):
            form = _form(path, slots, old, new)
            if form == "other":
                _rename(named, path, old, new)
            elif form == "plain":
                g, v = (named.pop(join_name(path, leaf)) for leaf in old)
                name = join_name(path, "weight")
                named[name] = made_of(name, v.shape, (g, v), _folded, "weight norm folded")
    return named


def unfold_weight_norm(pieces: Pieces, slots: Mapping[str, Slot]) -> Pieces:
    """Make length and direction of a plain weight, where the model keeps both."""
    named = dict(pieces)
    for g_name, v_name in ((_OLD_G, _OLD_V), (_NEW_G, _NEW_V)):
        for path in _paths(slots, (g_name, v_name)):
            plain = named.get(join_name(path, "weight"))
            g, v = slots[join_name(path, g_name)], slots[join_name(path, v_name)]
            if plain is None or plain.name in slots or plain.shape != v.shape:
                continue
            del named[plain.name]
            shape = g.shape

            def length(
                tensors: Sequence[torch.Tensor], shape: Shape = shape, plain: Piece = plain
            ) -> torch.Tensor:
                weight = tensors[0] if plain.make is None else plain.make(tensors)
                return _length(weight, shape)

            rules = (*plain.rules, "weight norm unfolded")
            why = (*plain.why, "its length and its direction")
            named[g.name] = Piece(g.name, shape, plain.dtype, plain.sources, length, rules, why)
            named[v.name] = Piece(
                v.name, v.shape, plain.dtype, plain.sources, plain.make, rules, why
            )
    return named


def spectral_norm(pieces: Pieces, slots: Mapping[str, Slot]) -> Pieces:
    """Give a spectrally normed weight the form that the model has: old, new or plain."""
    named = dict(pieces)
    for old, new in ((_OLD_SPECTRAL, _NEW_SPECTRAL), (_NEW_SPECTRAL, _OLD_SPECTRAL)):
        for path in _paths(pieces, old):
            form = _form(path, slots, old, new)
            if form == "other":
                _rename(named, path, old, new)
            elif form == "plain":
                parts = [named.pop(join_name(path, leaf)) for leaf in old]
                name = join_name(path, "weight")
                shape = parts[0].shape
                named[name] = made_of(name, shape, parts, _divided, "spectral norm folded")
    return named


def _paths(names: Iterable[str], leaves: Sequence[str]) -> list[str]:
    known = set(names)
    first = leaves[0]
    paths = [
        n.removesuffix(first).removesuffix(".") for n in known if f".{n}".endswith(f".{first}")
    ]
    return sorted(p for p in paths if all(join_name(p, leaf) in known for leaf in leaves))


def _form(path: str, slots: Mapping[str, Slot], own: Sequence[str], other: Sequence[str]) -> str:
    """Return which form the model has: ``own``, ``other`` or ``plain``."""
    if join_name(path, own[0]) in slots:
        return "own"
    if join_name(path, other[0]) in slots:
        return "other"
    if join_name(path, "weight") in slots:
        return "plain"
    ends = {form: f".{leaf[0]}" for form, leaf in (("own", own), ("other", other))}
    return next((f for f, end in ends.items() if any(n.endswith(end) for n in slots)), "plain")


def _rename(pieces: Pieces, path: str, old: Sequence[str], new: Sequence[str]) -> None:
    for before, after in zip(old, new, strict=True):
        piece = pieces.pop(join_name(path, before))
        name = join_name(path, after)
        pieces[name] = piece.renamed(name, f"{before!r} is {after!r}", _SAME)


def _length(weight: torch.Tensor, shape: Shape) -> torch.Tensor:
    kept = [d for d, n in enumerate(shape) if n != 1] if len(shape) == weight.ndim else []
    over = [d for d in range(weight.ndim) if d not in kept]
    norm: torch.Tensor = torch.linalg.vector_norm(weight, dim=over, keepdim=True)
    return norm.reshape(shape)


def _folded(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    g, v = tensors
    return v * (g / _length(v, tuple(g.shape)))


def _divided(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    weight, u, v = tensors
    # A transposed convolution has its outputs second, and that is where u belongs.
    dim = 0 if weight.shape[0] == u.numel() and weight[0].numel() == v.numel() else 1
    matrix = weight.transpose(0, dim).flatten(1)
    return weight / torch.dot(u, torch.mv(matrix, v))
