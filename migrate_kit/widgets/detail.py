"""What the browser is told about one layer: two tensors reduced to a picture's worth of numbers.

A layer may hold ten million elements and the answer must be small and quick, so the tensors are
read in pieces that stay in the processor's cache; nothing as large as the tensor is allocated.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch

from migrate_kit.widgets.layout import Layout, layout_of, pool

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from migrate_kit.widgets.layout import Piece

Arrays: TypeAlias = "dict[str, np.ndarray[Any, Any]]"
NO_TENSORS = (
    "No tensors were kept for this layer, so its statistics are all there is. "
    "Capture both runs with mk.capture(..., tensors=True) to see where it differs."
)
_SINGLE = {
    torch.float32, torch.float16, torch.bfloat16, torch.bool, torch.int8, torch.uint8, torch.int16,
}  # fmt: skip
# Digits that tell two neighbouring values of a type apart, without the noise of repr().
_DIGITS = {torch.float16: 5, torch.bfloat16: 4, torch.float32: 8, torch.complex64: 8}


@dataclass(frozen=True)
class Limits:
    """How much of a layer is sent: cells of the heatmap, points of the scatter, and so on."""

    rows: int = 96
    columns: int = 256
    bins: int = 80
    points: int = 4000
    extremes: int = 200
    worst: int = 20


def reduce_pair(
    reference: torch.Tensor | None,
    candidate: torch.Tensor | None,
    limits: Limits | None = None,
    channel: str = "forward",
) -> tuple[dict[str, Any], Arrays]:
    """Reduce two tensors to what can be drawn.

    Parameters
    ----------
    reference, candidate : torch.Tensor or None
        Any dtype and shape; None where that side kept no tensor.
    limits : Limits, optional
        The size of the answer.
    channel : str
        The channel of the row: a parameter has its outputs on axis 0, an activation its samples.

    Returns
    -------
    header, arrays : dict, dict
        JSON values, and the arrays ``heat``, ``x``, ``y``, ``alike`` and ``unlike``.

    Examples
    --------
    >>> header, arrays = reduce_pair(torch.zeros(2, 3), torch.ones(2, 3))
    >>> header["max"], arrays["heat"].shape
    (1.0, (2, 3))
    """
    limits = limits or Limits()
    sides = [None if t is None else _dense(t) for t in (reference, candidate)]
    if sides[0] is None and sides[1] is None:
        return {"message": NO_TENSORS}, {}
    if sides[0] is None or sides[1] is None or sides[0].shape != sides[1].shape:
        return _apart(sides, limits), {}
    x, y = sides
    assert x is not None and y is not None  # noqa: S101, PT018 - for the type checker
    if x.numel() == 0:
        return {"message": f"This tensor is empty (shape {_shape(x)}).", "elements": 0}, {}
    return _Pair(x, y, limits, channel).result()


def _apart(sides: Sequence[torch.Tensor | None], limits: Limits) -> dict[str, Any]:
    """Describe tensors that cannot be subtracted: histograms only."""
    x, y = sides
    if x is not None and y is not None:
        message = f"The shapes differ: {_shape(x)} against {_shape(y)}. Only histograms are shown."
    else:
        name = "candidate" if x is None else "reference"
        message = f"Only the {name} has a tensor here, so there is nothing to subtract."
    flats = [None if t is None else t.reshape(-1) for t in sides]
    span, counts = _Span(), []
    for flat in flats:
        bad = [0, 0]
        for part in _parts(flat):
            real = _real(part, _work(part.dtype))
            span.add(real)
            bad = [bad[0] + int(real.isnan().sum()), bad[1] + int(real.isinf().sum())]
        counts.append(bad)
    header = {"message": message, "nonfinite": {"reference": counts[0], "candidate": counts[1]}}
    return header | {"histogram": _histogram(flats, span, limits)}


class _Span:
    """The finite range of what was added."""

    def __init__(self) -> None:
        self.low, self.high = float("inf"), float("-inf")

    def add(self, values: torch.Tensor) -> None:
        low, high = (float(v) for v in torch.aminmax(values))
        if not (np.isfinite(low) and np.isfinite(high)):
            values = values[values.isfinite()]
            if values.numel() == 0:
                return
            low, high = (float(v) for v in torch.aminmax(values))
        self.low, self.high = min(self.low, low), max(self.high, high)


@dataclass
class _Largest:
    """The ``keep`` largest values of a stream and where they were."""

    keep: int
    values: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    places: torch.Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))

    def add(self, values: torch.Tensor, offset: int, top: float) -> None:
        least = float(self.values[-1]) if len(self.values) == self.keep else 0.0
        if top <= least:  # the common case after the first pieces: nothing to do
            return
        found = torch.nonzero(values > least).reshape(-1)
        both = torch.cat([self.values.to(values.dtype), values[found]])
        places = torch.cat([self.places, found + offset])
        self.values, order = both.topk(min(self.keep, len(both)))
        self.places = places[order]


class _Pair:
    """One pass over both tensors for everything but the histogram, whose range it finds."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, limits: Limits, channel: str) -> None:
        self.x, self.y, self.limits = x, y, limits
        self.shape = tuple(x.shape)
        self.flat = (x.reshape(-1), y.reshape(-1))
        self.work = _work(torch.promote_types(_work(x.dtype), _work(y.dtype)))
        self.layout: Layout = layout_of(self.shape, channel, limits.rows, limits.columns)
        self.signed = self.layout.exact and not self.work.is_complex
        self.heat = torch.zeros(self.layout.cells, dtype=torch.float32)
        self.marks = torch.zeros(self.layout.cells, dtype=torch.int8)
        self.span, self.largest = _Span(), _Largest(limits.extremes)
        self.changed = 0
        self.nonfinite = {"reference": [0, 0], "candidate": [0, 0]}
        self.unlike = 0
        self.unlike_places: list[int] = []

    def result(self) -> tuple[dict[str, Any], Arrays]:
        for piece in self.layout.pieces():
            self._read(piece)
        header: dict[str, Any] = {
            "elements": self.x.numel(),
            "changed": self.changed,
            "max": _plain(float(self.largest.values[0])) if len(self.largest.values) else 0.0,
            "magnitude": self.work.is_complex,
            "nonfinite": {**self.nonfinite, "unlike": self.unlike},
            "heat": self.layout.describe() | {"signed": self.signed},
            "histogram": _histogram(self.flat, self.span, self.limits),
            "worst": self._worst(),
        }
        arrays = {"heat": self.layout.picture(self.heat)}
        if sum(self.nonfinite["reference"]) + sum(self.nonfinite["candidate"]):
            marks = self.layout.picture(self.marks).reshape(-1)
            arrays["alike"], arrays["unlike"] = np.nonzero(marks == 1)[0], np.nonzero(marks == 2)[0]
        points, header["sampled"] = self._points()
        return header, arrays | points

    def _read(self, piece: Piece) -> None:
        cells = piece.cells(self.layout)
        # .to() copies only what is not already in the working type.
        x, y = (side[piece.start : piece.end].to(self.work) for side in self.flat)
        d = y - x
        if self.work.is_complex:
            d, x, y = d.abs(), x.abs(), y.abs()
        size = d.abs()
        top = float(size.amax())
        if not np.isfinite(top):  # amax lets NaN through, so one test finds every kind
            d = self._set_aside(x, y, d, piece)
            size = d.abs()
            top = float(size.amax())
        self.span.add(x)
        self.span.add(y)
        self.changed += int(torch.count_nonzero(size))
        self.largest.add(size, piece.start, top)
        if self.signed:
            self.heat[cells] = d.view(piece.shape).float()
        else:
            seen = pool(size.view(piece.shape), self.layout.blocks).float()
            self.heat[cells] = torch.maximum(self.heat[cells], seen)

    def _set_aside(
        self, x: torch.Tensor, y: torch.Tensor, d: torch.Tensor, piece: Piece
    ) -> torch.Tensor:
        """Count and mark what is not finite; return the differences with zero in its place."""
        bad = ~(x.isfinite() & y.isfinite())
        alike = bad & ((x == y) | (x.isnan() & y.isnan()))
        unlike = bad & ~alike
        for name, side in (("reference", x), ("candidate", y)):
            seen = self.nonfinite[name]
            self.nonfinite[name] = [
                seen[0] + int(side.isnan().sum()),
                seen[1] + int(side.isinf().sum()),
            ]
        self.unlike += int(unlike.sum())
        # Half of the list at most: the largest differences have a place on it too.
        room = self.limits.worst // 2 - len(self.unlike_places)
        if room > 0:
            found = torch.nonzero(unlike).reshape(-1)[:room] + piece.start
            self.unlike_places += [int(i) for i in found]
        marks = (bad.to(torch.int8) + unlike.to(torch.int8)).view(piece.shape)
        marks, cells = pool(marks, self.layout.blocks), piece.cells(self.layout)
        self.marks[cells] = torch.maximum(self.marks[cells], marks)
        # Two finite values may still be too far apart for the type: the largest it has, then.
        return torch.where(bad, 0, d).nan_to_num()

    def _worst(self) -> list[dict[str, Any]]:
        """List elements where one side alone is finite, then the largest differences."""
        places = self.unlike_places + [int(i) for i in self.largest.places]
        lines = []
        for place in places[: self.limits.worst]:
            x, y = (side[place] for side in self.flat)
            d = float((y.to(self.work) - x.to(self.work)).abs())
            if not self.work.is_complex and y.to(self.work) < x.to(self.work):
                d = -d
            index = [int(i) for i in np.unravel_index(place, self.shape)] if self.shape else []
            lines.append(
                {"index": index, "reference": _text(x), "candidate": _text(y), "d": _plain(d)}
            )
        return lines

    def _points(self) -> tuple[Arrays, int]:
        """Draw elements at random, the same ones each time, and add the worst."""
        count = self.x.numel()
        if count <= self.limits.points:
            some = torch.arange(count)
        else:
            draw = torch.Generator().manual_seed(0)
            some = torch.randint(count, (self.limits.points,), generator=draw)
        pairs = []
        for places in (some, self.largest.places):
            x, y = (_real(side[places], self.work).float() for side in self.flat)
            fine = x.isfinite() & y.isfinite()
            pairs.append((x[fine], y[fine]))
        xs, ys = (torch.cat(side).numpy() for side in zip(*pairs, strict=True))
        return {"x": xs, "y": ys}, len(pairs[0][0])


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach().cpu()
    if tensor.is_quantized:
        return tensor.dequantize()
    return tensor.to_dense() if tensor.layout != torch.strided else tensor


def _work(dtype: torch.dtype) -> torch.dtype:
    """Return the type to subtract in: float32 where it holds every value exactly."""
    if dtype.is_complex:
        return torch.complex128 if dtype == torch.complex128 else torch.complex64
    small = dtype in _SINGLE or (dtype.is_floating_point and dtype.itemsize == 1)
    return torch.float32 if small else torch.float64


def _real(values: torch.Tensor, work: torch.dtype) -> torch.Tensor:
    values = values.to(work)
    return values.abs() if work.is_complex else values


def _parts(flat: torch.Tensor | None, size: int = 1 << 18) -> Iterator[torch.Tensor]:
    if flat is not None:
        for start in range(0, flat.numel(), size):
            yield flat[start : start + size]


def _histogram(
    flats: Sequence[torch.Tensor | None], span: _Span, limits: Limits
) -> dict[str, Any] | None:
    """Count both sides on the same bins; None where nothing is finite."""
    low, high = span.low, span.high
    if low > high:
        return None
    if low == high:  # a constant tensor: one bin in the middle
        margin = abs(low) / 2 or 0.5
        low, high = low - margin, high + margin
    counts: list[list[int] | None] = []
    for flat in flats:
        if flat is None:
            counts.append(None)
            continue
        seen = torch.zeros(limits.bins, dtype=torch.float64)
        work = _work(flat.dtype)
        if high - low > torch.finfo(torch.float32).max:
            work = torch.complex128 if work.is_complex else torch.float64
        for part in _parts(flat):
            seen += torch.histc(_real(part, work), limits.bins, low, high)
        counts.append([int(n) for n in seen])
    ends = {"low": _plain(low), "high": _plain(high)}
    return ends | {"reference": counts[0], "candidate": counts[1]}


def _plain(value: float) -> float | str | None:
    """JSON has neither NaN nor infinities."""
    if np.isnan(value):
        return None
    return value if np.isfinite(value) else ("inf" if value > 0 else "-inf")


def _text(value: torch.Tensor) -> str:
    item = value.item()
    if isinstance(item, bool | int):
        return str(item)
    return f"{item:.{_DIGITS.get(value.dtype, 12)}g}"


def _shape(tensor: torch.Tensor) -> str:
    return "×".join(str(n) for n in tensor.shape) or "scalar"
