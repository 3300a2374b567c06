"""Device nodes, and the vendors' programs that ask the devices."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from migrate_kit.environment.commands import run
from migrate_kit.environment.facts import Command

NODES = (
    *("davinci[0-9]*", "davinci_manager", "devmm_svm", "hisi_hdc"),
    *("cambricon_dev[0-9]*", "cambricon_ctl"),
    "nvidia[0-9]*",
)
# The places that the installers choose; PATH comes after them.
_PLACES = {
    "npu-smi": ("/usr/local/sbin/npu-smi", "/usr/local/bin/npu-smi", "/usr/sbin/npu-smi"),
    "cnmon": ("/usr/bin/cnmon", "/usr/local/neuware/bin/cnmon"),
}
_ARGUMENTS = {"npu-smi": ("info",), "cnmon": (), "gcc": ("-dumpfullversion", "-dumpversion")}
_MOST = 1 << 16


def devices(folder: Path = Path("/dev")) -> dict[str, str]:
    """Return each device node with ``ready`` or ``no permission``."""
    found = {}
    for pattern in NODES:
        for node in sorted(folder.glob(pattern)):
            usable = os.access(node, os.R_OK | os.W_OK)
            found[str(node)] = "ready" if usable else "no permission"
    return found


def program(name: str) -> str:
    """Return the absolute path of a vendor's program, or an empty text."""
    for place in _PLACES.get(name, ()):
        if os.access(place, os.X_OK):
            return place
    found = shutil.which(name)
    return str(Path(found).absolute()) if found else ""


def ask(name: str, seconds: float) -> Command | None:
    """Run a program of the list with its fixed arguments; None if it is not installed."""
    path = program(name)
    if not path:
        return None
    answer = run([path, *_ARGUMENTS[name]], seconds, most=_MOST)
    return Command(path, answer.code, answer.out, answer.err)
