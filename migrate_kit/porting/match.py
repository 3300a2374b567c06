"""Find which parameter of a PyTorch network belongs where in a MindSpore cell, by running both.

Neither names nor shapes tell: a third of the names differ, and most tensors share their shape with
others. What tells is the data. The cell runs once; where one of its layers is about to run, the
step of PyTorch that was given the same input is looked for, its weights are put in, and PyTorch's
output goes on. So one wrong layer does not hide the next.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from migrate_kit.porting.cells import Guided, Place, places, set_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migrate_kit.porting.steps import Part, Step, Walk

# Two inputs nearer than this are the same: float32 rounding of one layer is below 1e-5.
SAME: Final = 1e-3
# Past this an input says nothing, and the order of execution decides.
FAR: Final = 0.7
# So many elements tell one tensor from another.
SAMPLE: Final = 4096
_FUSABLE: Final = ("linear", "conv")


@dataclass(slots=True)
class Choice:
    """Steps of PyTorch that one call of a cell's layer may be."""

    steps: tuple[int, ...]
    parts: dict[str, tuple[Part, ...]]
    distance: float
    penalty: int = 0
    rows: tuple[int, int] | None = None  # of the step's output, where the cell makes a part of it


@dataclass(slots=True)
class Matched:
    """One layer of the cell, and the steps it stands for.

    ``evidence`` is ``data`` (the same input), ``data and order`` (several steps have that input),
    or ``order``.
    """

    place: Place
    choice: Choice
    evidence: str
    rivals: int = 0
    calls: list[Choice] = field(default_factory=list)


class Matching:
    """The pass over the cell; :attr:`found` holds its layers by path.

    Parameters
    ----------
    walk : Walk
        PyTorch's run, with random parameters.
    tensors : dict of str to Tensor
        The parameters and buffers of that run.
    cell : mindspore.nn.Cell
        Its parameters are overwritten.
    turns : dict of str to int
        Where several steps have one input: which of them, by the path of the cell.
    """

    def __init__(
        self,
        walk: Walk,
        tensors: dict[str, torch.Tensor],
        cell: Any,
        turns: dict[str, int] | None = None,
    ) -> None:
        self.walk, self.tensors, self.cell = walk, tensors, cell
        self.places = places(cell)
        self.turns = turns or {}
        self.found: dict[str, Matched] = {}
        self.order: list[str] = []
        self._used: set[int] = set()
        self._rows: dict[int, int] = {}
        self._last = -1
        self._now: dict[str, Choice] = {}
        self.output: Any = None

    def run(self, inputs: tuple[Any, ...]) -> Matching:
        """Run the cell once and match as it goes."""
        layers = {p for p, place in self.places.items() if place.family}
        self.output = Guided(self.cell, self._before, self._after, layers)(inputs)
        return self

    # --- one call -------------------------------------------------------------------------------

    def _before(self, path: str, cell: Any, given: np.ndarray[Any, Any] | None) -> Any:
        del cell
        place = self.places[path]
        known = self.found.get(path)
        choice, rivals = self._choose(place, given, known)
        if choice is None:
            self._now.pop(path, None)
            return None
        self._take(choice)
        self._now[path] = choice
        if known is None:
            evidence = "order" if choice.distance > FAR else "data and order" if rivals else "data"
            self.found[path] = Matched(place, choice, evidence, rivals, [choice])
            self.order.append(path)
            for role, parts in choice.parts.items():
                if role in place.parameters:
                    values = torch.cat([p.of(self.tensors) for p in parts])
                    set_values(place.parameters[role][1], values)
            for role in place.parameters.keys() - choice.parts.keys():
                _neutral(place, role)
        else:
            known.calls.append(choice)
        held = self.walk.steps[choice.steps[0]].given
        return None if given is None or held is None else laid_out(held.numpy(), given)

    def _after(self, path: str, cell: Any, given: Any, made: np.ndarray[Any, Any] | None) -> Any:
        del cell, given
        choice = self._now.pop(path, None)
        if choice is None or made is None:
            return None
        expected = made_by(self.walk, choice)
        return None if expected is None else laid_out(expected, made)

    def _take(self, choice: Choice) -> None:
        for number in choice.steps:
            if choice.rows is None:
                self._used.add(number)
            else:
                self._rows[number] = choice.rows[1]
                if choice.rows[1] >= _length(self.walk.steps[number]):
                    self._used.add(number)
        self._last = max(self._last, *choice.steps)

    # --- the choice -----------------------------------------------------------------------------

    def _choose(
        self, place: Place, given: np.ndarray[Any, Any] | None, known: Matched | None
    ) -> tuple[Choice | None, int]:
        choices = list(self._choices(place, given, known))
        if not choices:
            return None, 0
        nearest = min(c.distance for c in choices)
        if nearest > FAR:
            later = [c for c in choices if c.steps[0] > self._last] or choices
            return min(later, key=lambda c: (c.penalty, c.steps)), len(later) - 1
        # Rounding apart, the same distance: several steps have this very input.
        limit = max(SAME, nearest * 1.0001)
        tied = sorted(
            (c for c in choices if c.distance <= limit), key=lambda c: (c.penalty, c.steps)
        )
        best = [c for c in tied if c.penalty == tied[0].penalty]
        turn = self.turns.get(place.path, 0)
        return best[turn % len(best)], len(best) - 1

    def _choices(
        self, place: Place, given: np.ndarray[Any, Any] | None, known: Matched | None
    ) -> Iterator[Choice]:
        for number, step in enumerate(self.walk.steps):
            if known is not None:
                # A second call has the same weights.
                if _names(step.parts) == _names_of(known.choice) and number not in self._used:
                    yield Choice((number,), known.choice.parts, self._distance(number, given))
                continue
            if number in self._used or not _alike(step, place):
                continue
            whole = _penalty(step, place)
            if whole is not None:
                parts: dict[str, tuple[Part, ...]] = {r: (p,) for r, p in step.parts.items()}
                yield Choice((number,), parts, self._distance(number, given), whole)
            elif place.family in _FUSABLE:
                yield from self._split(number, step, place, given)
                yield from self._fused(number, step, place, given)
        if known is not None:
            yield Choice(known.choice.steps, known.choice.parts, math.inf, 9, known.choice.rows)

    def _split(
        self, number: int, step: Step, place: Place, given: np.ndarray[Any, Any] | None
    ) -> Iterator[Choice]:
        """Yield the rows of the step that the cell's layer computes: q of a fused qkv."""
        rows, whole = place.shape("weight")[0], step.parts["weight"].shape[0]
        start = self._rows.get(number, 0)
        if whole <= rows or whole % rows or not _tails(step, place):
            return
        turn = self.turns.get(place.path, 0)
        if turn:
            start = (start + turn * rows) % whole
        span = (start, start + rows)
        parts: dict[str, tuple[Part, ...]] = {r: (p.rows(*span),) for r, p in step.parts.items()}
        yield Choice((number,), parts, self._distance(number, given), _bias(step, place), span)

    def _fused(
        self, number: int, step: Step, place: Place, given: np.ndarray[Any, Any] | None
    ) -> Iterator[Choice]:
        """Yield the steps that the cell's layer computes at once: qkv of q, k and v."""
        rows, first = place.shape("weight")[0], step.parts["weight"].shape[0]
        if first >= rows or rows % first or not _tails(step, place):
            return
        group = [number]
        for other in range(number + 1, len(self.walk.steps)):
            if len(group) * first == rows:
                break
            one = self.walk.steps[other]
            same = one.family == step.family and other not in self._used
            if same and one.parts.get("weight") is not None and _shape(one) == _shape(step):
                a, b = step.given, one.given
                if a is not None and b is not None and a.shape == b.shape and torch.equal(a, b):
                    group.append(other)
        if len(group) * first != rows:
            return
        parts = {
            role: tuple(self.walk.steps[n].parts[role] for n in group)
            for role in step.parts
            if all(role in self.walk.steps[n].parts for n in group)
        }
        yield Choice(tuple(group), parts, self._distance(number, given), _bias(step, place))

    def _distance(self, number: int, given: np.ndarray[Any, Any] | None) -> float:
        held = self.walk.steps[number].given
        if given is None or held is None:
            return math.inf
        return nearness(given, held.numpy())


def made_by(walk: Walk, choice: Choice) -> np.ndarray[Any, Any] | None:
    """Return what PyTorch made where the cell makes one thing."""
    made = [walk.steps[n].made for n in choice.steps]
    if any(m is None for m in made):
        return None
    arrays = [m.numpy() for m in made if m is not None]
    axis = 1 if walk.steps[choice.steps[0]].family == "conv" else -1
    if choice.rows is not None:
        part: np.ndarray[Any, Any] = np.take(arrays[0], range(*choice.rows), axis=axis)
        return part
    return np.concatenate(arrays, axis=axis) if len(arrays) > 1 else arrays[0]


def laid_out(held: np.ndarray[Any, Any], like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Return PyTorch's array in the shape of the cell's, None where it is no such array.

    One side may have the channels last where the other has them second.
    """
    found = _variants(held, like)
    if len(found) < 2:
        return found[0] if found else None
    return min(found, key=lambda v: _sampled(like, v))


def nearness(given: np.ndarray[Any, Any], held: np.ndarray[Any, Any]) -> float:
    """Return :func:`relative` of evenly spaced elements; infinite where the sizes differ."""
    return min((_sampled(given, v) for v in _variants(held, given)), default=math.inf)


def _variants(held: np.ndarray[Any, Any], like: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    if held.size != like.size:
        return []
    found = [held.reshape(like.shape)]
    if held.ndim >= 3 and squeezed(held.shape) != squeezed(like.shape):
        moved = (np.moveaxis(held, -1, 1), np.moveaxis(held, 1, -1))
        found += [m for m in moved if m.shape == like.shape]
    if like.ndim == 3 and min(like.shape[:2]) > 1 and held.shape[-1] == like.shape[-1]:
        # nn.MultiheadAttention computes with the sequence first, whatever batch_first is.
        n, length, _ = like.shape
        found.append(held.reshape(length, n, -1).swapaxes(0, 1))
    return found


def _sampled(candidate: np.ndarray[Any, Any], reference: np.ndarray[Any, Any]) -> float:
    # An odd step, so that not one channel alone is looked at.
    step = max(1, candidate.size // SAMPLE) | 1
    at = np.unravel_index(np.arange(0, candidate.size, step), candidate.shape)
    return relative(candidate[at], reference[at])


def relative(candidate: np.ndarray[Any, Any], reference: np.ndarray[Any, Any]) -> float:
    """Return ``||candidate - reference|| / ||reference||``, of rows of one length."""
    a = reference.reshape(-1).astype(np.float64)
    b = candidate.reshape(-1).astype(np.float64)
    norm = float(np.linalg.norm(a))
    apart = float(np.linalg.norm(b - a))
    if not math.isfinite(apart):
        return math.inf
    return apart / norm if norm else (0.0 if apart == 0 else math.inf)


def squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without its ones: what a layer's dimensions do not change."""
    return tuple(n for n in shape if n != 1)


def _alike(step: Step, place: Place) -> bool:
    """Whether a step and a layer are of one family, and have their groups in common."""
    families = {step.family, place.family}
    if len(families) > 1 and families != {"conv", "linear"}:
        return False
    if step.family == "conv" and place.family == "conv":
        groups = getattr(place.cell, "group", None)
        return groups is None or int(groups) == int(step.options[-1])
    return True


def _penalty(step: Step, place: Place) -> int | None:
    """Return how badly a step's parameters fit a layer's; None where they do not."""
    if step.family == "rnn":
        return None
    wrong = 0
    for role in ("weight", "running_mean"):
        a, b = role in step.parts, role in place.parameters
        if a and b and squeezed(step.parts[role].shape) != squeezed(place.shape(role)):
            return None
        if a != b:
            wrong += 1
    if "weight" in step.parts and "weight" in place.parameters:
        ours, theirs = step.parts["weight"].shape, place.shape("weight")
        if ours[:1] != theirs[:1]:
            return None
    return wrong + _bias(step, place) + _strides(step, place)


def _strides(step: Step, place: Place) -> int:
    if step.family != "conv" or place.family != "conv":
        return 0
    stride = getattr(place.cell, "stride", None)
    if stride is None:
        return 0
    own = [int(s) for s in stride] if isinstance(stride, tuple | list) else [int(stride)]
    return int(set(own[-len(step.options[0]) :]) != {int(s) for s in step.options[0]})


def _bias(step: Step, place: Place) -> int:
    return int(("bias" in step.parts) != ("bias" in place.parameters))


def _tails(step: Step, place: Place) -> bool:
    ours, theirs = step.parts["weight"].shape, place.shape("weight")
    return "weight" in step.parts and squeezed(ours[1:]) == squeezed(theirs[1:])


def _shape(step: Step) -> tuple[int, ...]:
    return step.parts["weight"].shape


def _length(step: Step) -> int:
    return step.parts["weight"].shape[0]


def _names(parts: dict[str, Part]) -> list[str]:
    return sorted({p.name for p in parts.values()})


def _names_of(choice: Choice) -> list[str]:
    return sorted({p.name for p in itertools.chain(*choice.parts.values())})


def _neutral(place: Place, role: str) -> None:
    """Give a parameter that PyTorch has none for what changes nothing."""
    parameter = place.parameters[role][1]
    one = {"weight": 1.0, "running_var": 1.0}.get(role, 0.0)
    if role in ("weight", "bias", "running_mean", "running_var"):
        set_values(parameter, torch.full(tuple(parameter.shape), one))
