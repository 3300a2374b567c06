"""What a machine is ready for: nothing wrong is one thing, able to run on the target another."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from migrate_kit.results import counted
from migrate_kit.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from migrate_kit.environment.check import Check
    from migrate_kit.environment.facts import Facts

# Exit codes of the doctor: 2 is wrong use and 3 a fault of the program, as everywhere here.
FINE, FOUND, CANNOT_RUN = 0, 1, 4
# A check that is no error where only a rehearsal is meant, and what it says is not there.
_LACKING = {
    "npu-absent": "no NPU",
    "npu-target": "another chip",
    "torch-npu-absent": "no torch_npu",
    "cann-absent": "no CANN",
    "mlu-absent": "no MLU card",
    "mlu-target": "another card",
    "torch-mlu-absent": "no torch_mlu",
    "neuware-absent": "no CNToolkit",
}


def lacking(checks: Iterable[Check], facts: Facts, frameworks: Sequence[str]) -> list[str]:
    """Return what a program for the target would miss here, in a few words each.

    Examples
    --------
    >>> from migrate_kit.environment.check import Check
    >>> from migrate_kit.environment.facts import Facts
    >>> lacking([Check("npu-absent", "Ascend", "info", "")], Facts(), ["torch_npu"])
    ['no NPU']
    """
    present = {check.id for check in checks}
    if "mindspore" in frameworks and facts.version("mindspore"):
        present.discard("torch-npu-absent")  # a program of MindSpore runs without it
    return [words for name, words in _LACKING.items() if name in present]


def sentence(target: str | None, checks: Sequence[Check], lost: Sequence[str]) -> str:
    """Say in one line what is wrong, or what the machine is ready for, and what it is not.

    Examples
    --------
    >>> sentence("ascend910b", [], ["no NPU", "no CANN"])
    'nothing wrong found; ready to rehearse for ascend910b, not to run on it: no NPU, no CANN here'
    >>> sentence("mlu370", [], []), sentence(None, [], [])
    ('ready to run on mlu370', 'nothing wrong found; no target was named')
    """
    first = next((c for c in checks if c.state == "error"), None)
    numbers = {s: sum(c.state == s for c in checks) for s in ("error", "warning")}
    found = [counted(number, state) for state, number in numbers.items() if number]
    if first is not None:
        goal = f" for {target}" if target else ""
        return f"{', '.join(found)}{goal}: {first.what}"
    fine = ", ".join(["nothing wrong found", *found])
    if target is None:
        return f"{fine}; no target was named"
    if not lost:
        return ", ".join([f"ready to run on {target}", *found])
    here = f"{', '.join(lost)} here"
    if target in _rehearsed():
        return f"{fine}; ready to rehearse for {target}, not to run on it: {here}"
    return f"{fine}; not ready to run on {target}: {here}"


@lru_cache(maxsize=1)
def _rehearsed() -> frozenset[str]:
    return frozenset(name for row in read_table("chips") for name in row["targets"].split())
