"""Numbers about one tensor, and about the difference of two.

Everything is computed in one walk over memory in chunks that stay in the processor's cache, so that
a tensor of any size costs one pass and a few hundred kilobytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from migrate_kit.errors import MigrateError

if TYPE_CHECKING:
    from numpy.typing import NDArray

SKETCH_LENGTH = 256
SKETCH_SEED = 20260
# So many signed rows of 256 are added one by one, such sums as a tree: as accurate as pairwise.
_SKETCH_ROWS = 16
_SKETCH_BLOCK = _SKETCH_ROWS * SKETCH_LENGTH
_SKETCH_BLOCKS = 1 << 12
# What a trace says of its sketches; only sketches made alike can be compared.
SKETCH: Final = {"length": SKETCH_LENGTH, "seed": SKETCH_SEED, "block": _SKETCH_BLOCK, "order": "C"}
_STATS_CHUNK = 1 << 18
_DIFF_CHUNK = 1 << 17

# Unit roundoff u = 2^-p, p = significand bits with the hidden one (IEEE 754-2019, table 3.5;
# bfloat16 and FP8: the formats' definitions, OCP 8-bit floating point specification 1.0).
_UNIT_ROUNDOFF = {
    torch.float64: 2.0**-53,
    torch.complex128: 2.0**-53,
    torch.float32: 2.0**-24,
    torch.complex64: 2.0**-24,
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
    torch.float8_e4m3fn: 2.0**-4,
    torch.float8_e5m2: 2.0**-3,
}


def unit_roundoff(dtype: torch.dtype) -> float:
    """Return u of a floating format; integers and bool are exact and get float64's."""
    return _UNIT_ROUNDOFF.get(dtype, 2.0**-53)


@dataclass(frozen=True, slots=True)
class Stats:
    """Statistics of one tensor; NaN and Inf are counted and left out of the other numbers."""

    numel: int
    min: float
    max: float
    mean: float
    norm: float
    nan: int = 0
    inf: int = 0


_PLAIN = (torch.float32, torch.float64)


def flat_values(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values of any tensor as one contiguous real row on the host, logical order.

    Complex tensors become interleaved real and imaginary parts; sparse and quantized ones are made
    dense; bool becomes uint8. Copies only where the memory is not already that row.
    """
    t = tensor.detach()
    # Nearly every layer's output; the questions below cost as much as a small layer.
    if t.dtype in _PLAIN and t.layout == torch.strided and t.is_cpu and not t.is_nested:
        row = t.reshape(-1)
        if row.is_contiguous() and not row.is_neg():
            return row
    if t.device.type == "meta" or t.is_nested:
        raise MigrateError(
            f"a {'nested' if t.is_nested else 'meta'} tensor has no values to compare",
            f"{str(t.dtype).removeprefix('torch.')}, layout {t.layout}",
            "give the network dense tensors on a device",
        )
    if t.layout != torch.strided:
        t = t.to_dense()
    if t.is_quantized:
        t = t.dequantize()
    if t.device.type != "cpu":
        t = t.cpu()
    if t.is_complex():
        t = torch.view_as_real(t.resolve_conj())
    if t.is_neg():
        t = t.resolve_neg()
    # reshape alone leaves a strided row (x[:, 0]) as it is.
    t = t.reshape(-1).contiguous()
    return t.view(torch.uint8) if t.dtype == torch.bool else t


def _computable(flat: torch.Tensor) -> torch.Tensor:
    """Widen formats that have no fast or no exact host arithmetic."""
    if flat.dtype in (torch.float32, torch.float64):
        return flat
    if flat.is_floating_point():
        return flat.float()
    return flat.double()


def statistics(flat: torch.Tensor) -> Stats:
    """Return :class:`Stats` of a row made by :func:`flat_values`.

    float32 rows are summed in float32 (pairwise), so that the cost stays near one pass; where that
    overflows, or NaN or Inf are present, the row is walked again in float64.
    """
    n = flat.numel()
    if n == 0:
        return Stats(0, math.nan, math.nan, math.nan, 0.0)
    work = _computable(flat)
    low, high, total, square = math.inf, -math.inf, 0.0, 0.0
    # Piece by piece, so that three of the four walks find it in the processor's cache.
    for part in (work,) if n <= _STATS_CHUNK else work.split(_STATS_CHUNK):
        total += float(part.sum())
        square += float(torch.dot(part, part))
        values = part.numpy()
        low, high = min(low, float(values.min())), max(high, float(values.max()))
    # A float32 sum of squares of tiny values underflows: those are taken again in float64.
    underflow = square < 1e-30 and work.dtype == torch.float32 and low != high
    if math.isfinite(square) and math.isfinite(total) and not underflow:
        return Stats(n, low, high, total / n, math.sqrt(square))
    return _statistics_float64(work)


def _statistics_float64(work: torch.Tensor) -> Stats:
    nan = inf = 0
    low, high, total, square = math.inf, -math.inf, 0.0, 0.0
    for start in range(0, work.numel(), _DIFF_CHUNK):
        part = work[start : start + _DIFF_CHUNK].double()
        is_nan, is_inf = part.isnan(), part.isinf()
        nan += int(is_nan.sum())
        inf += int(is_inf.sum())
        part = part[~(is_nan | is_inf)]
        if part.numel():
            low, high = min(low, float(part.min())), max(high, float(part.max()))
            total += float(part.sum())
            square += float(torch.dot(part, part))
    finite = work.numel() - nan - inf
    if not finite:
        return Stats(work.numel(), math.nan, math.nan, math.nan, math.nan, nan, inf)
    return Stats(work.numel(), low, high, total / finite, math.sqrt(square), nan, inf)


# --- the sketch ---------------------------------------------------------------------------------


def _bits(start: int, count: int, seed: int) -> NDArray[np.uint8]:
    """Return ``count`` pseudo-random bits, the same on every machine and library version.

    splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014): the top
    bit of the mixed counter.
    """
    with np.errstate(over="ignore"):
        z = np.arange(start, start + count, dtype=np.uint64) + np.uint64(seed << 32)
        z = z * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return ((z ^ (z >> np.uint64(31))) >> np.uint64(63)).astype(np.uint8)


@lru_cache(maxsize=2)
def _signs(dtype: type[np.generic]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the signs inside a block, by row and bucket, and those of a block, by bucket."""
    inside = _bits(0, _SKETCH_BLOCK, SKETCH_SEED)
    blocks = _bits(0, _SKETCH_BLOCKS * SKETCH_LENGTH, SKETCH_SEED + 1)
    one, two = (1.0 - 2.0 * bits.reshape(-1, SKETCH_LENGTH) for bits in (inside, blocks))
    return one.astype(dtype), two.astype(dtype)


def _period_signs(period: int) -> torch.Tensor:
    """Return the signs, by bucket, that tell one period of 2^24 elements from the next."""
    bits = _bits(period * SKETCH_LENGTH, SKETCH_LENGTH, SKETCH_SEED + 2)
    return torch.from_numpy(1.0 - 2.0 * bits)


def sketch(flat: torch.Tensor) -> torch.Tensor:
    """Return the 256-float random sketch of a row: seeded signs, index mod 256, float32.

    ``||sketch(a) - sketch(b)||`` estimates ``||a - b||`` (AMS / CountSketch: Alon, Matias, Szegedy
    1996; Charikar, Chen, Farach-Colton 2002), so two machines can be compared from 1 KiB a tensor.
    The order is the logical C order whatever the memory is. The sign of an element is one of 4,096
    by its place in its block, times one by its block and bucket: each pair of elements in a bucket
    has independent signs, and the standard deviation is near 4.4 %, up to 8.8 % where the
    difference is the same everywhere.
    """
    work = _computable(flat)
    period = _SKETCH_BLOCK * _SKETCH_BLOCKS
    parts = [_signed_sum(piece) for piece in work.split(period)] if work.numel() else []
    if len(parts) == 1:
        return parts[0].float()
    if not parts:
        return torch.zeros(SKETCH_LENGTH, dtype=torch.float32, device="cpu")
    signed = [part * _period_signs(index) for index, part in enumerate(parts)]
    return torch.stack(signed).sum(0, dtype=torch.float64).float()


def _signed_sum(values: torch.Tensor) -> torch.Tensor:
    """Return the sum of signed values by index mod 256, of at most a period."""
    row = values.numpy()
    inside, by_block = _signs(row.dtype.type)
    whole, rest = divmod(row.size, _SKETCH_BLOCK)
    sums = np.empty((whole + (rest > 0), SKETCH_LENGTH), row.dtype)
    # One walk over the values; no product is written to memory.
    blocks = row[: row.size - rest].reshape(whole, _SKETCH_ROWS, SKETCH_LENGTH)
    np.einsum("kij,ij->kj", blocks, inside, out=sums[:whole])
    if rest:
        last = np.zeros(_SKETCH_BLOCK, row.dtype)
        last[:rest] = row[-rest:]
        np.einsum("ij,ij->j", last.reshape(_SKETCH_ROWS, SKETCH_LENGTH), inside, out=sums[whole])
    sums *= by_block[: len(sums)]
    return torch.from_numpy(sums).sum(0)


# --- the difference of two tensors --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """What separates candidate ``b`` from reference ``a``, over the elements finite in both.

    ``dd``, ``aa`` and ``bb`` are sums of squares; ``ad`` is ``sum(a * (b - a))``. ``nan``, ``inf``
    count ``(a, b)``; ``masks_differ`` counts elements non-finite in one run only or differently.
    """

    numel: int
    aa: float
    bb: float
    dd: float
    ad: float
    max_abs: float
    sum_abs: float
    nan: tuple[int, int] = (0, 0)
    inf: tuple[int, int] = (0, 0)
    masks_differ: int = 0

    @property
    def norm(self) -> float:
        """``||b - a||``."""
        return math.sqrt(self.dd)

    @property
    def reference_norm(self) -> float:
        """``||a||``."""
        return math.sqrt(self.aa)

    @property
    def rel_l2(self) -> float:
        """``||b - a|| / ||a||``; 0 where both are zero, inf where only ``a`` is."""
        if self.dd == 0:
            return 0.0
        return math.sqrt(self.dd / self.aa) if self.aa else math.inf

    @property
    def mean_abs(self) -> float:
        """Mean of ``|b - a|``."""
        return self.sum_abs / self.numel if self.numel else 0.0

    @property
    def mse(self) -> float:
        """Mean of ``(b - a)^2``."""
        return self.dd / self.numel if self.numel else 0.0

    @property
    def one_minus_cosine(self) -> float:
        """``1 - cos(a, b)`` as ``0.5 ||a/|a| - b/|b|||^2``, free of cancellation.

        With ``b = a + d``: ``||a/|a| - b/|b|||^2 = (|d|^2 - (|b| - |a|)^2) / (|a| |b|)`` and
        ``|b| - |a| = (2 a.d + |d|^2) / (|a| + |b|)``, all sums in float64.
        """
        a, b = math.sqrt(self.aa), math.sqrt(self.bb)
        if a == 0 or b == 0:
            return 0.0 if a == b else 1.0
        grown = (2 * self.ad + self.dd) / (a + b)
        return max(0.0, 0.5 * (self.dd - grown * grown) / (a * b))


def difference(a: torch.Tensor, b: torch.Tensor) -> Difference:
    """Compare two rows of equal length from :func:`flat_values`, in float64, in one pass.

    Raises
    ------
    ValueError
        If the rows differ in length.
    """
    if a.numel() != b.numel():
        raise ValueError(f"rows of {a.numel()} and {b.numel()} elements")
    aa = bb = dd = ad = largest = total = 0.0
    nan, inf, masks, skipped = [0, 0], [0, 0], 0, 0
    for start in range(0, a.numel(), _DIFF_CHUNK):
        x = a[start : start + _DIFF_CHUNK].double()
        y = b[start : start + _DIFF_CHUNK].double()
        d = y - x
        d2 = float(torch.dot(d, d))
        if not math.isfinite(d2):
            bad_x, bad_y = ~x.isfinite(), ~y.isfinite()
            for k, side in enumerate((x, y)):
                nan[k] += int(side.isnan().sum())
                inf[k] += int(side.isinf().sum())
            same = (x == y) | (x.isnan() & y.isnan())
            masks += int(((bad_x | bad_y) & ~same).sum())
            keep = ~(bad_x | bad_y)
            skipped += x.numel() - int(keep.sum())
            x, y = x[keep], y[keep]
            d = y - x
            d2 = float(torch.dot(d, d))
        x2 = float(torch.dot(x, x))
        aa += x2
        if d2 == 0.0:
            bb += x2
            continue
        dd += d2
        bb += float(torch.dot(y, y))
        ad += float(torch.dot(x, d))
        d.abs_()
        largest = max(largest, float(d.max()))
        total += float(d.sum())
    return Difference(
        a.numel() - skipped,
        aa,
        bb,
        dd,
        ad,
        largest,
        total,
        (nan[0], nan[1]),
        (inf[0], inf[1]),
        masks,
    )


def effective_bits(mean_squares: float, mse: float) -> float:
    """Return the bits that an error looks like (rule T3): ``log2(rms(S) / rms(d)) - 0.7``.

    ``mean_squares`` is the mean of ``S^2 = W^2 * x^2`` over the layer's outputs, ``mse`` the mean
    squared error. Two operands rounded to ``p`` bits cost 0.6 to 0.65 u a product (measured on a
    first convolution at four input scales), hence the 0.7. NaN where there is no error.
    """
    return 0.5 * math.log2(mean_squares / mse) - 0.7 if mse > 0 < mean_squares else math.nan


def format_of_bits(bits: float) -> str:
    """Name the arithmetic that ``bits`` effective significand bits look like.

    ``bits`` is ``log2(rms(S) / rms(d)) - 0.7`` (see :mod:`migrate_kit.layers.replay`). The
    boundaries lie between the bands measured on a first convolution at four input scales, after
    the 0.7: float32 21.2-22.2, HF32 12.0-12.6, TF32 and fp16 10.8-11.6, bfloat16 7.7-8.5, int8
    5.6-6.2.
    """
    if math.isnan(bits):
        return ""
    for limit, name in _FORMAT_BANDS:
        if bits >= limit:
            return name
    return "not rounding"


_FORMAT_BANDS = (
    (17.5, "fp32"),
    (14.0, "between fp32 and HF32"),
    (11.8, "HF32"),
    (9.8, "TF32/fp16"),
    (7.0, "bf16"),
    (4.5, "int8"),
)
