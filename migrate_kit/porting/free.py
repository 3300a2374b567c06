"""Parameters that no layer owns: tokens, position tables, layer scales, tables of a bias."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from migrate_kit.porting.match import squeezed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from migrate_kit.porting.match import Matched
    from migrate_kit.porting.steps import Walk


@dataclass(frozen=True, slots=True)
class Loose:
    """A parameter of the cell that no layer owns, and the one of PyTorch that it stands for."""

    name: str
    source: str
    evidence: str
    rivals: int


def pair_loose(
    walk: Walk,
    shapes: Mapping[str, tuple[int, ...]],
    loose: Mapping[str, Any],
    found: Mapping[str, Matched],
) -> list[Loose]:
    """Pair what is left on both sides: by shape, by the company it keeps, and by order.

    Parameters
    ----------
    walk : Walk
        Its ``free`` says when each of PyTorch's was first used.
    shapes : mapping of str to tuple
        PyTorch's parameters that have no place yet.
    loose : mapping of str to Parameter
        The cell's that hold nothing yet, in their order.
    found : mapping of str to Matched
        The layers, by path.
    """
    company = _Company(found)
    first = {name: walk.free.get(name, 1 << 30) for name in shapes}
    pairs: list[Loose] = []
    left = dict(shapes)
    wanted = {name: tuple(p.shape) for name, p in loose.items()}
    # Those of the very same shape first: (1, 1, 12) is a token's, (12,) a scale's.
    rounds = [(name, False) for name in wanted] + [(name, True) for name in wanted]
    done: set[str] = set()
    for name, loosely in rounds:
        shape = wanted[name]
        fitting = [
            n for n, s in left.items() if s == shape or (loosely and squeezed(s) == squeezed(shape))
        ]
        if not fitting or name in done:
            continue
        done.add(name)
        scores = {n: company.shared(n, name) for n in fitting}
        best = max(scores.values())
        nearest = [n for n in fitting if scores[n] == best]
        source = min(nearest, key=lambda n: (first[n], n))
        evidence = "shape" if len(fitting) == 1 else "neighbours" if len(nearest) == 1 else "order"
        pairs.append(Loose(name, source, evidence, len(nearest) - 1))
        del left[source]
    return pairs


class _Company:
    """Which part of one network is which part of the other, by the layers found in both."""

    def __init__(self, found: Mapping[str, Matched]) -> None:
        self.together: Counter[tuple[str, str]] = Counter()
        self.ours: Counter[str] = Counter()
        self.theirs: Counter[str] = Counter()
        for path, one in found.items():
            for name in {p.name for parts in one.choice.parts.values() for p in parts}:
                above, beside = list(_above(name)), list(_above(f"{path}.x"))
                self.ours.update(above)
                self.theirs.update(beside)
                self.together.update((a, b) for a in above for b in beside)

    def shared(self, ours: str, theirs: str) -> float:
        """Return how much of what surrounds two parameters is the same, nearest first."""
        scores = []
        for a in _above(ours):
            row = []
            for b in _above(theirs):
                both = self.together[a, b]
                either = self.ours[a] + self.theirs[b] - both
                row.append(both / either if either else 0.0)
            # The nearest ancestor that has layers at all says most.
            if self.ours[a]:
                scores.append(max(row, default=0.0))
                break
        return scores[0] if scores else 0.0


def _above(name: str) -> Iterable[str]:
    parts = name.split(".")[:-1]
    while parts:
        yield ".".join(parts)
        parts.pop()
    yield ""
