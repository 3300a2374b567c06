"""What the order of layers tells: in the file, in the model, in a run."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from migrate_kit.checkpoints.sides import Group, Signature

# Shuffled layers would come in the model's order by chance in one of ten to the sixth cases.
_CREDIBLE = 6.0


@dataclass(frozen=True)
class Support:
    """Which layers the file's order places: those of ``signatures``, if it is ``credible``."""

    signatures: frozenset[Signature] = frozenset()
    credible: bool = False


@dataclass
class Run:
    """A run of the model: when each module was first called, and with what.

    ``inputs`` are marks that are equal for two modules that got the very same tensor.
    """

    first: dict[str, int] = field(default_factory=dict)
    inputs: dict[str, Hashable] = field(default_factory=dict)

    def site(self, path: str) -> str | None:
        """Return the module that was called for a layer: itself, or one around it."""
        while path not in self.first:
            if not path:
                return None
            path = path.rpartition(".")[0]
        return path

    def agrees(self, groups: Sequence[Group]) -> bool | None:
        """Whether layers are called in the order given; None where that is not known."""
        times = []
        for group in groups:
            site = self.site(group.path)
            if site is None:
                return None
            times.append(self.first[site])
        if len(set(times)) < len(times):
            return None
        return times == sorted(times)

    def are_a_chain(self, groups: Sequence[Group]) -> bool:
        """Whether layers are called one after the other, each with another input."""
        sites = [self.site(g.path) for g in groups]
        inputs = {self.inputs.get(s) for s in sites if s is not None}
        return self.agrees(groups) is True and len(inputs) == len(groups)


def by_signature(groups: Sequence[Group]) -> dict[Signature, list[Group]]:
    """Return the layers of each shape, in their order."""
    found: dict[Signature, list[Group]] = defaultdict(list)
    for group in groups:
        if group.signature:
            found[group.signature].append(group)
    return found


def support(ours: Sequence[Group], theirs: Sequence[Group]) -> Support:
    """Find out whether the file's layers come in the model's order.

    The n-th layer of a shape here is taken for the n-th of that shape there. Where that puts the
    layers of many shapes in one and the same order, it is no accident; the layers of a shape that
    fall out of it are not supported.
    """
    here, there = by_signature(ours), by_signature(theirs)
    pairs = [
        (g.place, h.place, signature)
        for signature, groups in here.items()
        if len(groups) == len(there.get(signature, ()))
        for g, h in zip(groups, there[signature], strict=True)
    ]
    pairs.sort()
    kept = _longest_increasing([h for _, h, _ in pairs])
    inside = [pairs[i] for i in kept]
    counts = Counter(signature for *_, signature in inside)
    signatures = frozenset(s for s, n in counts.items() if n == len(here[s]))
    chance = math.lgamma(len(inside) + 1) - sum(math.lgamma(n + 1) for n in counts.values())
    return Support(signatures, chance / math.log(10) >= _CREDIBLE)


def in_order(
    pairs: Sequence[tuple[Group, Group]], anchors: Sequence[tuple[Group, Group]] = ()
) -> bool:
    """Whether pairs are in one order on both sides, among others whose shape is theirs alone."""
    wanted = {g.place for g, _ in pairs}
    others = [(g, h) for g, h in anchors if g.place not in wanted]
    mixed = sorted((*pairs, *others), key=lambda p: p[0].place)
    kept = {mixed[i][0].place for i in _longest_increasing([h.place for _, h in mixed])}
    return wanted <= kept


def is_alphabetical(names: Sequence[str]) -> bool:
    """Whether names are sorted, as safetensors sorts them: then their order tells nothing.

    Examples
    --------
    >>> is_alphabetical(["a.bias", "a.weight", "b.bias"])
    True
    >>> is_alphabetical(["a.weight", "a.bias", "b.weight"])
    False
    """
    return len(names) > 1 and list(names) == sorted(names)


def _longest_increasing(values: Sequence[int]) -> list[int]:
    """Return the places of a longest increasing part of ``values``."""
    tails: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for i, value in enumerate(values):
        at = bisect_left(tails, value)
        tails[at : at + 1] = [value]
        ends[at : at + 1] = [i]
        before.append(ends[at - 1] if at else -1)
    found: list[int] = []
    at = ends[-1] if ends else -1
    while at >= 0:
        found.append(at)
        at = before[at]
    return found[::-1]
