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
import sysconfig
import tempfile
from pathlib import Path

from figure import Figure, at_most
from measure import WARM_UP, Others, answer, ask, extra_memory, quieter, seconds

# 16 linear layers of 4096: 1.07 GB in tensors of 67 MB.
LAYERS, WIDTH = 16, 4096
ROUNDS = 3
ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / "benchmarks" / ".venv-troubleshooter"
# Without what it depends on: the protobuf that it asks for breaks MindSpore.
PACKAGES = ("troubleshooter==1.0.18", "prettytable<3.8", "PySnooper", "wcwidth")
PEER = "troubleshooter 1.0.18, its api_dump left out"
# Where it cannot be installed: the same layers on another day and machine. Its resident memory,
# since no other was measured.
EARLIER = "troubleshooter 1.0.18 (measured earlier, elsewhere)"
EARLIER_MEMORY = 1153


def main() -> list[Figure]:
    """Measure; about two minutes and 3 GB of disk."""
    folder = Path(tempfile.mkdtemp(prefix="migrate-kit-bench-"))
    try:
        big = folder / "big.pth"
        ask(sys.executable, "bench_porting.py", "write", big)
        found = ask(sys.executable, "bench_porting.py", "measure", big)
        peer, held, taken = EARLIER, EARLIER_MEMORY, None
        if python := peers_python():
            theirs = ask(python, "run_troubleshooter.py", big, WIDTH, LAYERS)
            peer, held, taken = PEER, theirs["memory"], theirs["seconds"]
    finally:
        shutil.rmtree(folder)
    target, passed = at_most(1.5, found["ratio"])
    memory, spared = at_most(150, found["memory"])
    name = f"state_dict of {found['size']:.2f} GB to .ckpt"
    beside = peer if taken else ""
    return [
        Figure(f"{name}, time beside cp", found["ratio"], "x", target, passed=passed),
        Figure(f"{name}, time", found["seconds"], "s", "", beside, taken),
        Figure(f"{name}, extra memory", found["memory"], "MB", memory, peer, held, passed=spared),
    ]


def peers_python() -> Path | None:
    """Return the interpreter of troubleshooter's own environment; None if there can be none."""
    program, stamp = VENV / "bin" / "python", VENV / ".ready"
    if stamp.exists():
        return program
    print(f"Installing {PACKAGES[0]} into benchmarks/{VENV.name} ...", file=sys.stderr, flush=True)
    shutil.rmtree(VENV, ignore_errors=True)
    try:
        said([sys.executable, "-m", "venv", str(VENV)])
        own = said(
            [str(program), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"]
        ).strip()
        # torch and MindSpore are lent, as in peers.py.
        lent = os.path.relpath(sysconfig.get_paths()["purelib"], own)
        (Path(own) / "lent.pth").write_text(f"{lent}\n", encoding="utf-8")
        pip = [str(program), "-m", "pip", "install", "--quiet", "--no-deps"]
        said([*pip, *PACKAGES])
        # A dry run: whether it can be imported here.
        said([str(program), "-c", "import run_troubleshooter, troubleshooter"])
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no reason given"])[-1]
        print(f"no troubleshooter here: {last}", file=sys.stderr, flush=True)
        return None
    stamp.touch()
    return program


def said(command: list[str]) -> str:
    """Run a command in this folder; return what it printed."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent
    )
    return done.stdout


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

    pairs = []
    # The rounds before those that count: a virtual machine's first use of memory is slow, and the
    # two ask the system for pages of other sizes.
    for index in range(WARM_UP + 2 * ROUNDS):
        others = Others()
        plain = seconds(copy)
        copied.unlink()
        taken = seconds(convert)
        out.unlink()
        if index >= WARM_UP:
            pairs.append((others.used(), taken / plain, taken))
    _, ratios, takens = zip(*quieter(pairs), strict=True)
    answer(
        {
            "size": Path(path).stat().st_size / 1e9,
            "ratio": statistics.median(ratios),
            "seconds": statistics.median(takens),
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
