"""What a conversion loses, counted: range, sign, fraction, digits, NaN and imaginary parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from migrate_kit.dtypes.mapping import DType
    from migrate_kit.results import Level

_SCALE = "scale the values, or use bfloat16 or float32"


@dataclass(frozen=True)
class Loss:
    """One kind of loss: its name, how grave, how many values, and where the first one is."""

    name: str
    level: Level
    count: int
    first: tuple[int, ...]
    what: str
    fix: str = ""


def find_losses(before: NDArray[Any], after: NDArray[Any], wanted: DType) -> list[Loss]:
    """Compare a value with what a conversion to ``wanted`` made of it.

    Parameters
    ----------
    before, after : ndarray
        Of one shape, each in a NumPy dtype that holds it exactly.
    wanted : DType
        What ``after`` is.

    Returns
    -------
    list of Loss
        Only those that happened, the gravest first.
    """
    losses: list[Loss] = []
    if wanted.kind == "bool":
        losses += _truth(before)
    elif before.dtype.kind == "c" and wanted.kind == "complex":
        losses += _floats(before.real, after.real, wanted)
        losses += _floats(before.imag, after.imag, wanted)
    else:
        if before.dtype.kind == "c":
            losses += _imaginary(before)
            before = before.real
        if wanted.kind in ("int", "uint"):
            losses += _integers(before, wanted)
        else:
            losses += _floats(before, after.real, wanted)
    order = ("error", "warning", "info")
    return sorted((x for x in losses if x.count), key=lambda x: order.index(x.level))


def _loss(name: str, level: Level, mask: NDArray[Any], what: str, fix: str = "") -> Loss:
    count = int(np.count_nonzero(mask))
    first: tuple[int, ...] = ()
    if count:
        first = tuple(int(i) for i in np.unravel_index(int(np.argmax(mask)), mask.shape))
    return Loss(name, level, count, first, what, fix)


def _imaginary(before: NDArray[Any]) -> list[Loss]:
    fix = "keep real and imaginary parts as two tensors"
    return [_loss("imaginary", "error", before.imag != 0, "lose their imaginary part", fix)]


def _truth(before: NDArray[Any]) -> list[Loss]:
    other = (before != 0) & (before != 1)
    what = "other than 0 and 1 become True"
    return [_loss("truth", "warning", other, f"{what}; so does NaN" if _nan(before) else what)]


def _nan(x: NDArray[Any]) -> bool:
    return x.dtype.kind in "fc" and bool(np.isnan(x).any())


def _integers(before: NDArray[Any], wanted: DType) -> list[Loss]:
    low, high = int(wanted.minimum or 0), int(wanted.maximum or 0)
    if before.dtype.kind in "bui":
        over, under = _beyond(before, low, high)
        fix = f"check the range before the cast; {wanted.name} holds {low} to {high}"
        return [_wrapped(over, fix), *_negative(under, low, fix)]
    bad = ~np.isfinite(before)
    whole = np.trunc(np.where(bad, 0, before))
    # 2^63 is a float, 2^63 - 1 is not.
    over, under = (whole >= 2.0 ** (wanted.bits - (wanted.kind == "int"))) & ~bad, whole < low
    fix = f"clamp to {low} … {high} before the cast"
    return [
        _loss("nan", "error", bad, "are NaN or infinite, which no integer holds", "replace them"),
        _loss("overflow", "error", over, f"exceed {high}: the result is not defined", fix),
        *_negative(under, low, fix),
        _loss("fraction", "warning", (before != whole) & ~bad, "lose their fraction", "round()"),
    ]


def _beyond(before: NDArray[Any], low: int, high: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return which integers are above and below a range, compared without a change of sign."""
    if before.dtype.kind == "b":
        none = np.zeros(before.shape, bool)
        return none, none
    info = np.iinfo(before.dtype)
    over = before > high if high < info.max else np.zeros(before.shape, bool)
    under = before < low if low > info.min else np.zeros(before.shape, bool)
    return over, under


def _wrapped(mask: NDArray[Any], fix: str) -> Loss:
    return _loss("overflow", "error", mask, "are too large and wrap around", fix)


def _negative(mask: NDArray[Any], low: int, fix: str) -> list[Loss]:
    if low == 0:
        what = "are negative, and the result has no sign: they come out large or undefined"
        return [_loss("negative", "error", mask, what, fix)]
    return [_loss("overflow", "error", mask, f"are below {low}", fix)]


def _floats(before: NDArray[Any], after: NDArray[Any], wanted: DType) -> list[Loss]:
    """Losses of one real array that became a floating point one."""
    signless = wanted.minimum is not None and wanted.minimum >= 0
    negative = (before < 0) & signless
    finite = np.isfinite(before) & ~negative
    losses = [
        _loss(
            "negative",
            "error",
            negative,
            f"are negative, and {wanted.name} has no sign",
            "keep the signs apart, or use another dtype",
        ),
        *_too_large(before, after, wanted, finite),
        *_not_finite(before, after, wanted, ~negative),
        *_too_small(before, after, wanted, finite),
    ]
    if before.dtype.kind in "ui":
        # What exceeds the range is an overflow already, and no matter of digits.
        changed = _changed_integers(before, after) & finite & np.isfinite(after)
        changed &= ~_saturated(before, after, wanted)
        bits = (wanted.mantissa_bits or 0) + 1
        what = (
            f"are integers that {wanted.name} does not hold exactly (it holds all up to 2^{bits})"
        )
        losses.append(_loss("rounded integers", "warning", changed, what, "keep them integers"))
    return losses


def _not_finite(
    before: NDArray[Any], after: NDArray[Any], wanted: DType, counted: NDArray[Any]
) -> list[Loss]:
    """NaN and infinities in a dtype that lacks them."""
    nan = np.isnan(before) & ~np.isnan(after) & counted
    infinite = np.isinf(before) & (after != before) & counted
    fix, lacks = "replace them first: torch.nan_to_num", f"which {wanted.name} does not hold"
    return [
        _loss("nan", "error", nan, f"are NaN, {lacks}, and become {_first(after, nan)}", fix),
        _loss(
            "infinity",
            "error",
            infinite,
            f"are infinite, {lacks}, and become {_first(after, infinite)}",
            fix,
        ),
    ]


def _too_large(
    before: NDArray[Any], after: NDArray[Any], wanted: DType, finite: NDArray[Any]
) -> list[Loss]:
    far = np.abs(before.astype(np.float64)) > (wanted.maximum or np.inf)
    lost = (~np.isfinite(after) & far | _saturated(before, after, wanted)) & finite
    what = f"exceed {wanted.maximum or np.inf:g} and become {_first(np.abs(after), lost)}"
    return [_loss("overflow", "error", lost, what, _SCALE)]


def _saturated(before: NDArray[Any], after: NDArray[Any], wanted: DType) -> NDArray[Any]:
    """Whether a value became the largest number from farther away than rounding reaches."""
    largest = wanted.maximum
    if largest is None or wanted.mantissa_bits is None:
        return np.zeros(before.shape, bool)
    half = np.ldexp(0.5, int(np.frexp(largest)[1]) - 1 - wanted.mantissa_bits)
    far = np.abs(before.astype(np.float64)) > largest + half
    saturated: NDArray[Any] = far & (np.abs(after) == largest) & np.isfinite(before)
    return saturated


def _too_small(
    before: NDArray[Any], after: NDArray[Any], wanted: DType, finite: NDArray[Any]
) -> list[Loss]:
    tiny = wanted.smallest_normal or 0.0
    size, made = np.abs(before.astype(np.float64)), np.abs(after)
    flushed = (after == 0) & (before != 0) & finite
    # Rounding to the nearest at most doubles a number: this one was raised to the smallest.
    ends = np.isnan(after) & (size <= (wanted.maximum or np.inf))
    raised = ((size < made / 2) & np.isfinite(after) | ends) & finite
    small = (made < tiny) & (after != 0) & finite & ~raised
    smallest = _first(made, raised)
    return [
        _loss(
            "underflow",
            "warning",
            flushed,
            f"are too small for {wanted.name} and become 0",
            _SCALE,
        ),
        _loss(
            "underflow",
            "error" if ends.any() else "warning",
            raised,
            f"are 0 or too small for {wanted.name}, which has no 0, and become {smallest}",
            _SCALE,
        ),
        _loss(
            "subnormal",
            "info",
            small,
            f"are below {tiny:.3g}, the smallest normal number: fewer digits, and a device that"
            " flushes subnormals makes them 0",
        ),
    ]


def _first(values: NDArray[Any], mask: NDArray[Any]) -> str:
    """Say what the first of the marked values is."""
    marked = values[mask]
    if not marked.size:
        return ""
    value = float(marked.flat[0])
    return "NaN" if np.isnan(value) else "infinite" if np.isinf(value) else f"{value:g}"


def _changed_integers(before: NDArray[Any], after: NDArray[Any]) -> NDArray[Any]:
    """Whether an integer differs from the float made of it, exactly."""
    info = np.iinfo(before.dtype)
    inside = (after >= float(info.min)) & (after < 2.0 ** (info.bits - (info.min < 0)))
    back = np.where(inside, after, 0).astype(before.dtype)
    changed: NDArray[Any] = ~inside | (back != before)
    return changed


def errors(before: NDArray[Any], after: NDArray[Any]) -> tuple[float, float, int]:
    """Return the largest absolute and relative error of finite values, and how many differ.

    Returns
    -------
    tuple
        ``max |after - before|``, ``max |after - before| / |before|`` where ``before`` is not 0, and
        a count.
    """
    kinds = before.dtype.kind + after.dtype.kind
    # 64-bit integers need more than float64 has, and get it where the machine has it.
    long = any(x.dtype.kind in "ui" and x.dtype.itemsize == 8 for x in (before, after))
    wide: Any = np.longdouble if long else np.float64
    if "c" in kinds:
        wide = np.clongdouble if long else np.complex128
    a, b = before.astype(wide), after.astype(wide)
    changed = int(np.count_nonzero((a != b) & ~(np.isnan(a) & np.isnan(b))))
    fine = np.isfinite(a) & np.isfinite(b)
    a, b = a[fine], b[fine]
    with np.errstate(all="ignore"):
        distance = np.abs(b - a)
        relative = distance[a != 0] / np.abs(a[a != 0])
    return (
        float(distance.max(initial=0.0)),
        float(relative.max(initial=0.0)),
        changed,
    )
