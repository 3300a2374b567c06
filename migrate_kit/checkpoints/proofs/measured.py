"""One measured difference between a converted network and something that is not it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from migrate_kit.results import Finding, number

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Proof:
    """What was compared, with what, and how far apart the two are.

    Attributes
    ----------
    against : str
        The independent execution: ``OpenCV 4.11.0``.
    what : str
        Which output.
    difference : float
        The largest absolute difference; NaN where nothing ran.
    span : float
        The largest minus the smallest value of the independent one.
    limit : float
        Which part of the span is taken for rounding; 0 where equality is asked for.
    reason : str
        Why it did not run.
    """

    against: str
    what: str = ""
    difference: float = math.nan
    span: float = math.nan
    limit: float = 0.0
    reason: str = ""

    @classmethod
    def of(
        cls, against: str, what: str, ours: torch.Tensor, theirs: torch.Tensor, limit: float
    ) -> Proof:
        """Measure; a value that is no number, on either side, makes the difference infinite."""
        if ours.shape != theirs.shape or ours.numel() == 0:
            reason = f"{tuple(ours.shape)} here and {tuple(theirs.shape)} there"
            return cls(against, what, math.inf, math.nan, limit, reason)
        a, b = ours.double(), theirs.double()
        finite = bool(a.isfinite().all()) and bool(b.isfinite().all())
        difference = float((a - b).abs().max()) if finite else math.inf
        return cls(against, what, difference, float(b.max() - b.min()), limit)

    @classmethod
    def not_run(cls, against: str, reason: str) -> Proof:
        """Return the proof that there is none, and why."""
        return cls(against, reason=reason)

    @property
    def ran(self) -> bool:
        """Whether something was compared."""
        return not math.isnan(self.difference)

    @property
    def ok(self) -> bool:
        """Whether nothing speaks against the conversion; what did not run does not."""
        return not self.ran or self.difference == 0 or self.difference <= self.limit * self.span

    def finding(self) -> Finding | None:
        """Return what a failed proof says."""
        if self.ok:
            return None
        return Finding(
            "error",
            f"it differs from {self.against} by {number(self.difference)} of a range of "
            f"{number(self.span)}" + (f": {self.reason}" if self.reason else ""),
            self.what,
            "do not use the file before the reason is known; check that the files belong together",
        )

    def __str__(self) -> str:
        if not self.ran:
            return f"{self.against}: not run: {self.reason}"
        what = f", {self.what}" if self.what else ""
        if self.difference == 0:
            return f"{self.against}{what}: equal"
        return f"{self.against}{what}: {number(self.difference)} of {number(self.span)}"
