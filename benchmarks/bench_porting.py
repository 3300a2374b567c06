"""A state_dict of 1 GB as a MindSpore checkpoint, beside a plain copy and beside troubleshooter.

``bench_porting.py FILE`` measures in a process of its own. The file is written once, read once to
warm the cache, and what is written is flushed to the disk (fsync) within the time, as in the copy.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from figure import Figure, at_most
from measure import Others, answer, ask, extra_memory, quieter, seconds

# 16 linear layers of 4096: 1.07 GB in tensors of 67 MB.
LAYERS, WIDTH = 16, 4096
ROUNDS = 3
# troubleshooter 1.0.18 with its api_dump taken out, the same layers, on another day and machine:
# the whole conversion, nothing flushed, and how far it raised the resident memory.
PEER = "troubleshooter 1.0.18 (measured earlier, elsewhere)"
PEER_MEMORY = 1153


def main() -> list[Figure]:
    """Measure; about a minute and 3 GB of disk."""
    folder = Path(tempfile.mkdtemp(prefix="migrate-kit-bench-"))
    try:
        ask(sys.executable, "bench_porting.py", "write", folder / "big.pth")
        found = ask(sys.executable, "bench_porting.py", "measure", folder / "big.pth")
    finally:
        shutil.rmtree(folder)
    target, passed = at_most(1.5, found["ratio"])
    memory, spared = at_most(150, found["memory"])
    name = f"state_dict of {found['size']:.2f} GB to .ckpt"
    return [
        Figure(f"{name}, time beside cp", found["ratio"], "x", target, passed=passed),
        Figure(f"{name}, plain cp", found["copy"], "s"),
        Figure(
            f"{name}, extra memory", found["memory"], "MB", memory, PEER, PEER_MEMORY, passed=spared
        ),
    ]


def write(path: str) -> None:
    """Write the state_dict."""
    import torch

    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    torch.save(torch.nn.Sequential(*layers).state_dict(), path)
    answer({})


def measure(path: str) -> None:
    """Convert and copy, taking turns."""
    import migrate_kit as mk

    folder = Path(path).parent
    out, copied = folder / "out.ckpt", folder / "copy"

    def convert() -> None:
        written = mk.to_mindspore_checkpoint(path, out)
        if not written.ok or len(written.rows) != 2 * LAYERS:
            raise RuntimeError(f"not written: {written!r}")
        flush(out)

    def copy() -> None:
        command = ["cp", "--reflink=never", "--sparse=never", path, str(copied)]
        subprocess.run(command, check=True)
        flush(copied)

    copy()
    copied.unlink()
    pairs = []
    for _ in range(2 * ROUNDS):
        others = Others()
        plain = seconds(copy)
        copied.unlink()
        taken = seconds(convert)
        out.unlink()
        pairs.append((others.used(), taken / plain, plain))
    _, ratios, plains = zip(*quieter(pairs), strict=True)
    answer(
        {
            "size": Path(path).stat().st_size / 1e9,
            "ratio": statistics.median(ratios),
            "copy": statistics.median(plains),
            "memory": extra_memory(convert, out.unlink),
        }
    )


def flush(path: Path) -> None:
    """Wait until a file is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


if __name__ == "__main__":
    {"write": write, "measure": measure}[sys.argv[1]](sys.argv[2])
