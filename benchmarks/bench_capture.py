"""Capture of resnet50, batch 1, beside a plain forward, and msprobe's dump of the same.

A ratio is the time of the whole call, from the model to a finished trace, over a plain
``torch.no_grad()`` forward in the same process, taken in turns.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import peers
from figure import Figure, at_most, plain_table
from measure import ask


class Mode(NamedTuple):
    """One way to capture, its limit, and msprobe's nearest task."""

    mode: str
    what: str
    limit: float
    task: str


MODES = (
    Mode("statistics", "capture, statistics", 1.3, "statistics"),
    Mode("sketch", "capture, statistics and sketch", 1.6, "statistics"),
    Mode("tensor", "capture, full tensors streamed", 1.8, "tensor"),
)
MEMORY_LIMIT = 40
ROUNDS = 20
PEER_ROUNDS = {"statistics": 12, "tensor": 6}
# Limits are set for one thread. With two, a plain forward halves while a pass over memory, which
# is what a capture costs, does not: shown, without a limit.
THREADS = (1, 2)


def main() -> list[Figure]:
    """Measure; about two minutes, five on a busy machine."""
    figures = []
    for threads in THREADS:
        theirs, name = _peer(threads)
        for mode, what, limit, task in MODES:
            value = ask(
                sys.executable, "run_ours.py", "capture", mode, threads, ROUNDS, threads=threads
            )["ratio"]
            target, passed = at_most(limit, value) if threads == 1 else ("", None)
            figures.append(
                Figure(
                    f"{what}, {threads} thread{'s' if threads > 1 else ''}",
                    value,
                    "x forward",
                    target,
                    f"{name}, {task} L0" if task in theirs else name,
                    theirs.get(task),
                    passed,
                )
            )
    figures.extend(_memory())
    return figures


def _peer(threads: int) -> tuple[dict[str, float], str]:
    """Return msprobe's ratio by task, and how to call these numbers."""
    try:
        python = peers.python()
    except peers.PeerUnavailableError as error:
        print(error, file=sys.stderr)
        return (peers.REFERENCE, peers.REFERENCE_NOTE) if threads == 1 else ({}, "")
    ratios = {}
    for task, rounds in PEER_ROUNDS.items():
        found = ask(python, "run_msprobe.py", "capture", task, threads, rounds, threads=threads)
        ratios[task] = found["ratio"]
    return ratios, "msprobe"


def _memory() -> list[Figure]:
    ours = ask(sys.executable, "run_ours.py", "memory", 1)
    peer, value = "", None
    try:
        value = ask(peers.python(), "run_msprobe.py", "memory", 1)["call"]
        peer = "msprobe, tensor L0"
    except peers.PeerUnavailableError as error:
        print(error, file=sys.stderr)
    target, passed = at_most(MEMORY_LIMIT, ours["call"])
    return [
        Figure(
            "extra memory while full tensors stream",
            ours["call"],
            "MB",
            target,
            peer,
            value,
            passed,
        ),
        Figure("extra memory of a plain forward", ours["plain"], "MB"),
    ]


if __name__ == "__main__":
    print(plain_table(main()))
