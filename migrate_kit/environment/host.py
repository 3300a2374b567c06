"""The machine itself: system, libraries of C and C++, room."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from migrate_kit.environment.elf import Elf, read_elf
from migrate_kit.environment.facts import Host
from migrate_kit.environment.libraries import newest
from migrate_kit.environment.places import exists, home, is_dir, resolve, text, working_folder
from migrate_kit.errors import MigrateError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from migrate_kit.environment.libraries import Loader

_GIB = 2**30
# A control group's limit and use of memory: version 2, version 1.
_LIMITS = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)


def read_host(loader: Loader, environ: Mapping[str, str]) -> Host:
    """Return what is to be known of this machine."""
    total, free = _memory()
    library, glibcxx = _libstdcxx(loader)
    folder = working_folder()
    return Host(
        python=platform.python_version(),
        executable=sys.executable,
        prefix=sys.prefix,
        system=platform.system(),
        machine=platform.machine(),
        distribution=_distribution(),
        glibc=_glibc(),
        libstdcxx=library,
        glibcxx=glibcxx,
        container=_is_container(environ),
        modelarts=is_dir(Path("/modelarts")) or is_dir(Path("/home/ma-user")),
        cores=_cores(),
        memory_gib=round(total / _GIB, 1),
        memory_free_gib=round(free / _GIB, 1),
        disk_free_gib=round(_free(folder) / _GIB, 1),
        folder=folder,
        avx512="avx512f" in text(Path("/proc/cpuinfo"), 1 << 14),
        folder_gone=not folder,
        homeless=home() is None,
    )


def _free(folder: str) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""


def _glibc() -> str:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").removeprefix("glibc ")
    except (ValueError, OSError):
        return ""


def _libstdcxx(loader: Loader) -> tuple[str, str]:
    """Return the libstdc++ that this process would load first, and its newest version."""
    # Conda's Python names its own folder in its RPATH, and so comes before the system's.
    python = resolve(Path(sys.executable))
    try:
        elf = read_elf(python, symbols=False)
    except MigrateError:
        elf = Elf()
    file = loader.find("libstdc++.so.6", python, elf)
    if file is None:
        return "", ""
    try:
        return str(file), newest(read_elf(file, symbols=False).gives, "GLIBCXX_")
    except MigrateError:
        return str(file), ""


def _memory() -> tuple[int, int]:
    page = os.sysconf("SC_PAGE_SIZE")
    total, free = page * os.sysconf("SC_PHYS_PAGES"), page * os.sysconf("SC_AVPHYS_PAGES")
    for line in text(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    # A container sees the host's memory; its own limit is in the control group.
    for name, used in _LIMITS:
        limit = text(Path("/sys/fs/cgroup", name)).strip()
        if limit.isdigit() and int(limit) < total:
            total = int(limit)
            taken = text(Path("/sys/fs/cgroup", used)).strip()
            free = min(free, max(0, total - int(taken))) if taken.isdigit() else min(free, total)
    return total, free


def _cores() -> int:
    cores = len(os.sched_getaffinity(0))
    quota, _, period = text(Path("/sys/fs/cgroup/cpu.max")).strip().partition(" ")
    if quota.isdigit() and period.isdigit() and int(period):
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def _is_container(environ: Mapping[str, str]) -> bool:
    marks = (Path("/.dockerenv"), Path("/run/.containerenv"))
    return any(map(exists, marks)) or "KUBERNETES_SERVICE_HOST" in environ
