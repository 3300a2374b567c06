"""Which torch_npu, CANN and Python to plan for, with the torch that is here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migrate_kit.environment import compat
from migrate_kit.environment.check import Check
from migrate_kit.environment.facts import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migrate_kit.environment.compat import Row
    from migrate_kit.environment.facts import Facts

_NAME = "torch-npu"
_WHY = (
    "torch_npu is built for one release of torch, and CANN goes with both: the environment on the"
    " device is made of such a set"
)


def plan_checks(facts: Facts) -> Iterator[Check]:
    """Name the set of the table that goes with this torch, or the nearest one."""
    torch = facts.version("torch").partition("+")[0]
    if not torch or torch == UNKNOWN:
        return
    fitting = paired(torch, facts)
    row = fitting[0] if fitting else _nearest(torch)
    if row is None:
        return
    said = (
        f"torch_npu {row.version}, CANN {row.cell('cann')} and Python {_python(row.cell('python'))}"
    )
    what, why = f"for torch {torch} plan for {said}", _WHY
    if not fitting:
        what = (
            f"no torch_npu of the table of {compat.checked()} is paired with torch {torch}; the"
            f" nearest set is torch {row.cell('torch')}, {said}"
        )
        early = _unpaired(torch)
        why += f". {early} is published, but which CANN it wants is not" if early else ""
    yield Check("torch-npu-plan", "versions", "info", what, why, "", row.source)


def paired(torch: str, facts: Facts) -> list[Row]:
    """Return the releases of torch_npu for this torch; those for the CANN that is here, if any."""
    rows = [r for r in _sets() if compat.accepts(r.cell("torch"), torch)]
    cann = facts.ascend.cann[0].version if facts.ascend.cann else ""
    return [r for r in rows if compat.accepts(f"{r.cell('cann')} {r.cann_also}", cann)] or rows


def _sets() -> list[Row]:
    return [r for r in compat.rows_of(_NAME) if r.cell("cann") and r.cell("python")]


def _nearest(torch: str) -> Row | None:
    """Return the newest set below this torch, or the oldest above it."""
    here = compat.parse(torch)
    known = [(v, r) for r in _sets() if (v := compat.parse(r.cell("torch"))) is not None]
    if here is None or not known:
        return None
    below = [(v, r) for v, r in known if v <= here]
    best = max(v for v, _ in below) if below else min(v for v, _ in known)
    # The table has the newest release of each torch first.
    return next(r for v, r in known if v == best)


def _unpaired(torch: str) -> str:
    """Return a release of torch_npu of the same minor version that the table has no CANN for."""
    here = compat.parse(torch)
    for row in compat.rows_of(_NAME):
        version = compat.parse(row.cell("torch"))
        if here and version and not row.cell("cann") and version.release[:2] == here.release[:2]:
            return f"torch_npu {row.version} for torch {row.cell('torch')}"
    return ""


def _python(cell: str) -> str:
    versions = cell.split()
    return versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"
