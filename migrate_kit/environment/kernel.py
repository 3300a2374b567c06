"""The process that asks: its variables as the loader saw them, and the Jupyter around it."""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from migrate_kit.environment.facts import Kernel
from migrate_kit.environment.places import home, resolve, text, unreachable
from migrate_kit.environment.variables import variables

if TYPE_CHECKING:
    from collections.abc import Mapping

EXTENSIONS = ("anywidget", "@jupyter-widgets/jupyterlab-manager")
# Folders that are there or the variable is wrong; torch makes TORCH_HOME itself.
FOLDERS = (
    *("HOME", "ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH", "ASCEND_OPP_PATH"),
    *("NEUWARE_HOME", "PYTORCH_HOME"),
)
# Vendors' variables that the table does not explain; never a whole environment, which holds tokens.
_PREFIXES = (
    *("ASCEND_", "ATB_", "HCCL_", "NPU_", "PYTORCH_NPU_", "ACL_", "CANN_"),
    *("MLU_", "CNML_", "CNRT_", "CNNL_", "NEUWARE_", "TORCH_", "GLOG_", "DUMP_", "MS_", "ONEDNN_"),
)
_SECRET = ("TOKEN", "SECRET", "PASSWORD", "KEY", "CREDENTIAL")
_MOST_TEXT, _MOST_PACKAGE = 20_000, 1 << 20


def read_kernel(environ: Mapping[str, str] | None = None) -> Kernel:
    """Return what is to be known of this process."""
    environ = os.environ if environ is None else environ
    names = {v.name for v in variables()}
    kept = {
        name: value[:_MOST_TEXT]
        for name, value in sorted(environ.items())
        if (name in names or name.startswith(_PREFIXES))
        and not any(word in name.upper() for word in _SECRET)
    }
    soft, _ = resource.getrlimit(resource.RLIMIT_CORE)
    inside = "ipykernel" in sys.modules
    return Kernel(
        is_kernel=inside,
        environ=kept,
        loader_path=_started_with("LD_LIBRARY_PATH", environ),
        lost=_lost(environ),
        core_limit="unlimited" if soft == resource.RLIM_INFINITY else str(soft),
        server=_server() if inside else "",
        front_end=_front_end(Path(sys.prefix) / "share" / "jupyter"),
        front_end_user=_front_end(user) if (user := user_data(environ)) else {},
    )


def _lost(environ: Mapping[str, str]) -> dict[str, str]:
    named = {name: value for name in FOLDERS if (value := environ.get(name))}
    return {n: why for n, value in named.items() if (why := unreachable(Path(value)))}


def user_data(environ: Mapping[str, str]) -> Path | None:
    """Return the user's Jupyter data folder; None where there is no home folder."""
    if named := environ.get("JUPYTER_DATA_DIR"):
        return Path(named)
    folder = home()
    return folder / ".local" / "share" / "jupyter" if folder else None


def _started_with(name: str, environ: Mapping[str, str]) -> str:
    """Return a variable as it was when the process started: the loader reads it only then."""
    try:
        with Path("/proc/self/environ").open("rb") as file:
            pairs = file.read(1 << 20).split(b"\0")
    except OSError:
        return environ.get(name, "")
    for pair in pairs:
        key, _, value = pair.partition(b"=")
        if key == name.encode():
            return os.fsdecode(value)[:_MOST_TEXT]  # as os.environ has it, to be compared
    return ""


def _server() -> str:
    """Return the environment of the Jupyter server that started this kernel, if it is another."""
    try:
        line = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    program = Path(line[0].decode("utf-8", "replace"))
    if not program.is_absolute() or not program.name.startswith("python"):
        return ""
    prefix = program.parent.parent
    return "" if resolve(prefix) == resolve(Path(sys.prefix)) else str(prefix)


def _front_end(jupyter: Path) -> dict[str, str]:
    found = {}
    for name in EXTENSIONS:
        try:
            package = text(jupyter / "labextensions" / name / "package.json", _MOST_PACKAGE)
            found[name] = str(json.loads(package)["version"])[:40]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return found
