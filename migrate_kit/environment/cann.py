"""Where CANN, NNAL and the driver are, of which version, and what is not there."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING

from migrate_kit.environment.facts import Ascend, Cann
from migrate_kit.environment.places import below, is_dir, is_file, resolve, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# What torch_npu links (readelf of 2.9.0 and 2.14.0), and the folders that its first operator needs.
_LIBRARIES = ("libhccl", "libascendcl", "libacl_op_compiler", "libge_runner", "libgraph")
_FOLDERS = ("opp", "python/site-packages")
# Below it one folder a chip (CANN 7.0 and 8.0 installation guide, binary operator packages).
_KERNELS = "opp/built-in/op_impl/ai_core/tbe/kernel"
_VERSION = re.compile(r"^[ \t]*[Vv]ersion[ \t]*=[ \t]*\[?([\w.+-]+)", re.MULTILINE)
_IN_NAME = re.compile(r"(\d+\.\d+[\w.]*)$")
_CONFIGURED = re.compile(r"_version\s*=\s*\[[^\]]*?:?([\d][\w.]*)\]")


def find_ascend(environ: Mapping[str, str], root: Path = Path("/")) -> Ascend:
    """Look for the Ascend software outside Python.

    Parameters
    ----------
    environ : mapping
        The variables of the process; they are asked first.
    root : Path
        The top of the file system; another one in tests.
    """
    base = root / "usr/local/Ascend"
    home = Path(environ["HOME"]) / "Ascend" if environ.get("HOME") else base
    driver = _driver(root, base)
    nnal = next((p for p in (base / "nnal/atb", home / "nnal/atb") if is_dir(p)), None)
    return Ascend(
        cann=tuple(map(_cann, _roots(environ, root, base, home))),
        nnal=_nnal_version(nnal) if nnal else "",
        nnal_set_env=_file(nnal / "set_env.sh") if nnal else "",
        driver=_version_in(driver / "version.info"),
        firmware=_version_in(base / "firmware/version.info"),
        hal=_file(driver / "lib64/driver/libascend_hal.so"),
        in_group=_in_group(),
        adc=_file(base / "ascend-toolkit/latest/toolkit/bin/adc"),
    )


def _roots(environ: Mapping[str, str], root: Path, base: Path, home: Path) -> list[Path]:
    named = [environ.get(n, "") for n in ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH")]
    candidates = [Path(n) for n in named if n]
    if where := text(root / "etc/Ascend/ascend_cann_install.info").partition("Install_Path=")[2]:
        candidates += _below(root / where.split()[0].lstrip("/")) if where.split() else []
    for folder in dict.fromkeys((base, home)):
        candidates += _below(folder)
    found: dict[Path, Path] = {}
    for candidate in candidates:
        if is_dir(candidate / "lib64") or is_dir(candidate / "opp"):
            found.setdefault(resolve(candidate), candidate)
    return list(found.values())


def _below(folder: Path) -> list[Path]:
    fixed = ("ascend-toolkit/latest", "cann", "nnae/latest", "nnrt/latest", "latest")
    return [*(folder / name for name in fixed), *reversed(below(folder, "cann-*"))]


def _cann(root: Path) -> Cann:
    arch = root / f"{platform.machine()}-linux"
    lib64 = root / "lib64"
    absent = [f"lib64/{n}.so" for n in _LIBRARIES if not is_file(lib64 / f"{n}.so")]
    absent += [f"{n}/" for n in _FOLDERS if not is_dir(root / n)]
    scripts = (root / "set_env.sh", root.parent / "set_env.sh")
    infos = ("ascend_toolkit_install.info", "ascend_nnae_install.info", "ascend_nnrt_install.info")
    version = next(filter(None, (_version_in(arch / n) for n in infos)), "")
    if not version:
        configured = _CONFIGURED.findall(text(root / "version.cfg"))
        version = configured[-1] if configured else ""
    if not version and (named := _IN_NAME.search(resolve(root).name)):
        version = named[1]
    ops = _version_in(arch / "ascend_ops_install.info")
    ops = (
        ops
        or _version_in(root / "opp_kernel/version.info")
        or _version_in(root / "opp/version.info")
    )
    kernels = tuple(p.name for p in below(root / _KERNELS, "ascend*") if is_dir(p))
    script = next(filter(None, map(_file, scripts)), "")
    return Cann(str(root), version, ops, script, tuple(absent), kernels)


def _nnal_version(folder: Path) -> str:
    found = _version_in(folder / "latest/version.info") or _version_in(folder / "version.info")
    if not found and (named := _IN_NAME.search(resolve(folder / "latest").name)):
        found = named[1]
    return found or "unknown"


def _driver(root: Path, base: Path) -> Path:
    said = text(root / "etc/ascend_install.info")
    if (found := re.search(r"Driver_Install_Path_Param=(\S+)", said)) is not None:
        return root / found[1].lstrip("/") / "driver"
    return base / "driver"


def _in_group() -> bool | None:
    import grp

    try:
        group = grp.getgrnam("HwHiAiUser")
    except KeyError:
        return None
    return os.geteuid() == 0 or group.gr_gid in {os.getegid(), *os.getgroups()}


def set_env_scripts(ascend: Ascend) -> Iterable[str]:
    """Return the scripts to source, in their order: the toolkit's first, then NNAL's."""
    for cann in ascend.cann[:1]:
        if cann.set_env:
            yield cann.set_env
    if ascend.nnal_set_env:
        yield ascend.nnal_set_env


def _file(path: Path) -> str:
    return str(path) if is_file(path) else ""


def _version_in(path: Path) -> str:
    found = _VERSION.search(text(path))
    return found[1] if found else ""
