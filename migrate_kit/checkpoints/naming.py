"""What the names of equal layers tell: the same words, or numbers in one order."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from migrate_kit.checkpoints.sides import Group

    Family = tuple[str, ...]
    Families = dict[Family, list[Group]]

# What stands before the first number of a path.
_INDEX = re.compile(r"(\D*)(\d+)")


@dataclass(frozen=True)
class Kin:
    """Layers of both sides that belong together by their names; ``sure`` if by the same words."""

    ours: list[Group]
    theirs: list[Group]
    sure: bool


def kin(ours: Sequence[Group], theirs: Sequence[Group]) -> list[Kin]:
    """Pair families of layers, whose names differ only in numbers.

    By the same words; then by the same last word; then by a number of members that no other has;
    then the last that is left on both sides. What stays open is in none. Only the first is sure:
    the others hold if the order agrees.
    """
    here, there = _families(ours), _families(theirs)
    found: list[Kin] = []
    keys: list[tuple[bool, Callable[[Family, list[Group]], Hashable]]] = [
        (True, lambda words, _: words),
        (False, lambda words, _: words[-1:]),
        (False, lambda _, members: len(members)),
        (False, lambda _, __: ()),
    ]
    for sure, key in keys:
        a, b = (_unique(side, key) for side in (here, there))
        for mark in [m for m in a if m in b]:
            mine, yours = a[mark], b[mark]
            if len(here[mine]) == len(there[yours]):
                found.append(Kin(here.pop(mine), there.pop(yours), sure))
    return found


def numbered(groups: Sequence[Group]) -> list[Group] | None:
    """Return layers in the order of their numbers, None where two have the same."""
    if len({g.numbers for g in groups}) < len(groups):
        return None
    return sorted(groups, key=lambda g: g.numbers)


def numbers_mislead(family: Sequence[Group], anchors: Sequence[tuple[Group, Group]]) -> bool:
    """Whether the blocks that the family is in are numbered in another order than the model's.

    ``anchors`` are pairs of a layer of the model and one of the file that their shape alone pairs.
    """
    lists = {list_of(h) for h in family}
    places: dict[int, list[int]] = defaultdict(list)
    for mine, yours in anchors:
        head = _INDEX.match(yours.path)
        if head is not None and head[1] in lists:
            places[int(head[2])].append(mine.place)
    blocks = [places[index] for index in sorted(places)]
    return any(max(one) > min(other) for one, other in itertools.pairwise(blocks))


def are_indices(family: Sequence[Group], all_of_file: Sequence[Group]) -> bool:
    """Whether the family's first numbers are the indices of a list of blocks.

    They begin at 0 or 1, leave none out, and each block holds several layers. A number that each
    layer has to itself may be anything.
    """
    blocks: dict[str, dict[int, int]] = defaultdict(dict)
    for group in all_of_file:
        head = _INDEX.match(group.path)
        if head is not None:
            counts, at = blocks[head[1]], int(head[2])
            counts[at] = counts.get(at, 0) + 1
    lists = {
        head
        for head, counts in blocks.items()
        if min(counts) <= 1
        and max(counts) - min(counts) + 1 == len(counts) > 1
        and min(counts.values()) > 1
    }
    heads = [_INDEX.match(g.path) for g in family]
    return all(head is not None and head[1] in lists for head in heads)


def list_of(group: Group) -> str:
    """Return what stands before the first number of a path: the list that a block is in."""
    head = _INDEX.match(group.path)
    return head[1] if head is not None else group.path


def _families(groups: Sequence[Group]) -> Families:
    found: Families = defaultdict(list)
    for group in groups:
        found[group.words].append(group)
    return dict(found)


def _unique(
    families: Families, key: Callable[[Family, list[Group]], Hashable]
) -> dict[Hashable, Family]:
    """Return the families by what only one of them has."""
    found: dict[Hashable, list[Family]] = defaultdict(list)
    for words, members in families.items():
        found[key(words, members)].append(words)
    return {mark: words[0] for mark, words in found.items() if len(words) == 1}
