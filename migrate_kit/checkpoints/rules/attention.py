"""Query, key and value: three tensors in one network, one in another."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from migrate_kit.checkpoints.sides import made_of
from migrate_kit.checkpoints.vocabulary import split_name, vocabulary

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from migrate_kit.checkpoints.sides import Piece, Shape, Slot

    Pieces = dict[str, Piece]

_ROLES = ("q", "k", "v")
_ORDER = "one after the other"
# Only here it is known: elsewhere a network may put each head's q, k and v together.
_KNOWN = "in_proj"
ASSUMED = "assumed to lie one after the other"


def attention(pieces: Pieces, slots: Mapping[str, Slot]) -> Pieces:
    """Put query, key and value together, or take them apart, as the model has them."""
    ours, theirs = _layers(slots), _layers(pieces)
    fused = [layer for layer in ours.values() if "qkv" in layer]
    parted = [layer for layer in ours.values() if all(r in layer for r in _ROLES)]
    named = dict(pieces)
    if fused and not parted:
        shapes = {slots[layer["qkv"]].shape for layer in fused}
        ending = _commonest(_ending(layer["qkv"]) for layer in fused)
        for (parent, leaf), layer in theirs.items():
            if all(r in layer for r in _ROLES):
                name = _named(parent, ending, leaf)
                how = _ORDER if ending.startswith(_KNOWN) else ASSUMED
                _fuse(named, [pieces[layer[r]] for r in _ROLES], name, shapes, how)
    elif parted and not fused:
        endings = {r: _commonest(_ending(layer[r]) for layer in parted) for r in _ROLES}
        shapes = {slots[layer["q"]].shape for layer in parted}
        for (parent, leaf), layer in theirs.items():
            if "qkv" in layer:
                names = [_named(parent, endings[r], leaf) for r in _ROLES]
                how = _ORDER if _ending(layer["qkv"]).startswith(_KNOWN) else ASSUMED
                _part(named, pieces[layer["qkv"]], names, shapes, how)
    return named


def _fuse(
    named: Pieces, three: list[Piece], name: str, shapes: Collection[Shape], how: str
) -> None:
    rows = sum(p.shape[0] for p in three if p.shape)
    shape = (rows, *three[0].shape[1:])
    alike = len({p.shape[1:] for p in three}) == 1
    if not alike or shape not in shapes or name in named:
        return
    for piece in three:
        del named[piece.name]
    named[name] = made_of(name, shape, three, _joined, f"q, k, v joined, {how}")


def _part(
    named: Pieces, fused: Piece, names: Sequence[str], shapes: Collection[Shape], how: str
) -> None:
    rows, rest = divmod(fused.shape[0] if fused.shape else 1, 3)
    shape = (rows, *fused.shape[1:])
    if rest or shape not in shapes or any(n in named for n in names):
        return
    del named[fused.name]
    for i, (role, name) in enumerate(zip(_ROLES, names, strict=True)):

        def third(tensor: torch.Tensor, i: int = i) -> torch.Tensor:
            return tensor[i * rows : (i + 1) * rows]

        piece = fused.turned(shape, third, f"{role} taken out of q, k, v, {how}", "")
        named[name] = replace(piece, name=name)


def _joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat(list(tensors))


def _layers(names: Iterable[str]) -> dict[tuple[str, str], dict[str, str]]:
    """Return the names that have a part in an attention, by role, by (parent, leaf)."""
    known = vocabulary("role")
    found: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for name in names:
        path, leaf = split_name(name)
        parent, _, last = path.rpartition(".")
        if leaf in ("weight", "bias") and last in known:
            found[parent, leaf][known[last].becomes] = name
    return found


def _ending(name: str) -> str:
    """Return what stands between parent and leaf, with the mark that joins it to the leaf."""
    path, leaf = split_name(name)
    last = path.rpartition(".")[2]
    return f"{last}{name[-len(leaf) - 1]}"


def _named(parent: str, ending: str, leaf: str) -> str:
    return f"{parent}.{ending}{leaf}" if parent else f"{ending}{leaf}"


def _commonest(texts: Iterable[str]) -> str:
    return Counter(texts).most_common(1)[0][0]
