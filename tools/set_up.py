"""Make .venv and install the workbook into it, in the versions of constraints.txt.

Started by the system's Python, whichever that is: the standard library only, and syntax that an
old one reads too, so that it gets to the message that says so.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
# .venv takes 9.2 GB on x86_64, where torch brings the CUDA libraries, and pip needs room to unpack.
GIGABYTES = 11


def main() -> None:
    """Set up, or say what is in the way."""
    if not PYTHON.exists():
        make_venv()
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    torch = [pin for pin in pins if pin.startswith(("torch==", "torchvision=="))]
    pip = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check"]
    pip += ["-c", "constraints.txt"]
    # torch by itself and first: a mirror may offer these exact versions in a build of its own
    # (without CUDA, say), and whichever came is then kept by the second step.
    run(pip + torch)
    run([*pip, "-e", ".[workbook,test,bench]"])
    # Last: an interrupted set-up has no stamp, and the next make goes on with it.
    (VENV / ".ready").write_text("set up by tools/set_up.py\n", encoding="utf-8")


def make_venv() -> None:
    """Make .venv with this Python, if it is one that the pins meet on."""
    # numpy 1.26 has no build for 3.13, pandas 3 none for 3.10.
    if not (3, 11) <= sys.version_info[:2] <= (3, 12):
        sys.exit(
            f"The workbook needs Python 3.11 or 3.12; {sys.executable} is {sys.version.split()[0]}."
            "\nInstall one and name it: make lab PYTHON=python3.11"
            "\nor use conda:            conda env create -f environment.yml"
        )
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < GIGABYTES:
        print(f"Only {free:.1f} GB are free here; the set-up takes about {GIGABYTES} GB.")
    print("Making .venv and installing the workbook into it: once, some minutes ...", flush=True)
    run([sys.executable, "-m", "venv", str(VENV)])


def run(command: list[str]) -> None:
    """Run one command; stop with its exit code if it fails."""
    code = subprocess.call(command, cwd=ROOT)
    if code:
        print("failed: " + " ".join(command), file=sys.stderr)
        sys.exit(code)


if __name__ == "__main__":
    main()
