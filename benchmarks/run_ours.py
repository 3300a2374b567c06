"""What the benchmarks run of this workbook, in a process of its own.

``run_ours.py capture MODE THREADS ROUNDS``, ``run_ours.py memory THREADS``,
``run_ours.py traces FOLDER``, ``run_ours.py compare A B``.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import answer, extra_memory, ratio, resnet50

if TYPE_CHECKING:
    from collections.abc import Callable

MODES: dict[str, dict[str, Any]] = {
    "statistics": {"tensors": False, "sketches": False},
    "sketch": {"tensors": False},
    "tensor": {},
}


def capture(mode: str, threads: str, rounds: str) -> None:
    """Time a capture against a plain forward."""
    import torch

    import migrate_kit as mk

    model, x = resnet50(int(threads))
    folder = Path(tempfile.mkdtemp(dir=Path.cwd()))
    store = folder / "trace" if mode == "tensor" else None

    def plain() -> None:
        with torch.no_grad():
            model(x)

    def ours() -> None:
        mk.capture(model, x, store=store, **MODES[mode])

    try:
        found = ratio(plain, ours, int(rounds), lambda: _empty(folder))
    finally:
        shutil.rmtree(folder)
    answer(found)


def memory(threads: str) -> None:
    """Measure what full tensors streamed to disk, and a plain forward, take of memory."""
    import torch

    import migrate_kit as mk

    model, x = resnet50(int(threads))
    folder = Path(tempfile.mkdtemp(dir=Path.cwd()))

    def plain() -> None:
        with torch.no_grad():
            model(x)

    try:
        forward = extra_memory(plain)
        streamed = extra_memory(
            lambda: mk.capture(model, x, store=folder / "trace"), lambda: _empty(folder)
        )
    finally:
        shutil.rmtree(folder)
    answer({"plain": forward, "call": streamed})


def traces(folder: str) -> None:
    """Write one trace as it is, and one of another float32 arithmetic: oneDNN off."""
    import torch

    import migrate_kit as mk

    model, x = resnet50(1)
    mk.capture(model, x, store=Path(folder) / "a")
    torch.backends.mkldnn.set_flags(False)
    mk.capture(model, x, store=Path(folder) / "b")
    size = sum(f.stat().st_size for f in (Path(folder) / "a").iterdir())
    answer({"MB": size / 1e6})


def compare(reference: str, candidate: str) -> None:
    """Time the import and one comparison of two traces on disk."""
    began = time.perf_counter()
    import migrate_kit as mk

    compare_ = mk.compare  # brings torch in
    imported = time.perf_counter()
    rows = len(compare_(reference, candidate, noise=False).rows)
    ended = time.perf_counter()
    answer({"import": imported - began, "compare": ended - imported, "rows": rows})


def _empty(folder: Path) -> None:
    for item in folder.iterdir():
        shutil.rmtree(item)


if __name__ == "__main__":
    verbs: dict[str, Callable[..., None]] = {
        "capture": capture,
        "memory": memory,
        "traces": traces,
        "compare": compare,
    }
    verbs[sys.argv[1]](*sys.argv[2:])
