"""One measured number, what it should be, and what a peer needs for the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

HEAD = ("figure", "value", "target", "met", "peer", "peer's value")


@dataclass(frozen=True)
class Figure:
    """One line of the result table.

    Attributes
    ----------
    name : str
        What was measured.
    value : float or None
        None if it could not be measured; ``name`` then says why.
    unit : str
        ``x`` for ratios, else ``s``, ``ms``, ``MB``, ``kB``.
    target : str
        ``at most 1.3``, ``at least 8``, or empty where a number only stands beside another.
    peer, peer_value
        Who else was measured doing the same, and its number in the same unit.
    passed : bool or None
        Whether the target is met; None without one.
    """

    name: str
    value: float | None
    unit: str
    target: str = ""
    peer: str = ""
    peer_value: float | None = None
    passed: bool | None = None

    def cells(self) -> tuple[str, ...]:
        """Return the figure as texts, in the order of :data:`HEAD`."""
        met = {True: "yes", False: "NO", None: ""}[self.passed]
        value, peer_value = self._text(self.value), self._text(self.peer_value)
        return self.name, value, self.target, met, self.peer, peer_value

    def _text(self, value: float | None) -> str:
        if value is None:
            return ""
        digits = f"{value:.0f}" if value >= 100 else f"{value:.3g}"
        return f"{digits} {self.unit}"


def at_most(limit: float, value: float) -> tuple[str, bool]:
    """Return the target's text and whether ``value`` meets it."""
    return f"at most {limit:g}", value <= limit


def at_least(limit: float, value: float) -> tuple[str, bool]:
    """Return the target's text and whether ``value`` meets it."""
    return f"at least {limit:g}", value >= limit


def plain_table(figures: Sequence[Figure]) -> str:
    """Return the figures as aligned text for a terminal."""
    rows = [HEAD, *(f.cells() for f in figures)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
    rows.insert(1, tuple("-" * width for width in widths))
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def markdown_table(figures: Sequence[Figure]) -> str:
    """Return the figures as a Markdown table."""
    rows = [HEAD, ("---",) * len(HEAD), *(f.cells() for f in figures)]
    # A failure's reason may hold anything.
    tidy = ([c.replace("\n", " ").replace("|", "\\|") for c in row] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in tidy)
