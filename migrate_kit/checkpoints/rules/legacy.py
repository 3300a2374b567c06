"""Tensors that other frameworks, and older files, call by other names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from migrate_kit.checkpoints.vocabulary import vocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from migrate_kit.checkpoints.sides import Piece, Slot

    Pieces = dict[str, Piece]

_VARIABLE = "a TensorFlow variable's name"


def variable_paths(pieces: Pieces, slots: Mapping[str, Slot]) -> Pieces:
    """Turn ``conv1/kernel:0`` into ``conv1.kernel``."""
    if not any("/" in name for name in pieces) or any("/" in name for name in slots):
        return pieces
    named: Pieces = {}
    for name, piece in pieces.items():
        new = re.sub(r":\d+$", "", name).strip("/").replace("/", ".")
        fine = new != name and new not in named and new not in pieces
        named[new if fine else name] = (
            piece.renamed(new, "'/' is '.'", _VARIABLE) if fine else piece
        )
    return named


def legacy_names(pieces: Pieces, slots: Mapping[str, Slot]) -> Pieces:
    """Turn ``gamma`` into ``weight``, ``moving_mean`` into ``running_mean``, where it is free."""
    known = vocabulary("leaf")
    named: Pieces = {}
    for name, piece in pieces.items():
        path, dot, leaf = name.rpartition(".")
        new = f"{path}{dot}{known[leaf].becomes}" if leaf in known else name
        # A layer may really call its own factor gamma, and have a weight beside it.
        if new == name or name in slots or new in pieces or new in named:
            named[name] = piece
        else:
            rule = f"{leaf!r} is {known[leaf].becomes!r}"
            named[new] = piece.renamed(new, rule, known[leaf].meaning)
    return named
