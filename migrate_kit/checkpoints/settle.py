"""Layers of one shape told apart by values: the original network and the model, on one input."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from migrate_kit.checkpoints.orders import Run
from migrate_kit.checkpoints.runs import eval_mode, watching
from migrate_kit.checkpoints.structure import BY_VALUE
from migrate_kit.layers.arguments import walk
from migrate_kit.layers.metrics import flat_values, sketch
from migrate_kit.layers.runners.borrowed import one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from migrate_kit.checkpoints.sides import Group
    from migrate_kit.checkpoints.structure import Choice

    Put = Callable[[Group, Group], None]
    _Found = tuple[Group, Group, str, str]

# Of two candidates the nearer must be five times nearer; and no further than a third of the value.
_CLEAR, _FAR = 0.2, 0.3
# Inputs closer than this are one and the same tensor for two layers.
_SAME = 1e-6
# What the order of a sum may do to a value.
_ROUNDING = 1e-5
# How many orders of layers with one input are tried, and for all of them together.
_MOST_ORDERS, _MOST_RUNS = 24, 300
# So near that all that led there must have been right.
_NEAR = 1e-3
_BY_INPUT = "on the given input it gets the values that {!r} gets in the original"
_BY_TRIAL = "of {} orders, the one that gives the original's values further on"
_EQUAL = "every order of these layers gives the original's values"


@dataclass
class Heard:
    """What a network's layers got as their first input, as sketches, and what came out."""

    run: Run = field(default_factory=Run)
    inputs: dict[str, torch.Tensor] = field(default_factory=dict)
    output: list[torch.Tensor] = field(default_factory=list)

    def of(self, path: str) -> torch.Tensor | None:
        """Return the input of the module that computes a layer."""
        site = self.run.site(path)
        return None if site is None else self.inputs.get(site)


def listen(
    model: torch.nn.Module,
    inputs: tuple[Any, ...],
    reached: Callable[[str, Heard], None] | None = None,
) -> Heard:
    """Run a network and sketch every module's input; ``reached`` may change weights on the way."""
    heard = Heard()

    def saw(name: str, tensor: torch.Tensor | None) -> None:
        if name in heard.run.first:
            return
        heard.run.first[name] = len(heard.run.first)
        if tensor is not None:
            heard.inputs[name] = sketch(flat_values(tensor))
        if reached is not None:
            reached(name, heard)

    with one_thread(model), watching(model, saw), eval_mode(model):
        result = model(*inputs)
    heard.output = [sketch(flat_values(t)) for _, t in walk(result)]
    return heard


class Settler:
    """Settles choices; ``put(ours, theirs)`` loads a layer of the file into the model's copy.

    ``home`` gives the path of a layer of the file in the original network; ``placed`` are the
    layers that are settled already, and loaded.

    In the order of the model's run, each open layer gets the weights of that layer of the original
    that had its input; so the next one's input is right too. Layers that get one and the same input
    (query, key and value) are tried in every order, and what follows in the run tells.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        inputs: tuple[Any, ...],
        original: Heard,
        home: Callable[[Group], str],
        put: Put,
    ) -> None:
        self.model, self.inputs, self.original = model, inputs, original
        self.home, self.put = home, put
        self._runs = 0

    def __call__(self, chosen: Sequence[Choice], placed: Mapping[str, Group]) -> None:
        """Give each choice the pairs that values show; what they do not show stays as it was."""
        self._chosen, self._placed = chosen, placed
        self._calls = listen(self.model, self.inputs).run
        self._found: dict[str, _Found] = {}
        while self._runs < _MOST_RUNS:
            reached, ties, heard = self._pass()
            tie = next((t for t in ties if len(t.theirs) > 1), None)
            if tie is None or self._is_near(heard, reached):
                self._found |= reached
                break
            # What came before the first tie is sure; what came after was reached with a guess.
            first = next(i for i, path in enumerate(reached) if path == tie.ours[0].path)
            self._found |= dict(list(reached.items())[:first])
            if not self._untie(tie):
                break
        for choice in chosen:
            _replace(choice, self._found)

    def _pass(self) -> tuple[dict[str, _Found], list[_Tie], Heard]:
        """Run once, and give every open layer what has its input, in the order of the run."""
        taken = {f[1].place for f in self._found.values()}
        free = {id(c): [h for h in c.theirs if h.place not in taken] for c in self._chosen}
        waiting: dict[str, list[tuple[Choice, Group]]] = defaultdict(list)
        for choice in self._chosen:
            for ours in choice.ours:
                site = self._calls.site(ours.path)
                if site is not None and ours.path not in self._found:
                    waiting[site].append((choice, ours))
        reached: dict[str, _Found] = {}
        ties: list[_Tie] = []

        def saw(name: str, heard: Heard) -> None:
            for choice, ours in waiting[name]:
                alike = self._nearest(heard.inputs.get(name), free[id(choice)])
                if not alike:
                    continue
                told = next((h for g, h, _, _ in choice.pairs if g.path == ours.path), None)
                theirs = told if told in alike else alike[0]
                free[id(choice)].remove(theirs)
                self.put(ours, theirs)
                reason = _BY_INPUT.format(theirs.path)
                reached[ours.path] = (ours, theirs, BY_VALUE, reason)
                tie = next((t for t in ties if t.choice is choice and theirs in t.theirs), None)
                if tie is None:
                    ties.append(_Tie(choice, [ours], list(alike)))
                else:
                    tie.ours.append(ours)

        self._runs += 1
        return reached, ties, listen(self.model, self.inputs, saw)

    def _nearest(self, own: torch.Tensor | None, theirs: Sequence[Group]) -> list[Group]:
        """Return the layers of the file that have this input in the original; none if unclear."""
        apart = sorted((_apart(self._input(h), own), i) for i, h in enumerate(theirs))
        if not apart or not apart[0][0] < _FAR:
            return []
        best = theirs[apart[0][1]]
        same = {i for _, i in apart if _apart(self._input(theirs[i]), self._input(best)) < _SAME}
        others = [d for d, i in apart if i not in same]
        if others and not apart[0][0] <= _CLEAR * others[0]:
            return []
        return [theirs[i] for i in sorted(same)]

    def _input(self, theirs: Group) -> torch.Tensor | None:
        return self.original.of(self.home(theirs))

    def _is_near(self, heard: Heard, reached: Mapping[str, _Found]) -> bool:
        """Whether every layer was reached, and all values are the original's."""
        count = sum(len(c.ours) for c in self._chosen)
        everyone = len(self._found) + len(reached) == count
        return everyone and all(d < _NEAR for d in self._distances(heard, (), reached))

    def _untie(self, tie: _Tie) -> bool:
        """Try every order of layers that get the same input, and look at what follows."""
        count = math.perm(len(tie.theirs), len(tie.ours))
        if count > _MOST_ORDERS:
            tie.choice.reason = f"{len(tie.theirs)} layers get the same input: too many orders"
            return False
        self._runs += count
        orders = list(itertools.permutations(tie.theirs, len(tie.ours)))
        trials = []
        for order in orders:
            self._load(tie.ours, order)
            mine = {g.path: (g, h, "", "") for g, h in zip(tie.ours, order, strict=True)}
            heard = listen(self.model, self.inputs)
            trials.append(self._distances(heard, tie.ours, mine))
        left, decided = _best(trials)
        if not left:
            tie.choice.reason = "values did not tell them apart"
            return False
        self._load(tie.ours, orders[left[0]])
        reason = _BY_TRIAL.format(count) if decided else _EQUAL
        for ours, theirs in zip(tie.ours, orders[left[0]], strict=True):
            self._found[ours.path] = (ours, theirs, BY_VALUE, reason)
        return True

    def _load(self, ours: Sequence[Group], theirs: Sequence[Group]) -> None:
        for g, h in zip(ours, theirs, strict=True):
            self.put(g, h)

    def _distances(
        self, heard: Heard, tied: Sequence[Group], more: Mapping[str, _Found]
    ) -> list[float]:
        """Return how far the values further on are from the original's, in the order of the run.

        An open layer is compared with the nearest that it may yet turn out to be.
        """
        known = {**self._placed, **{p: f[1] for p, f in (*self._found.items(), *more.items())}}
        may_be = {path: [theirs] for path, theirs in known.items()}
        for choice in self._chosen:
            may_be |= {g.path: choice.theirs for g in choice.ours if g.path not in known}
        sites = [heard.run.first[s] for g in tied if (s := heard.run.site(g.path)) is not None]
        after = max(sites, default=-1)
        found: dict[int, float] = {}
        for path, several in may_be.items():
            site = heard.run.site(path)
            own = None if site is None else heard.inputs.get(site)
            befores = [b for h in several if (b := self._input(h)) is not None]
            if site is not None and own is not None and befores and heard.run.first[site] > after:
                apart = min(_apart(b, own) for b in befores)
                at = heard.run.first[site]
                found[at] = max(apart, found.get(at, 0.0))
        ends = zip(self.original.output, heard.output, strict=False)
        return [d for _, d in sorted(found.items())] + [_apart(a, b) for a, b in ends]


@dataclass
class _Tie:
    choice: Choice
    ours: list[Group]
    theirs: list[Group]


def _best(trials: Sequence[Sequence[float]]) -> tuple[list[int], bool]:
    """Return the trials that stay near the original, and whether any others went off."""
    left, decided = list(range(len(trials))), False
    for values in zip(*trials, strict=True):
        near = min(values[i] for i in left)
        if not near < _FAR:
            # From here on another layer spoils the values, whatever the order of these.
            return (left if len(left) == 1 else []), decided
        kept = [i for i in left if values[i] <= max(near / _CLEAR, _ROUNDING)]
        decided = decided or len(kept) < len(left)
        left = kept
    return left, decided


def _replace(choice: Choice, found: Mapping[str, _Found]) -> None:
    pairs = [found[g.path] for g in choice.ours if g.path in found]
    used = {h.place for _, h, _, _ in pairs}
    # What names or order had told stays, where values do not contradict it.
    told = [p for p in choice.pairs if p[0].path not in found]
    choice.pairs = pairs + [p for p in told if p[1].place not in used]
    if choice.open_ours and not choice.reason:
        choice.reason = "values did not tell them apart"


def _apart(reference: torch.Tensor | None, other: torch.Tensor | None) -> float:
    """Return the relative difference of two sketches; infinite where one is not known."""
    if reference is None or other is None:
        return math.inf
    norm = float(reference.norm())
    difference = float((reference - other).norm())
    if not math.isfinite(difference) or not math.isfinite(norm):
        return math.inf
    return difference / norm if norm else (math.inf if difference else 0.0)
