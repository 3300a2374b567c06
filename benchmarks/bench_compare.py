"""Comparing two traces of resnet50 on disk, beside ``msprobe compare`` of the same two runs.

The two runs differ as float32 on one machine can: oneDNN on, and off. Every comparison is a process
of its own, taking turns; both sides' files are in the page cache.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import peers
from figure import Figure, at_least, plain_table
from measure import ask

ROUNDS = 5
PEER_ROUNDS = 3
LIMIT = 8
THREADS = 1


def main() -> list[Figure]:
    """Measure; about two minutes."""
    with tempfile.TemporaryDirectory(prefix="migrate-kit-bench-") as name:
        folder = Path(name)
        size = ask(sys.executable, "run_ours.py", "traces", folder)["MB"]
        try:
            python = peers.python()
        except peers.PeerUnavailableError as error:
            print(error, file=sys.stderr)
            return _alone(_ours(folder, ROUNDS))
        (folder / "dump").mkdir()
        dump = ask(python, "run_msprobe.py", "traces", folder / "dump")
        ours: list[dict[str, Any]] = []
        api: list[dict[str, Any]] = []
        command: list[dict[str, Any]] = []
        for index in range(PEER_ROUNDS):
            ours += _ours(folder, 2)
            for verb, found in (("compare", api), ("command", command)):
                out = folder / f"{verb}-{index}"
                found.append(ask(python, "run_msprobe.py", verb, dump["a"], dump["b"], out))
    return _beside(ours, api, command, (size, dump["MB"]))


def _ours(folder: Path, rounds: int) -> list[dict[str, Any]]:
    run = ("run_ours.py", "compare", folder / "a", folder / "b")
    return [ask(sys.executable, *run, threads=THREADS) for _ in range(rounds)]


def _median(answers: list[dict[str, Any]], key: str) -> float:
    return float(statistics.median(a[key] for a in answers))


def _alone(ours: list[dict[str, Any]]) -> list[Figure]:
    theirs = peers.REFERENCE["compare"]
    return [
        Figure(
            "compare two traces", _median(ours, "compare"), "s", "", peers.REFERENCE_NOTE, theirs
        ),
        Figure("import and compare, whole process", _median(ours, "wall"), "s"),
    ]


def _beside(
    ours: list[dict[str, Any]],
    api: list[dict[str, Any]],
    command: list[dict[str, Any]],
    size: tuple[float, float],
) -> list[Figure]:
    walls = {
        "msprobe compare, its command": _median(command, "wall"),
        "msprobe compare, its Python function": _median(api, "wall"),
    }
    fastest = min(walls, key=lambda name: walls[name])
    bare, their_bare = _median(ours, "compare"), _median(api, "compare")
    whole, their_whole = _median(ours, "wall"), walls[fastest]
    rows = f"{ours[0]['rows']} rows, {size[0]:.0f} MB a side"
    their_rows = f"msprobe, {api[0]['rows']} rows, {size[1]:.0f} MB a side"
    target, passed = at_least(LIMIT, their_bare / bare)
    return [
        Figure(f"compare two traces ({rows})", bare, "s", "", their_rows, their_bare),
        Figure("compare two traces, times faster", their_bare / bare, "x", target, passed=passed),
        Figure("the same, whole process with imports", whole, "s", "", fastest, their_whole),
        # Without a limit: on our side it is the import of torch and little else.
        Figure("whole process, times faster", their_whole / whole, "x"),
        Figure(
            "import before a comparison, torch in it",
            _median(ours, "import"),
            "s",
            "",
            "msprobe",
            _median(api, "import"),
        ),
    ]


if __name__ == "__main__":
    print(plain_table(main()))
