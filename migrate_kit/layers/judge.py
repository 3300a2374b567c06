"""From two records to one row: measure, and give the verdict."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from migrate_kit.layers.metrics import difference, format_of_bits, unit_roundoff
from migrate_kit.layers.noise import ASSUMED_IN_U, NoiseFloor
from migrate_kit.layers.rows import LayerRow, Origin, Verdict
from migrate_kit.layers.store import dtype_of
from migrate_kit.results import number

if TYPE_CHECKING:
    from migrate_kit.layers.pairing import Pair
    from migrate_kit.layers.replay import Replay
    from migrate_kit.layers.store import Record, Trace

# Correct float32 variants gave R = 0.72 to 1.21 on every layer of three networks, HF32 295 up.
SAME, LOOK = 2.0, 8.0
# Largest element over the largest that rounding made; correct variants of ten nets gave up to 6.
PEAK = 32.0
# A layer's own residual over its own rounding: above, the error is made here.
MADE_HERE = 8.0
# Statistics are sums in float32; a smaller relative difference of two norms says nothing.
_STATISTICS_FLOOR = 1e-5


class Judge:
    """Judge pairs of one comparison by one yardstick."""

    def __init__(
        self, reference: Trace, candidate: Trace, noise: NoiseFloor | None, dtype: str
    ) -> None:
        self.reference, self.candidate, self.noise = reference, candidate, noise
        self.u = unit_roundoff(dtype_of(dtype))

    def __call__(self, pair: Pair, replay: Replay | None) -> LayerRow:
        """Return the row of ``pair``."""
        ours, theirs = pair.reference, pair.candidate
        if ours is None or theirs is None:
            only = ours or theirs
            assert only is not None  # noqa: S101 - a pair has at least one side
            row = self._named(only, only)
            return replace(
                row,
                layer=ours.name if ours else "",
                candidate=theirs.name if theirs else "",
                verdict="unpaired",
                note=pair.note,
            )
        row = replace(self._named(ours, theirs), note=pair.note)
        if ours.shape != theirs.shape:
            note = f"shape {_shape(ours.shape)} against {_shape(theirs.shape)}"
            return replace(row, verdict="differs", note=note, origin=self._origin(replay))
        row, masks = self._measure(row, ours, theirs)
        if masks:
            note = f"{masks} elements are NaN or Inf in one run only"
            return replace(row, verdict="differs", note=note, origin=self._origin(replay))
        return self._judged(row, replay)

    @staticmethod
    def _named(ours: Record, theirs: Record) -> LayerRow:
        return LayerRow(
            layer=ours.name,
            candidate=theirs.name,
            channel=ours.channel,
            kind=ours.kind,
            shape=ours.shape,
            candidate_shape=theirs.shape,
            dtype=ours.dtype,
            candidate_dtype=theirs.dtype,
            nan=(ours.stats.nan, theirs.stats.nan),
            inf=(ours.stats.inf, theirs.stats.inf),
        )

    def _measure(self, row: LayerRow, ours: Record, theirs: Record) -> tuple[LayerRow, int]:
        """Fill in the numbers, from the best that both sides kept; return masks that differ."""
        a, b = self.reference.row(ours), self.candidate.row(theirs)
        if a is not None and b is not None:
            d = difference(a, b)
            numbers: dict[str, Any] = {
                "rel_l2": d.rel_l2,
                "max_abs": d.max_abs,
                "mean_abs": d.mean_abs,
                "mse": d.mse,
                "one_minus_cosine": d.one_minus_cosine,
                "source": "tensor",
                "nan": d.nan,
                "inf": d.inf,
            }
            apart = d.norm
            if apart == 0 and not _rounds(ours.dtype) and not torch.equal(a, b):
                apart = 1.0  # int64 beyond 2^53, where float64 cannot tell neighbours apart
            row = self._scaled(replace(row, **numbers), ours, apart, d.reference_norm)
            return self._peaked(row, ours, d.reference_norm), d.masks_differ
        masks = abs(row.nan[0] - row.nan[1]) + abs(row.inf[0] - row.inf[1])
        x, y = self.reference.sketch(ours), self.candidate.sketch(theirs)
        if x is not None and y is not None and bool(x.isfinite().all() and y.isfinite().all()):
            apart = float((x - y).norm())
            norm = ours.stats.norm
            rel = apart / norm if norm else (math.inf if apart else 0.0)
            n = max(1, ours.stats.numel)
            row = replace(row, rel_l2=rel, mse=apart**2 / n, source="sketch")
            return self._scaled(row, ours, apart, norm), masks
        return self._by_statistics(row, ours, theirs), masks

    def _by_statistics(self, row: LayerRow, ours: Record, theirs: Record) -> LayerRow:
        """| ||a|| - ||b|| | <= ||a - b||, so R from norms is a lower bound."""
        row = replace(row, source="statistics")
        if not (math.isfinite(ours.stats.norm) and math.isfinite(theirs.stats.norm)):
            return row
        apart = abs(ours.stats.norm - theirs.stats.norm)
        if apart <= _STATISTICS_FLOOR * ours.stats.norm:
            apart = 0.0
        rel = apart / ours.stats.norm if ours.stats.norm else (math.inf if apart else 0.0)
        note = row.note or "lower bound: only statistics were kept"
        return self._scaled(replace(row, rel_l2=rel, note=note), ours, apart, ours.stats.norm)

    def _scaled(self, row: LayerRow, ours: Record, apart: float, norm: float) -> LayerRow:
        exact = not _rounds(row.dtype) and not _rounds(row.candidate_dtype)
        if self.noise is not None:
            yardstick = self.noise.yardstick(ours.key, norm, exact=exact)
        else:
            yardstick = 0.0 if exact else ASSUMED_IN_U * self.u * norm
        R = 0.0 if apart == 0 else (apart / yardstick if yardstick else math.inf)
        return replace(row, R=R, noise=yardstick / norm if norm else math.nan)

    def _peaked(self, row: LayerRow, ours: Record, norm: float) -> LayerRow:
        """See a few elements that are far off in a tensor whose norm hardly shows it."""
        usual = self.noise.peak(ours.key, norm) if self.noise is not None else math.nan
        if usual > 0 and row.max_abs > PEAK * usual and row.R <= LOOK:
            times = number(row.max_abs / usual)
            return replace(row, note=f"one element is {times} times further off than rounding")
        return row

    def _judged(self, row: LayerRow, replay: Replay | None) -> LayerRow:
        verdict: Verdict = "same"
        if row.R > LOOK:
            verdict = "differs"
        elif row.R > SAME:
            verdict = "look"
        if row.note.startswith("one element"):
            verdict = "differs"
        row = replace(row, verdict=verdict)
        if replay is None:
            return row
        note = row.note
        if replay.n and replay.rho > replay.n:
            note = (
                note or f"rho {number(replay.rho)} > n = {replay.n}: no float32 summation does that"
            )
        return replace(
            row,
            local=replay.local,
            rho=replay.rho,
            bits=replay.bits,
            # A residual that is only rounding may follow the output by chance, as a BatchNorm's.
            arithmetic="not rounding"
            if replay.systematic and replay.local > MADE_HERE
            else format_of_bits(replay.bits),
            origin=self._origin(replay) if verdict != "same" else "",
            note=note,
        )

    @staticmethod
    def _origin(replay: Replay | None) -> Origin:
        if replay is None or replay.changed:
            return ""
        return "made here" if replay.local > MADE_HERE else "inherited"


def _rounds(dtype: str) -> bool:
    return "float" in dtype or "complex" in dtype


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"
