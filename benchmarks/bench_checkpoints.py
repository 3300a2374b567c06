"""A state_dict of 4 GB: listed and diagnosed, and converted to safetensors beside a plain copy.

``bench_checkpoints.py FILE`` measures in a process of its own. The file is written once, read once
to warm the cache, and both the copy and the conversion are flushed to the disk (fsync).
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from figure import Figure, at_least, at_most
from measure import Others, answer, ask, extra_memory, quieter, seconds

LAYERS, WIDTH = 238, 2048
# The largest tensor and 100 MB.
MOST = round(4 * WIDTH * WIDTH / 1e6) + 100
ROUNDS = 3


def main() -> list[Figure]:
    """Measure; about two minutes and 8 GB of disk."""
    folder = Path(tempfile.mkdtemp(prefix="migrate-kit-bench-"))
    try:
        ask(sys.executable, "bench_checkpoints.py", "write", folder / "big.pth")
        found = ask(sys.executable, "bench_checkpoints.py", "measure", folder / "big.pth")
    finally:
        shutil.rmtree(folder)
    size = f"{found['size']:.1f} GB"
    figures = [
        ("listed and diagnosed", found["diagnosed"], "s", at_most(2, found["diagnosed"])),
        (
            "listed and diagnosed, extra memory",
            found["listing"],
            "MB",
            at_most(300, found["listing"]),
        ),
        ("to safetensors, speed beside cp", found["speed"], "x", at_least(0.7, found["speed"])),
        ("to safetensors, extra memory", found["memory"], "MB", at_most(MOST, found["memory"])),
    ]
    return [
        Figure(f"state_dict of {size}, {name}", value, unit, target, passed=passed)
        for name, value, unit, (target, passed) in figures
    ]


def network(device: str):
    """Return a network of 4 GB: linear layers and norms."""
    import torch

    with torch.device(device):
        layers = [
            torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.LayerNorm(WIDTH))
            for _ in range(LAYERS)
        ]
        return torch.nn.Sequential(*layers)


def write(path: str) -> None:
    """Write the checkpoint of a training run."""
    import torch

    net = network("cpu")
    torch.save(
        {"epoch": 1, "state_dict": {f"module.{k}": v for k, v in net.state_dict().items()}}, path
    )
    answer({})


def measure(path: str) -> None:
    """List, diagnose and convert it."""
    import migrate_kit as mk
    from migrate_kit.checkpoints.write import write_state_dict

    file = Path(path)
    net, folder = network("meta"), file.parent

    def diagnose() -> None:
        report = mk.diagnose(net, mk.load_checkpoint(file))
        if len(report.repair()) != 4 * LAYERS:
            raise RuntimeError(f"not repaired: {report!r}")

    def convert() -> None:
        write_state_dict(mk.load_checkpoint(file).state_dict, folder / "out.safetensors")
        flush(folder / "out.safetensors")

    def copy() -> None:
        subprocess.run(
            ["cp", "--reflink=never", "--sparse=never", path, str(folder / "copy")], check=True
        )
        flush(folder / "copy")

    diagnosed = statistics.median(seconds(diagnose) for _ in range(ROUNDS))
    pairs = []
    for _ in range(2 * ROUNDS):
        others = Others()
        one = seconds(copy)
        (folder / "copy").unlink()
        two = seconds(convert)
        (folder / "out.safetensors").unlink()
        pairs.append((others.used(), one / two))
    answer(
        {
            "size": file.stat().st_size / 1e9,
            "diagnosed": diagnosed,
            "listing": extra_memory(diagnose),
            "speed": statistics.median(speed for _, speed in quieter(pairs)),
            "memory": extra_memory(convert, (folder / "out.safetensors").unlink),
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
