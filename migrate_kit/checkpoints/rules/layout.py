"""Weights whose axes lie in another order, or that are written with fewer or more of them."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from migrate_kit.checkpoints.vocabulary import split_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import torch

    from migrate_kit.checkpoints.sides import Piece, Shape, Slot

    Pieces = dict[str, Piece]

_FOREIGN = ("'kernel' is 'weight'", "'depthwise_kernel' is 'weight'", "'weights' is 'weight'")


def axes_of_convolutions(pieces: Pieces, slots: Mapping[str, Slot]) -> Pieces:
    """Turn (height, width, in, out) into (out, in, height, width), if that is how the file is."""
    kernels = {n: p for n, p in pieces.items() if len(p.shape) == 4 and _is_weight(n)}
    room: Counter[Shape] = Counter(
        s.shape for s in slots.values() if s.family == "conv" and len(s.shape) == 4
    )
    if not kernels or not room:
        return pieces
    as_is = _fitting((p.shape for p in kernels.values()), room)
    turned = _fitting((_oihw(p.shape) for p in kernels.values()), room)
    depthwise = _fitting((_multiplied(p.shape) for p in kernels.values()), room)
    foreign = sum(_is_foreign(p) for p in kernels.values())
    better = turned + depthwise > as_is
    if not better and not (foreign and turned + depthwise == as_is):
        return pieces
    named = dict(pieces)
    for name, piece in kernels.items():
        by_name = "'depthwise_kernel' is 'weight'" in piece.rules
        shape = _oihw(piece.shape)
        if by_name or (shape not in room and _multiplied(piece.shape) in room):
            rule, why = "axes (h, w, in, times) turned", "a depthwise weight of TensorFlow"
            named[name] = piece.turned(_multiplied(piece.shape), _turn_depthwise, rule, why)
        else:
            rule, why = "axes (h, w, in, out) turned", "a convolution's weight of TensorFlow"
            named[name] = piece.turned(shape, _turn_oihw, rule, why)
    return named


def axes_of_linear_layers(pieces: Pieces, slots: Mapping[str, Slot]) -> Pieces:
    """Turn (in, out) into (out, in), if that is how the file's linear layers are.

    A square weight shows no direction, and in a stack of d to 4d and back every shape exists both
    ways: those follow the layers that do show one.
    """
    places = {n: s.shape for n, s in slots.items() if s.family == "linear" and len(s.shape) == 2}
    weights = {n: p for n, p in pieces.items() if len(p.shape) == 2 and _is_weight(n)}
    # A few names in common may be an accident.
    by_name = 2 * sum(n in places for n in weights) > len(places)
    tables = {s.shape for s in slots.values() if s.family == "embedding"}
    room = tables | set(places.values())
    verdicts: dict[str, str] = {}
    votes: Counter[str] = Counter()
    for name, piece in weights.items():
        own = {places[name]} if by_name and name in places else room
        # An embedding's table is never turned, and says nothing of the linear layers.
        is_table = name in slots and name not in places
        verdicts[name] = "as it is" if is_table else _direction(piece.shape, own)
        votes[verdicts[name]] += name in places if by_name else piece.shape not in tables
    foreign = any(_is_foreign(p) for p in weights.values())
    turned, as_is = votes["turned"], votes["as it is"]
    if not by_name:
        oblong = [p.shape for p in weights.values() if p.shape[0] != p.shape[1]]
        counts = Counter(places.values())
        turned = _fitting([(o, i) for i, o in oblong], counts)
        as_is = _fitting(oblong, counts)
    # One weight alone that fits the other way round is more likely another layer's.
    if not turned > as_is and not (foreign and turned == as_is):
        return pieces
    named = dict(pieces)
    for name, piece in weights.items():
        verdict = verdicts[name]
        if verdict != "as it is":
            why = "a linear layer's weight of (in, out)"
            if verdict == "either":
                why += f": its shape does not tell, {votes['turned']} others do"
            rule = "axes (in, out) turned"
            shape = (piece.shape[1], piece.shape[0])
            named[name] = piece.turned(shape, _transposed, rule, why)
    return named


def reshaped(piece: Piece, shape: Shape) -> Piece | None:
    """Return the piece in ``shape`` where both are one weight: a 1 by 1 convolution is linear.

    So are a linear layer after flatten and the convolution over its whole input.
    """
    if not shares_weight(piece.shape, shape):
        return None
    rule = f"shape {_by(piece.shape)} as {_by(shape)}"
    why = "a convolution and a linear layer with the same weight"
    return piece.turned(shape, lambda t: t.reshape(shape), rule, why)


def shares_weight(one: Shape, other: Shape) -> bool:
    """Whether two shapes hold one weight in the same order.

    Examples
    --------
    >>> shares_weight((10, 64, 1, 1), (10, 64)), shares_weight((64, 10), (10, 64))
    (True, False)
    >>> shares_weight((128, 576), (128, 64, 3, 3))
    True
    """
    if len(one) < 2 or len(other) < 2 or len(one) == len(other):
        return False
    return one[0] == other[0] and math.prod(one) == math.prod(other) and _flat_or_equal(one, other)


def _flat_or_equal(one: Shape, other: Shape) -> bool:
    return 2 in (len(one), len(other)) or _ones_out(one) == _ones_out(other)


def _ones_out(shape: Shape) -> Shape:
    return (*shape[:2], *(n for n in shape[2:] if n != 1))


def _is_weight(name: str) -> bool:
    return split_name(name)[1] == "weight"


def _is_foreign(piece: Piece) -> bool:
    return any(rule in _FOREIGN for rule in piece.rules)


def _fitting(shapes: Iterable[Shape], room: Counter[Any]) -> int:
    return (Counter(shapes) & room).total()


def _direction(shape: Shape, room: Iterable[Shape]) -> str:
    there, back = shape in room, (shape[1], shape[0]) in room
    if there == back or shape[0] == shape[1]:
        return "either"
    return "as it is" if there else "turned"


def _oihw(shape: Shape) -> Shape:
    h, w, i, o = shape
    return (o, i, h, w)


def _multiplied(shape: Shape) -> Shape:
    h, w, channels, times = shape
    return channels * times, 1, h, w


def _turn_oihw(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.permute(3, 2, 0, 1)


def _turn_depthwise(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.permute(2, 3, 0, 1).reshape(_multiplied(tuple(tensor.shape)))


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.t()


def _by(shape: Shape) -> str:
    return " by ".join(map(str, shape))
