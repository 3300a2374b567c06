"""Layers whose names are not the model's, placed by their shapes, names in part, and order."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from migrate_kit.checkpoints.fit import Ambiguity, Fit, Pair, layers, needed
from migrate_kit.checkpoints.naming import Kin, are_indices, kin, list_of, numbered, numbers_mislead
from migrate_kit.checkpoints.orders import Run, Support, by_signature, in_order, support
from migrate_kit.checkpoints.rules.layout import reshaped
from migrate_kit.results import Finding, few

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from migrate_kit.checkpoints.sides import Group, Piece, Signature

BY_SHAPE, BY_NAME, BY_NUMBERING, BY_ORDER = "by shape", "by name", "by numbering", "by order"
BY_VALUE = "by value"
# A checkpoint that places less of a network is another network's.
_ENOUGH = 0.5
_CONTRADICT = "parts of their names and their order contradict each other"
_RUNS_OTHERWISE = "the model runs these layers in another order than it registers them"


@dataclass
class Choice:
    """Layers of one shape, and how they were told apart: ``pairs``, or why they were not."""

    ours: list[Group]
    theirs: list[Group]
    pairs: list[tuple[Group, Group, str, str]] = field(default_factory=list)
    reason: str = ""

    @property
    def open_ours(self) -> list[Group]:
        """The layers of the model that have no counterpart yet."""
        placed = {g.place for g, *_ in self.pairs}
        return [g for g in self.ours if g.place not in placed]

    @property
    def open_theirs(self) -> list[Group]:
        """The layers of the file that go nowhere yet."""
        placed = {h.place for _, h, _, _ in self.pairs}
        return [h for h in self.theirs if h.place not in placed]


@dataclass
class _Sides:
    """Both sides' layers, and which of them the names placed."""

    ours: list[Group]
    theirs: list[Group]
    alone: bool
    solid: list[tuple[Group, Group]]

    def pools(self) -> tuple[list[Group], list[Group]]:
        """Return the layers that names did not place."""
        here = {g.place for g, _ in self.solid}
        there = {h.place for _, h in self.solid}
        return (
            [g for g in self.ours if g.place not in here and g.signature],
            [h for h in self.theirs if h.place not in there and h.signature],
        )


def choices(fit: Fit, run: Run | None = None) -> list[Choice]:
    """Return, shape by shape, what can be told of the layers that names did not place."""
    if not fit.clashes and not (fit.open_slots() and fit.open_pieces()):
        return []
    sides = _sides(fit)
    if not all(sides.pools()):
        return []
    _doubt_numbers(fit, sides)
    ours, theirs = sides.pools()
    order = Support() if fit.alphabetical else support(sides.ours, sides.theirs)
    here, there = by_signature(sides.ours), by_signature(sides.theirs)
    anchors = [(g[0], there[s][0]) for s, g in here.items() if len(g) == len(there.get(s, ())) == 1]
    judge = _Judge(fit.alphabetical, sides, order, anchors, run)
    exact, rest_ours, rest_theirs = _classes(ours, theirs, lambda g: g.signature)
    loose, _, _ = _classes(rest_ours, rest_theirs, lambda g: g.loose)
    return [judge(Choice(g, h)) for g, h in (*exact, *loose)]


def place(fit: Fit, chosen: Sequence[Choice]) -> None:
    """Put what was told apart into the fit; what was not is ambiguous."""
    if not fit.open_slots():
        return
    sides = _sides(fit)
    placed = len(sides.solid) + sum(len(c.pairs) for c in chosen)
    told = sum(len(c.open_ours) for c in chosen)
    counted = [g for g in sides.ours if g.signature]
    same = {g.path for g in counted} & {h.path for h in sides.theirs}
    if max(placed + told, len(same)) < _ENOUGH * len(counted):
        what = f"{placed + told} of the model's {len(counted)} layers have a counterpart"
        fix = "this looks like another network's checkpoint: build the network that was saved"
        fit.findings.append(Finding("error", what, "", fix))
        return
    for choice in chosen:
        for ours, theirs, rule, reason in choice.pairs:
            for slot, piece in members(fit, ours, theirs):
                fit.pairs[slot] = Pair(piece, rule, reason)
                fit.clashes.pop(slot, None)
        if choice.open_ours and choice.open_theirs:
            fit.ambiguities.append(_ambiguity(fit, choice))


def named_layers(fit: Fit) -> list[tuple[Group, Group]]:
    """Return the layers that their names placed."""
    return _sides(fit).solid


def members(fit: Fit, ours: Group, theirs: Group) -> Iterable[tuple[str, Piece]]:
    """Yield the places of a layer and the pieces of its counterpart, in the places' shape."""
    others = {_leaf(leaf): name for leaf, name in theirs.members.items()}
    for leaf, name in ours.members.items():
        other = others.get(_leaf(leaf))
        if other is None:
            continue
        piece, slot = fit.pieces[other], fit.slots[name]
        fitting = piece if piece.shape == slot.shape else reshaped(piece, slot.shape)
        if fitting is not None:
            yield name, fitting


def _leaf(leaf: str) -> str:
    return {"gamma": "weight", "beta": "bias"}.get(leaf, leaf)


def _ambiguity(fit: Fit, choice: Choice) -> Ambiguity:
    ours, theirs = choice.open_ours, choice.open_theirs
    guess: dict[str, Piece] = {}
    if len(ours) == len(theirs):
        guess = {
            slot: piece
            for g, h in zip(ours, theirs, strict=True)
            for slot, piece in members(fit, g, h)
        }
    slots = tuple(name for g in ours for name in needed(g) if name not in fit.pairs)
    for name in slots:
        fit.clashes.pop(name, None)
    paths = tuple(g.path for g in ours), tuple(h.path for h in theirs)
    return Ambiguity(*paths, slots, choice.reason, guess)


# --- what the names placed ------------------------------------------------------------------------


def _sides(fit: Fit) -> _Sides:
    ours, theirs, alone = layers(fit)
    if fit.alphabetical:
        # The nearest to an order: numbers count, words follow the alphabet.
        natural = sorted(theirs, key=lambda h: _natural(h.path))
        theirs = [replace(h, place=i) for i, h in enumerate(natural)]
    home = {name: h for h in theirs for name in h.members.values()}
    solid = []
    for group in ours:
        names = needed(group)
        paired = [fit.pairs[n].piece.name for n in names if n in fit.pairs]
        if names and len(paired) == len(names) and paired[0] in home:
            solid.append((group, home[paired[0]]))
    return _Sides(ours, theirs, alone, solid)


def _natural(path: str) -> list[tuple[bool, int, str]]:
    parts = re.split(r"(\d+)", path)
    return [(p.isdigit(), int(p) if p.isdigit() else 0, p) for p in parts]


def _doubt_numbers(fit: Fit, sides: _Sides) -> None:
    """Take back pairs by name that are a coincidence of numbers.

    Where a network's Sequential was rearranged, ``net.2`` here is not ``net.2`` there. It shows
    when layers of the same shape are left over on both sides.
    """
    ours, theirs = (by_signature(pool) for pool in sides.pools())
    for signature in ours.keys() & theirs.keys():
        same = [p for p in sides.solid if p[0].signature == signature]
        spoken = {g.words for g, _ in same} | {g.words for g in ours[signature]}
        if not same or len(spoken) == len(same) + len(ours[signature]):
            continue  # told apart by words
        left = list(zip(ours[signature], theirs[signature], strict=False))
        if in_order([*same, *left]):
            continue
        for pair in same:
            sides.solid.remove(pair)
            for name in needed(pair[0]):
                del fit.pairs[name]


# --- telling layers of one shape apart ------------------------------------------------------------


def _classes(
    ours: Sequence[Group], theirs: Sequence[Group], key: Callable[[Group], Signature]
) -> tuple[list[tuple[list[Group], list[Group]]], list[Group], list[Group]]:
    """Return the layers that share a shape with the other side, and those that do not."""
    here: dict[Signature, list[Group]] = defaultdict(list)
    there: dict[Signature, list[Group]] = defaultdict(list)
    for side, groups in ((here, ours), (there, theirs)):
        for group in groups:
            side[key(group)].append(group)
    both = [s for s in here if s in there]
    return (
        [(here[s], there[s]) for s in both],
        [g for s, groups in here.items() if s not in there for g in groups],
        [h for s, groups in there.items() if s not in here for h in groups],
    )


class _Judge:
    """Tells layers of one shape apart, by the evidence of one pair of networks."""

    def __init__(
        self,
        alphabetical: bool,
        sides: _Sides,
        order: Support,
        anchors: list[tuple[Group, Group]],
        run: Run | None,
    ) -> None:
        self.alphabetical, self.alone, self.order = alphabetical, sides.alone, order
        self.theirs = sides.theirs
        self.anchors, self.run = anchors, run

    def __call__(self, choice: Choice) -> Choice:
        """Fill in the pairs, or the reason why there are none."""
        ours, theirs = choice.ours, choice.theirs
        if len(ours) == len(theirs) == 1:
            reason = "no other open layer has this shape"
            choice.pairs.append((ours[0], theirs[0], BY_SHAPE, reason))
            return choice
        if not self.alone:
            families = kin(ours, theirs)
            for family in families:
                self._by_names(choice, family)
            unsure = not all(family.sure for family in families)
            if unsure and (choice.reason or self._is_out_of_order(choice)):
                choice.pairs.clear()
                choice.reason = choice.reason or _CONTRADICT
        left, right = choice.open_ours, choice.open_theirs
        if choice.reason or not left or not right:
            return choice
        if len(left) != len(right):
            choice.reason = (
                f"the model has {len(ours)} layers of this shape, the checkpoint {len(theirs)}"
            )
        else:
            self._by_order(choice, left, right)
        return choice

    def _by_names(self, choice: Choice, family: Kin) -> None:
        ours, theirs = numbered(family.ours), numbered(family.theirs)
        if ours is None or theirs is None:
            return
        pairs = list(zip(ours, theirs, strict=True))
        if len(pairs) == 1 and family.sure:
            choice.pairs.append(
                (
                    *pairs[0],
                    BY_NAME,
                    "of the open layers of this shape, the one whose name has the same words",
                )
            )
            return
        doubt = self._doubt(pairs)
        if doubt:
            choice.reason = choice.reason or doubt
            return
        rule = BY_NUMBERING if len(pairs) > 1 else BY_NAME
        how = "their numbers run alike" if len(pairs) > 1 else "it alone has such a name"
        known = "" if self.alphabetical else ", and so does the order in the file"
        reason = f"{len(choice.ours)} layers of this shape; {how}{known}"
        choice.pairs += [(*pair, rule, reason) for pair in pairs]

    def _is_out_of_order(self, choice: Choice) -> bool:
        pairs = sorted(((g, h) for g, h, _, _ in choice.pairs), key=lambda p: p[0].place)
        ours = [g for g, _ in pairs]
        if self.run is not None and self.run.agrees(ours) is False:
            return True
        if not self.alphabetical:
            return not in_order(pairs)
        # Only the blocks of one list have an order there, and the parts of one block none.
        lists: dict[str, list[tuple[Group, Group]]] = defaultdict(list)
        for pair in pairs:
            lists[list_of(pair[1])].append(pair)
        numbers = {h.numbers for _, h in pairs}
        return len(numbers) < len(pairs) or not all(in_order(own) for own in lists.values())

    def _doubt(self, pairs: list[tuple[Group, Group]]) -> str:
        ours = [g for g, _ in pairs]
        if not self.alphabetical and not in_order(pairs, self.anchors):
            return "numbers in the names and the order in the file contradict each other"
        if ours != sorted(ours, key=lambda g: g.place):
            return "the model numbers its layers in another order than it registers them"
        others = [h for _, h in pairs]
        if len(pairs) > 1 and numbers_mislead(others, self.anchors):
            return "the numbers in the file's names do not follow the model's order elsewhere"
        if len(pairs) > 1 and self.alphabetical and not are_indices(others, self.theirs):
            return "the file lists its tensors alphabetically, so only their numbers tell an order"
        if self.run is not None and self.run.agrees(ours) is False:
            return _RUNS_OTHERWISE
        return ""

    def _by_order(self, choice: Choice, ours: list[Group], theirs: list[Group]) -> None:
        """Take the order in the file for the model's, where it was shown to be that."""
        signature = ours[0].signature
        if self.alphabetical:
            choice.reason = (
                "the file lists its tensors alphabetically, so their order tells nothing"
            )
        elif not self.order.credible or signature not in self.order.signatures:
            choice.reason = "nothing but their order in the file tells them apart"
        elif self.run is None:
            choice.reason = (
                "nothing but their order in the file tells them apart, and no inputs were given to"
                " see in which order the model runs them"
            )
        elif self.run.agrees(ours) is False:
            choice.reason = _RUNS_OTHERWISE
        elif self._are_siblings(ours, theirs) and not self.run.are_a_chain(ours):
            choice.reason = (
                "nothing but their order in the file tells them apart, and they are parts of one"
                " layer, which may register its parts in any order"
            )
        else:
            reason = (
                f"{len(choice.ours)} layers of this shape, told apart by nothing but their order;"
                " all layers of the file come in the order in which the model has and runs them"
            )
            pairs = zip(ours, theirs, strict=True)
            choice.pairs += [(g, h, BY_ORDER, reason) for g, h in pairs]

    @staticmethod
    def _are_siblings(*sides: list[Group]) -> bool:
        return any(len({g.parent for g in groups}) < len(groups) for groups in sides)


def said(names: Sequence[str]) -> str:
    """Return some layers' names for a sentence."""
    return few([repr(n) for n in names], 4)
