"""Names that a wrapper lengthened: DataParallel, torch.compile, a training class, a parent."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from migrate_kit.checkpoints.sides import is_derived
from migrate_kit.checkpoints.vocabulary import vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from migrate_kit.checkpoints.sides import Piece, Slot

    Names = dict[str, str]

_ROUNDS = 8
# An end of a name that many places share says nothing about where a tensor belongs.
_TOO_MANY = 8
# How much of a renamed part must fit, where the name of the wrapper is not a known one.
_MOST = 0.9


@dataclass(frozen=True)
class Renaming:
    """One rule of renaming: ``old`` at the start (or anywhere) of a name becomes ``new``."""

    old: str
    new: str
    anywhere: bool = False
    added: bool = False
    meaning: str = ""

    def __str__(self) -> str:
        if self.added:
            return f"prefix {self.new!r} added" if not self.anywhere else f"{self.new!r} added"
        if self.new:
            return f"{self.old!r} is {self.new!r}"
        return f"{self.old!r} removed" if self.anywhere else f"prefix {self.old!r} removed"

    def apply(self, name: str) -> str:
        """Return a name as the rule has it, whether or not it fits the model then."""
        if self.anywhere:
            return f".{name}".replace(f".{self.old}", ".")[1:] if self.old else name
        return self.new + name.removeprefix(self.old) if name.startswith(self.old) else name

    def code(self, name: str) -> str | None:
        """Return the Python expression that does to ``name`` what the rule does, if it is short."""
        if self.anywhere:
            return f"('.' + {name}).replace({f'.{self.old}'!r}, '.')[1:]" if self.old else None
        if not self.old:
            return f"{self.new!r} + {name}"
        if not self.new:
            return f"{name}.removeprefix({self.old!r})"
        if name != "k":
            return None
        return f"({self.new!r} + k.removeprefix({self.old!r}) if k.startswith({self.old!r}) else k)"


class _Try(NamedTuple):
    renamings: tuple[Renaming, ...]
    names: Names


def unwrap(
    pieces: Mapping[str, Piece], slots: Mapping[str, Slot]
) -> tuple[dict[str, Piece], list[Renaming]]:
    """Rename pieces as long as more of them come to bear the name of a place that they fit.

    Returns the pieces by their new names, and the rules that were used, in order.
    """
    named, used = dict(pieces), list[Renaming]()
    for _ in range(_ROUNDS):
        best, gain = None, 0
        for candidate in (*_known(named, slots), *_added(named, slots), *_sections(named, slots)):
            better = _gain(candidate.names, named, slots)
            if better > gain:
                best, gain = candidate, better
        if best is None:
            break
        named = _apply(best, named)
        used += best.renamings
    return named, used


def _apply(chosen: _Try, pieces: Mapping[str, Piece]) -> dict[str, Piece]:
    renamings, names = chosen
    moved = {}
    for name, piece in pieces.items():
        new = names.get(name, name)
        if new != name:
            for renaming in renamings:
                piece = piece.renamed(new, str(renaming), renaming.meaning)  # noqa: PLW2901
        moved[new] = piece
    return moved


def _gain(names: Names, pieces: Mapping[str, Piece], slots: Mapping[str, Slot]) -> int:
    """Return how many more pieces fit; a place that was filled and would be left counts against."""

    def fits(name: str, piece: Piece) -> bool:
        slot = slots.get(name)
        return slot is not None and slot.shape == piece.shape

    return sum(fits(new, pieces[old]) - fits(old, pieces[old]) for old, new in names.items())


def _without(names: Names, pieces: Mapping[str, Piece]) -> Names:
    """Leave out what would land on another piece: two sets of weights may share their ends."""
    taken = Counter(names.values())
    return {
        old: new
        for old, new in names.items()
        if taken[new] == 1 and (new not in pieces or new in names)
    }


# --- wrappers with a known name -------------------------------------------------------------------


def _known(pieces: Mapping[str, Piece], slots: Mapping[str, Slot]) -> Iterator[_Try]:
    open_names = [n for n in pieces if n not in slots]
    parts = {part for name in open_names for part in name.split(".")}
    present = [w for w in vocabulary("wrapper") if w.partition(".")[0] in parts]
    for wrapper in present:
        old = f"{wrapper}."
        first = {n: n.removeprefix(old) for n in open_names if n.startswith(old)}
        yield _Try((_removed(wrapper),), _without(first, pieces))
        inside = {n: _cut(n, wrapper) for n in open_names if f".{old}" in f".{n}"}
        if inside != first:
            yield _Try((_removed(wrapper, anywhere=True),), _without(inside, pieces))
    # Wrappers come in each other: the one alone may make no name fit.
    several = [w for w in present if w == "module" or w.startswith("_")]
    if len(several) > 1:
        cut = {n: n for n in open_names}
        for wrapper in several:
            cut = {n: _cut(new, wrapper) for n, new in cut.items()}
        removed = tuple(_removed(w, anywhere=True) for w in several)
        yield _Try(removed, _without({n: new for n, new in cut.items() if n != new}, pieces))


def _removed(wrapper: str, *, anywhere: bool = False) -> Renaming:
    meaning = vocabulary("wrapper")[wrapper].meaning
    return Renaming(f"{wrapper}.", "", anywhere=anywhere, meaning=meaning)


def _added(pieces: Mapping[str, Piece], slots: Mapping[str, Slot]) -> Iterator[_Try]:
    """Try what the model itself was wrapped in."""
    open_slots = [n for n in slots if n not in pieces]
    parts = {part for name in open_slots for part in name.split(".")}
    for wrapper, known in vocabulary("wrapper").items():
        if wrapper.partition(".")[0] not in parts:
            continue
        old = f"{wrapper}."
        meaning = f"the model itself is wrapped: {known.meaning}"
        ways: list[tuple[bool, Callable[[str], str]]] = [
            (False, lambda name, old=old: name.removeprefix(old)),  # type: ignore[misc]
            (True, lambda name, wrapper=wrapper: _cut(name, wrapper)),  # type: ignore[misc]
        ]
        for anywhere, bare in ways:
            back = {bare(n): n for n in open_slots if bare(n) != n}
            names = {n: back[n] for n in pieces if n not in slots and n in back}
            renaming = Renaming("", old, anywhere=anywhere, added=True, meaning=meaning)
            yield _Try((renaming,), _without(names, pieces))


def _cut(name: str, part: str) -> str:
    """Return the name without a part of its path, wherever it stands."""
    return f".{name}".replace(f".{part}.", ".").removeprefix(".")


# --- any other parent -----------------------------------------------------------------------------


def _sections(pieces: Mapping[str, Piece], slots: Mapping[str, Slot]) -> Iterator[_Try]:
    """Find parts of the names that moved as a whole, by the ends that they have in common."""
    open_pieces = {n: p for n, p in pieces.items() if n not in slots and not is_derived(n)}
    open_slots = [n for n in slots if n not in pieces]
    if not open_pieces or not open_slots:
        return
    votes = _votes(open_pieces, open_slots, slots)
    best_of: dict[str, int] = defaultdict(int)
    best_to: dict[str, int] = defaultdict(int)
    rivals: Counter[tuple[str, str, int]] = Counter()
    for (old, new), count in votes.items():
        best_of[old] = max(best_of[old], count)
        best_to[new] = max(best_to[new], count)
        rivals["old", old, count] += 1
        rivals["new", new, count] += 1
    for (old, new), count in votes.most_common(_TOO_MANY):
        clear = best_of[old] == count == best_to[new]
        if not clear or rivals["old", old, count] > 1 or rivals["new", new, count] > 1:
            continue  # two parts fit equally well: names do not tell which
        moved = {n: _moved(n, old, new) for n in pieces if n not in slots and _is_in(n, old)}
        counted = [n for n in moved if n in open_pieces]
        places = [n for n in open_slots if _is_in(n, new) and not is_derived(n)]
        names = _without({n: new for n, new in moved.items() if new in slots}, pieces)
        fitting = _gain(names, pieces, slots)
        if fitting >= _MOST * min(len(counted), len(places)):
            known = vocabulary("wrapper")
            meaning = "; ".join(known[p].meaning for p in old.split(".") if p in known)
            renaming = Renaming(_dotted(old), _dotted(new), added=not old, meaning=meaning)
            yield _Try((renaming,), names)


def _votes(
    open_pieces: Mapping[str, Piece], open_slots: list[str], slots: Mapping[str, Slot]
) -> Counter[tuple[str, str]]:
    ends: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for name in open_slots:
        for head, end in _cuts(name):
            ends[end].append((head, name))
    votes: Counter[tuple[str, str]] = Counter()
    for name, piece in open_pieces.items():
        for head, end in _cuts(name):
            places = ends.get(end, ())
            fitting = [h for h, n in places if slots[n].shape == piece.shape]
            if fitting:
                if len(places) <= _TOO_MANY:
                    votes.update((head, other) for other in fitting)
                break
    return votes


def _cuts(name: str) -> Iterator[tuple[str, str]]:
    """Yield (head, end) of a name, the longest end first; a last word alone is no end."""
    parts = name.split(".")
    for i in range(max(1, len(parts) - 1)):
        yield ".".join(parts[:i]), ".".join(parts[i:])


def _is_in(name: str, head: str) -> bool:
    return not head or name.startswith(f"{head}.")


def _moved(name: str, old: str, new: str) -> str:
    end = name.removeprefix(f"{old}.") if old else name
    return f"{new}.{end}" if new else end


def _dotted(head: str) -> str:
    return f"{head}." if head else ""
