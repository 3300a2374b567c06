"""``import migrate_kit``, in a fresh interpreter each time; its start is not counted."""

from __future__ import annotations

import statistics
import sys
from typing import TYPE_CHECKING

import peers
from figure import Figure, at_most, plain_table
from measure import fresh

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = 9
LIMIT = 0.3
PROGRAM = """
import json, sys, time
began = time.perf_counter()
import {name}
spent = time.perf_counter() - began
sys.stderr.write("\\n" + json.dumps([spent, "torch" in sys.modules]))
"""


def main() -> list[Figure]:
    """Measure; about half a minute."""
    times, torches = zip(
        *(_once(sys.executable, "migrate_kit") for _ in range(ROUNDS)), strict=True
    )
    value = statistics.median(times)
    target, passed = at_most(LIMIT, value)
    peer, theirs = "", None
    try:
        python = peers.python()
        theirs = statistics.median(_once(python, "msprobe.pytorch")[0] for _ in range(3))
        peer = "import msprobe.pytorch (brings torch in)"
    except peers.PeerUnavailableError as error:
        print(error, file=sys.stderr)
    what = "import migrate_kit" + (", WITH TORCH" if any(torches) else ", no torch in it")
    passed = passed and not any(torches)
    return [Figure(what, value, "s", target, peer, theirs, passed)]


def _once(python: str | Path, name: str) -> tuple[float, bool]:
    spent, torch = fresh(python, PROGRAM.format(name=name))
    return spent, torch


if __name__ == "__main__":
    print(plain_table(main()))
