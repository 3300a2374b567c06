"""The peers' own environment: msprobe beside a torch that is lent, not installed twice.

``benchmarks/.venv-peers`` holds mindstudio-probe and what it needs; a ``.pth`` file puts the
workbook's packages behind its own. pip counts the lent ones as installed and cannot remove them.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / "benchmarks" / ".venv-peers"
MSPROBE = "mindstudio-probe==26.2.0"

# What the same version needed on another day and machine, for resnet50, batch 1, 1 thread: times a
# plain forward, and seconds for a comparison; shown where it cannot be installed.
REFERENCE = {"statistics": 4.0, "tensor": 12.7, "compare": 12.5}
REFERENCE_NOTE = "msprobe (measured earlier, elsewhere)"


class PeerUnavailableError(Exception):
    """The peers' environment cannot be made here."""


def python() -> Path:
    """Return the peers' interpreter; make the environment if it is not there.

    Raises
    ------
    PeerUnavailableError
        If it cannot be made, with the last thing pip said.
    """
    made = _made()
    if isinstance(made, PeerUnavailableError):
        raise made
    return made


@functools.cache
def _made() -> Path | PeerUnavailableError:
    # A failure is kept too: without a network pip takes its time, and every benchmark asks.
    try:
        return _make()
    except PeerUnavailableError as error:
        return error


def _make() -> Path:
    lender = sysconfig.get_paths()["purelib"]
    stamp, wanted = VENV / ".ready", f"{MSPROBE}\n{lender}\n"
    program = VENV / "bin" / "python"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return program
    print(f"Installing {MSPROBE} into benchmarks/{VENV.name} ...", file=sys.stderr, flush=True)
    shutil.rmtree(VENV, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(VENV)])
    own = _run([str(program), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"])
    # A path line only: `site` does not read the .pth files of a folder named this way.
    lent = os.path.relpath(lender, own.strip())
    (Path(own.strip()) / "lent.pth").write_text(f"{lent}\n", encoding="utf-8")
    pip = [str(program), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "-c", str(ROOT / "constraints.txt"), MSPROBE])
    _run([str(program), "-c", "import msprobe.pytorch"])
    stamp.write_text(wanted, encoding="utf-8")
    return program


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no reason given"]
        raise PeerUnavailableError(f"{MSPROBE} cannot be installed here: {said[0]}")
    return done.stdout


if __name__ == "__main__":
    print(python().relative_to(ROOT))
