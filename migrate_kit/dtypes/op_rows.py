"""The operators of a rehearsal as rows, and what is to be said of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from migrate_kit.dtypes.fixes import fix_for
from migrate_kit.dtypes.lines import place, text_of
from migrate_kit.dtypes.support import LOWERED
from migrate_kit.results import Finding, Level, counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from migrate_kit.dtypes.coverage import OpRecord

# The gravest first.
STATUSES: Final = ("refused", "fallback", "slow", "not listed", "supported")
# What the NPU does with an operator that it does not simply run, and how grave that is.
_DOES: Final[dict[str, tuple[Level, str]]] = {
    "refused": ("error", "has no kernel for"),
    "fallback": ("warning", "sends to the host CPU:"),
    "slow": ("warning", "runs on its AI CPU:"),
}


@dataclass(frozen=True)
class OpRow:
    """One operator on one set of dtypes, called from one line of code.

    Attributes
    ----------
    op, dtypes, shapes : str
        As PyTorch names them; the shapes are those of the first call. ``float64>float32`` is
        float64 here and float32 on the NPU, which lowers a cast by dtype alone.
    status : str
        ``supported``, ``slow`` (AI CPU), ``fallback`` (host CPU), ``not listed`` (absent from
        what was read for this chip, which says nothing) or ``refused``.
    count : int
        Calls in one run.
    where, code : str
        ``file:line`` and its text: the innermost line outside torch. A backward operator has the
        line of its forward.
    module : str
        The first module it ran in.
    backward : bool
    fix, note, source : str
        The cheapest change, what the table adds, and where that was read.
    kind : str
        Which table said it.
    """

    op: str
    dtypes: str
    shapes: str
    status: str
    count: int
    where: str
    module: str
    fix: str
    source: str
    backward: bool
    code: str
    note: str
    kind: str


def rows_of(records: Iterable[OpRecord], target: str) -> list[OpRow]:
    """Merge the records of one line, in the order in which they first ran."""
    merged: dict[tuple[Any, ...], list[OpRecord]] = {}
    for r in records:
        key = (r.op, r.dtypes, place(r.where.code, r.where.line), r.backward)
        merged.setdefault(key, []).append(r)
    return [_row(key[2], same, target) for key, same in merged.items()]


def _row(where: str, records: list[OpRecord], target: str) -> OpRow:
    first, verdict = records[0], records[0].verdict
    return OpRow(
        first.op,
        " ".join(first.dtypes),
        " ".join("x".join(map(str, s)) or "scalar" for s in first.shapes),
        verdict.status,
        sum(r.count for r in records),
        where,
        first.where.module,
        fix_for(verdict.status, first.op, first.dtypes, target, tuple(verdict.dtypes_ok)),
        verdict.source,
        first.backward,
        text_of(first.where.code, first.where.line),
        verdict.note,
        verdict.kind,
    )


def problem_findings(rows: list[OpRow], target: str) -> list[Finding]:
    """Say once for each operator and dtypes what the NPU will do with it, the gravest first."""
    groups: dict[tuple[str, str, str], list[OpRow]] = {}
    for row in sorted(rows, key=lambda r: STATUSES.index(r.status)):
        groups.setdefault((row.status, row.op, row.dtypes), []).append(row)
    found = []
    for (status, op, dtypes), same in groups.items():
        if status not in _DOES:
            continue
        level, verb = _DOES[status]
        calls, others = sum(r.count for r in same), len(same) - 1
        lines = f" and {counted(others, 'more line')}" if others else ""
        what = f"{target} {verb} {op} on {dtypes} ({counted(calls, 'call')})"
        found.append(Finding(level, what, f"{same[0].where or same[0].module}{lines}", same[0].fix))
    return [*found, *_lowered(rows, target)]


def _lowered(rows: list[OpRow], target: str) -> list[Finding]:
    """Say what is float64 here and float32 there."""
    lowered = [r for r in rows if LOWERED in r.dtypes.split()]
    if not lowered:
        return []
    calls = counted(sum(r.count for r in lowered), "call")
    what = f"float64 is lowered to float32 on {target}: {calls} behind a cast by dtype alone"
    fix = "write .float() there, or compute in float64 on the CPU where it matters"
    return [Finding("warning", what, lowered[0].where or lowered[0].module, fix)]
