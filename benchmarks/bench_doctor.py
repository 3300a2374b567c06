"""``mk.check_environment()`` on this machine, in a fresh interpreter each time.

With its probes it starts an import of every framework in a process of its own; without them it
reads files only. What a reader waits for is the call; the interpreter's start is not counted.
"""

from __future__ import annotations

import statistics
import sys

from figure import Figure, at_most, plain_table
from measure import Others, fresh, quieter

WITH, WITHOUT = 10.0, 2.0
ROUNDS = 5
PROGRAM = """
import json, sys, time
import migrate_kit as mk
began = time.perf_counter()
report = mk.check_environment("ascend910b", probes={probes})
spent = time.perf_counter() - began
heavy = [m for m in ("torch", "mindspore", "numpy") if m in sys.modules]
sys.stderr.write("\\n" + json.dumps([spent, len(report.facts.probes), len(report.checks), heavy]))
"""


def main() -> list[Figure]:
    """Measure; about a minute."""
    return [
        _figure("without probes", WITHOUT, probes=False),
        _figure("with probes", WITH, probes=True),
    ]


def _figure(what: str, limit: float, *, probes: bool) -> Figure:
    taken: list[tuple[float, ...]] = []
    for _ in range(ROUNDS):
        others = Others()
        spent, count, checks, heavy = fresh(sys.executable, PROGRAM.format(probes=probes))
        taken.append((others.used(), spent))
        if heavy:
            raise RuntimeError(f"the doctor imported {', '.join(heavy)} into its own process")
    value = statistics.median(spent for _, spent in quieter(taken))
    target, passed = at_most(limit, value)
    name = f"doctor {what}: {checks} checks" + (f", {count} imports" if count else "")
    return Figure(name, value, "s", target, passed=passed)


if __name__ == "__main__":
    print(plain_table(main()))
