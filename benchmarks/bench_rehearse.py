"""Rehearsing resnet50 for ascend910b, batch 1, beside a plain forward.

The plain run and its float64 run are made once, kept in a project and not counted. A ratio is the
time of the whole call over a plain ``torch.no_grad()`` forward in the same process, in turns.
``bench_rehearse.py MODE THREADS ROUNDS`` measures one of them in a process of its own.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from figure import Figure, at_most, plain_table
from measure import answer, ask, ratio, resnet50

TARGET = "ascend910b"


class Mode(NamedTuple):
    """One half of a rehearsal and its limit."""

    mode: str
    what: str
    limit: float | None


MODES = (
    Mode("coverage", "rehearse, every operator looked up", 1.2),
    Mode("numbers", "rehearse, HF32 run with its statistics compared", 3.0),
    Mode("both", "rehearse, both", None),
)
ROUNDS = 16
# Limits are set for one thread, as for a capture.
THREADS = (1, 2)


def main() -> list[Figure]:
    """Measure; about one minute."""
    figures = []
    for threads in THREADS:
        for mode, what, limit in MODES:
            found = ask(sys.executable, "bench_rehearse.py", mode, threads, ROUNDS, threads=threads)
            value = found["ratio"]
            counted = limit is not None and threads == 1
            target, passed = at_most(limit or 0, value) if counted else ("", None)
            name = f"{what}, {threads} thread{'s' if threads > 1 else ''}"
            figures.append(Figure(name, value, "x forward", target, passed=passed))
    return figures


def measure(mode: str, threads: str, rounds: str) -> None:
    """Time one mode against a plain forward."""
    import torch

    import migrate_kit as mk
    from migrate_kit.dtypes.chips import find_chip
    from migrate_kit.dtypes.numerics import RehearsedRunner

    model, x = resnet50(int(threads))
    reference = mk.capture(model, x, tensors=False)
    noise = mk.noise_floor(reference)

    def plain() -> None:
        with torch.no_grad():
            model(x)

    def coverage() -> None:
        mk.rehearse(model, x, target=TARGET, numbers=False)

    def numbers() -> None:
        there = mk.capture(RehearsedRunner(model, find_chip(TARGET)), x, tensors=False)
        mk.compare(reference, there, noise=noise, replay=False)

    def both() -> None:
        mk.rehearse(model, x, target=TARGET, reference=reference, noise=noise)

    calls = {"coverage": coverage, "numbers": numbers, "both": both}
    answer(ratio(plain, calls[mode], int(rounds)))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(*sys.argv[1:])
    else:
        print(plain_table(main()))
