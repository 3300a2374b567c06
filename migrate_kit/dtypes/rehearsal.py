"""What a rehearsal found: the operators, and the difference to be expected."""

from __future__ import annotations

import html
import math
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate_kit.dtypes.op_rows import STATUSES, OpRow, problem_findings
from migrate_kit.dtypes.remarks import remarks, waits_for
from migrate_kit.files import write_text
from migrate_kit.results import Finding, Result, counted, findings_html, number, plain, table_html

if TYPE_CHECKING:
    import pandas as pd

    from migrate_kit.dtypes.chips import Chip
    from migrate_kit.dtypes.numerics import ChipMode
    from migrate_kit.layers.compare import LayerDiff
    from migrate_kit.layers.rows import LayerRow
    from migrate_kit.targets import Target

REHEARSED = "rehearsed on CPU; no NPU was used"
_SHOWN = 12
_HEAD = ("op", "dtypes", "status", "calls", "where", "module", "fix")


class Rehearsal(Result):
    """What :func:`migrate_kit.rehearse` found, without any NPU.

    Attributes
    ----------
    rows : list of OpRow
        The operators in the order in which they first ran.
    diff : LayerDiff or None
        The run with the chip's default arithmetic against the plain run.
    chip : Chip
        What was taken for the target's arithmetic.
    rounded : dict of str to int
        Calls whose operands were rounded, by operator.
    hidden : dict of str to int
        Calls that may multiply where no operand can be rounded.
    hosted : dict of str to int
        Products that leave the target: the host computes them, and rounds no operand.
    asked_for : Target or None
        What was asked for, where another target's tables and arithmetic answer.
    """

    kind = "rehearsal"

    def __init__(
        self,
        chip: Chip,
        rows: list[OpRow],
        findings: list[Finding],
        diff: LayerDiff | None,
        mode: ChipMode,
        *,
        asked_for: Target | None = None,
    ) -> None:
        self.chip, self.rows, self.diff = chip, rows, diff
        self.rounded, self.hidden = dict(mode.rounded), dict(mode.hidden)
        self.hosted, self.asked_for = dict(mode.hosted), asked_for
        answered, more = self._answered(), [*remarks(rows), *findings]
        self._remarks = [*answered, *more]
        self.findings = [*answered, *problem_findings(rows, chip.target), *more]

    def _answered(self) -> list[Finding]:
        if self.asked_for is None:
            return []
        asked, by = self.asked_for, self.chip.target
        what = f"{asked.name} ({asked.title}) is answered by the tables and the arithmetic of {by}"
        return [Finding("warning", what, "", "run the model on that device before you rely on it")]

    @property
    def target(self) -> str:
        """The target that was asked for; ``chip.target`` is the one whose tables answer."""
        return self.chip.target if self.asked_for is None else self.asked_for.name

    @property
    def waits(self) -> list[OpRow]:
        """The rows at which the host waits for the NPU: for a value, or the size of a result."""
        return [r for r in self.rows if waits_for(r)]

    @property
    def _title(self) -> str:
        return self.target if self.asked_for is None else f"{self.target} as {self.chip.target}"

    @property
    def coverage(self) -> dict[str, int]:
        """Calls by status, the gravest first."""
        counts: Counter[str] = Counter()
        for row in self.rows:
            counts[row.status] += row.count
        return {s: counts[s] for s in STATUSES}

    @property
    def problems(self) -> list[OpRow]:
        """The rows that are not supported, the gravest first."""
        bad = [r for r in self.rows if r.status != "supported"]
        return sorted(bad, key=lambda r: STATUSES.index(r.status))

    @property
    def expected(self) -> LayerRow | None:
        """The row of the network's output: the difference to be expected there."""
        return None if self.diff is None else largest_output(self.diff)

    def to_frame(self) -> pd.DataFrame:
        """Return one line an operator, dtypes and line of code: every field of :class:`OpRow`."""
        import pandas as pd

        return pd.DataFrame(
            [asdict(r) for r in self.rows], columns=list(OpRow.__dataclass_fields__)
        )

    def to_csv(self, path: str | Path) -> Path:
        """Write the operators as CSV: the list to hand in for an operator pre-assessment.

        Text that a spreadsheet would take for a formula begins with an apostrophe.

        Raises
        ------
        MigrateError
            If it cannot be written.
        """
        frame = self.to_frame()
        for name in frame.columns:
            frame[name] = frame[name].map(_cell)
        return write_text(Path(path), frame.to_csv(index=False, lineterminator="\n"))

    def to_dict(self) -> dict[str, Any]:
        """Return what a project keeps: the counts, the problems and the expected difference."""
        more: dict[str, Any] = {
            "target": self.target,
            "answered_by": self.chip.target,
            "rehearsed": True,
            "arithmetic": self.chip.arithmetic,
            "coverage": self.coverage,
            "problems": [asdict(r) for r in self.problems[:200]],
        }
        if self.expected is not None:
            more["output"] = self.expected.to_dict()
        return super().to_dict() | more

    def __repr__(self) -> str:
        counts = self.coverage
        said = [f"{counts[s]} {s}" for s in STATUSES[:-1] if counts[s]]
        calls = f"{', '.join(said) or 'all supported'} of {sum(counts.values())} calls"
        if not self.rows:
            calls = "no operator was seen"
        out = self.expected
        output = "" if out is None else f"; output {apart(out)}"
        if out is not None and self.hidden:
            output += f", without what {counted(sum(self.hidden.values()), 'call')} may round"
        return f"Rehearsal({self._title}, {REHEARSED}: {calls}{output})"

    def show(self) -> Any:
        """Return every row as a table; ``.diff.show()`` is the live view of the layers."""
        from IPython.display import HTML

        return HTML(self._intro() + _table(self.rows, f"all {len(self.rows)} rows"))

    def _intro(self) -> str:
        text = f"{self._title} ({self.chip.title}), {REHEARSED}. Rehearsed: {self.chip.arithmetic}."
        real = "Real: the operators, their dtypes, and the CPU's arithmetic in everything else."
        return f"<p><b>{html.escape(text)}</b> {html.escape(real)}</p>"

    def _html(self) -> str:
        counts, ops = self.coverage, Counter((r.status, r.op, r.dtypes) for r in self.rows)
        kinds = Counter(status for status, *_ in ops)
        summary = table_html(
            "Coverage",
            ("status", "operators", "calls"),
            [(s, str(kinds[s]), str(counts[s])) for s in STATUSES],
        )
        bad = self.problems
        some = f"the first {_SHOWN} of " if len(bad) > _SHOWN else ""
        shown = _table(bad[:_SHOWN], f"{some}{len(bad)} to look at")
        layers = "" if self.diff is None else _layers(self.diff)
        return (
            self._intro() + summary + (shown if bad else "") + layers + findings_html(self._remarks)
        )


def largest_output(diff: LayerDiff) -> LayerRow | None:
    """Return the row of the output that is furthest apart."""
    outputs = [r for r in diff.rows if r.channel == "output"]
    return max(outputs, key=lambda r: -1 if math.isnan(r.rel_l2) else r.rel_l2, default=None)


def apart(row: LayerRow) -> str:
    """Say how far a row is apart."""
    if not math.isfinite(row.rel_l2):
        return row.note or "holds NaN or Inf"
    return f"differs by {number(row.rel_l2)}" if row.rel_l2 else "is the same"


def _cell(value: Any) -> Any:
    """Return what a spreadsheet takes for text and a terminal shows as it is."""
    if not isinstance(value, str):
        return value
    text = plain(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _table(rows: list[OpRow], caption: str) -> str:
    cells = [
        (
            r.op + (" (backward)" if r.backward else ""),
            r.dtypes,
            r.status,
            str(r.count),
            ": ".join(t for t in (r.where, r.code) if t),
            r.module,
            # Where the tables do not decide, what they do say is what there is to know.
            "; ".join(t for t in (r.note if r.status == "not listed" else "", r.fix) if t),
        )
        for r in rows
    ]
    return table_html(caption, _HEAD, cells)


def _layers(diff: LayerDiff) -> str:
    """Return the layers where the rounded arithmetic shows most."""
    rows = sorted(
        (r for r in diff.rows if r.channel in ("forward", "output")), key=lambda r: -r.rel_l2
    )[:5]
    head = ("layer", "kind", "rel L2", "R")
    cells = [(r.layer, r.kind or r.channel, number(r.rel_l2), number(r.R)) for r in rows]
    return table_html("Expected difference, the largest five", head, cells)
