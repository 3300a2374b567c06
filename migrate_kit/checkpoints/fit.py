"""How far a checkpoint fits a model: what goes where, by which rule, and what is open."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from migrate_kit.checkpoints.proof import without_memory
from migrate_kit.checkpoints.rules.layout import reshaped
from migrate_kit.checkpoints.sides import Group, groups_of, is_derived

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from migrate_kit.checkpoints.rules.wrappers import Renaming
    from migrate_kit.checkpoints.sides import Piece, Slot
    from migrate_kit.checkpoints.state import StateDict
    from migrate_kit.results import Finding

SAME_NAME = "same name"


@dataclass(frozen=True)
class Pair:
    """A place and what goes there; ``rule`` says what brought them together, ``reason`` why."""

    piece: Piece
    rule: str
    reason: str = ""


@dataclass(frozen=True)
class Clash:
    """A piece that belongs to a place and does not fit it.

    ``argument`` is the argument of ``repair`` that settles it, ``offer`` what it then loads (None:
    the model's own value stays).
    """

    piece: Piece
    rule: str
    reason: str
    argument: str = ""
    offer: Piece | None = None


@dataclass(frozen=True)
class Ambiguity:
    """Layers of one shape on both sides, and nothing that tells which is which.

    ``ours`` and ``theirs`` are names of layers; ``guess`` are places and pieces by mere order,
    where there are as many of one as of the other.
    """

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    slots: tuple[str, ...]
    reason: str
    guess: Mapping[str, Piece] = field(default_factory=dict)


class AsIs(OrderedDict[str, object]):
    """A state_dict of tensors without values, with the versions that PyTorch saves beside it."""

    def __init__(self, tensors: Iterable[tuple[str, object]], metadata: object) -> None:
        super().__init__(tensors)
        self._metadata = metadata


@dataclass
class Fit:
    """A model's places, a checkpoint's pieces, and what was found out about them so far."""

    slots: Mapping[str, Slot]
    pieces: dict[str, Piece]
    rank: Mapping[str, int]
    memories: Mapping[str, object] = field(default_factory=dict)
    alphabetical: bool = False
    renamings: list[Renaming] = field(default_factory=list)
    pairs: dict[str, Pair] = field(default_factory=dict)
    clashes: dict[str, Clash] = field(default_factory=dict)
    ambiguities: list[Ambiguity] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    lacking: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    unexpected: dict[str, str] = field(default_factory=dict)
    blocked: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def open_slots(self) -> list[Slot]:
        """Return the places that nothing was said about yet."""
        ambiguous = {name for a in self.ambiguities for name in a.slots}
        return [
            s
            for n, s in self.slots.items()
            if n not in self.pairs
            and n not in self.clashes
            and n not in self.kept
            and n not in ambiguous
        ]

    def open_pieces(self) -> list[Piece]:
        """Return the pieces that go nowhere, in the file's order."""
        used = {p.piece.name for p in self.pairs.values()}
        used |= {c.piece.name for c in self.clashes.values()}
        used |= {p.name for a in self.ambiguities for p in a.guess.values()}
        return [p for p in self.in_order() if p.name not in used and not self.is_settled(p)]

    def is_settled(self, piece: Piece) -> bool:
        """Whether it was said already why a piece goes nowhere."""
        return all(s in self.left_out or s in self.unexpected for s in piece.sources)

    def as_is(self, state: StateDict) -> Mapping[str, object]:
        """Return the checkpoint as it would be loaded without any change, without its values."""
        tensors = ((n, without_memory(e)) for n, e in state.entries.items())
        return AsIs(tensors, getattr(state, "_metadata", None))

    def in_order(self) -> list[Piece]:
        """Return the pieces in the file's order."""
        return sorted(self.pieces.values(), key=lambda p: self.rank[p.sources[0]])


def pair_by_name(fit: Fit) -> None:
    """Pair what bears the same name; where the shapes differ, note a clash."""
    for name, slot in fit.slots.items():
        piece = fit.pieces.get(name)
        if piece is None or not slot.is_tensor or fit.is_settled(piece):
            continue
        fitting = piece if piece.shape == slot.shape else reshaped(piece, slot.shape)
        if fitting is not None:
            fit.pairs[name] = Pair(fitting, SAME_NAME)
        else:
            fit.clashes[name] = Clash(piece, SAME_NAME, "")


def layers(fit: Fit) -> tuple[list[Group], list[Group], bool]:
    """Return the layers of the model and of the file, and whether every tensor counts as one.

    That is so where the file's names say nothing: ``p0``, ``p1`` ...
    """
    theirs = [(p.name, p.shape) for p in fit.in_order() if not fit.is_settled(p)]
    ours = [(s.name, s.shape) for s in fit.slots.values() if s.is_tensor]
    named = groups_of(theirs)
    speaking = sum(any(leaf for leaf in g.members) for g in named)
    alone = bool(named) and 5 * speaking < len(named)
    return groups_of(ours, alone=alone), groups_of(theirs, alone=alone), alone


def needed(group: Group) -> list[str]:
    """Return the names of a layer's tensors that do not follow from its settings."""
    return [name for leaf, name in group.members.items() if not is_derived(leaf or name)]
