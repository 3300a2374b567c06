"""Where CNToolkit and the Cambricon libraries are, and the state of a source tree of torch."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from migrate_kit.environment.facts import Cambricon
from migrate_kit.environment.places import below, changed, exists, is_dir, resolve, text

if TYPE_CHECKING:
    from collections.abc import Mapping

# Component -> the library that shows that it is installed (Cambricon PyTorch user guide names the
# components; each brings a library of its name).
COMPONENTS = {
    "CNToolkit": "libcnrt.so",
    "CNML": "libcnml.so",
    "CNNL": "libcnnl.so",
    "CNPlugin": "libcnplugin.so",
    "CNCL": "libcncl.so",
}
_MOST_TEXT = 1 << 20


def find_cambricon(environ: Mapping[str, str], root: Path = Path("/")) -> Cambricon:
    """Look for the Cambricon software outside Python.

    Parameters
    ----------
    environ : mapping
        The variables of the process: NEUWARE_HOME, PYTORCH_HOME, TORCH_HOME.
    root : Path
        The top of the file system; another one in tests.
    """
    named = environ.get("NEUWARE_HOME", "")
    home = Path(named) if named else root / "usr/local/neuware"
    torch_home = environ.get("TORCH_HOME", "")
    components: dict[str, str] = {}
    if is_dir(home):
        components = {name: _library(home / "lib64", file) for name, file in COMPONENTS.items()}
    return Cambricon(
        home=str(home) if is_dir(home) else "",
        version=_version(home / "version.txt"),
        components=components,
        tree=_tree(environ.get("PYTORCH_HOME", "")),
        torch_home=bool(torch_home) and is_dir(Path(torch_home)),
    )


def _library(folder: Path, name: str) -> str:
    """Return the version in the library's full name, "found" without one, empty if absent."""
    file = folder / name
    if not exists(file):
        others = below(folder, f"{name}.*")
        if not others:
            return ""
        file = others[-1]
    found = re.search(r"\.so\.(\d+\.\d+[\w.]*)$", resolve(file).name)
    return found[1] if found else "found"


def _version(path: Path) -> str:
    found = re.search(r"\d+\.\d+\.\d+\S*", text(path))
    return found[0] if found else ""


def _tree(named: str) -> str:
    """Say whether the tree has Catch's patches, and whether it was built before it had them.

    The patches add the device type MLU to c10/core/DeviceType.h.
    """
    if not named:
        return ""
    header = Path(named) / "c10/core/DeviceType.h"
    declared = text(header, _MOST_TEXT)
    if not declared:
        return ""
    if not re.search(r"\bMLU\b", declared):
        return "not patched"
    wheels = below(Path(named) / "dist", "torch-*.whl")
    if wheels and changed(wheels[-1]) < changed(header):
        return "built before"
    return "patched"
