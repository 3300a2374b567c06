"""Everything the doctor judges by, as one snapshot that can be saved and judged elsewhere."""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from migrate_kit.environment.places import as_path
from migrate_kit.environment.records import from_plain, to_plain
from migrate_kit.errors import MigrateError
from migrate_kit.files import write_text

if TYPE_CHECKING:
    import os
    from pathlib import Path

_MOST_BYTES = 16 << 20
# The version of a package whose metadata cannot be read.
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Package:
    """An installed package: what its metadata says, and where Python would import it from."""

    version: str = ""
    requires: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    folder: str = ""
    # Versions of the same package further down the path, which Python does not reach.
    hidden: tuple[str, ...] = ()
    # Where the import system finds its module, if that is not in the installed package.
    shadow: str = ""
    # A file of its metadata that cannot be read -> why.
    damage: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Build:
    """How torch was built, from torch/version.py and the symbols of libc10.so."""

    version: str = ""
    cuda: str = ""
    cxx11_abi: str = ""


@dataclass(frozen=True)
class Missing:
    """Symbols that no library gives: how many, and the first names."""

    count: int = 0
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Library:
    """A library of a package: what the loader will not find for it."""

    package: str = ""
    file: str = ""
    undefined: int = 0
    # Libraries that it needs and that are nowhere on the loader's path.
    absent: tuple[str, ...] = ()
    # "torch", "cann", "atb", "driver" or "other" -> what is missing of it.
    missing: dict[str, Missing] = field(default_factory=dict)
    glibc: str = ""
    glibcxx: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Cann:
    """One installation of CANN."""

    root: str = ""
    version: str = ""
    ops: str = ""
    set_env: str = ""
    absent: tuple[str, ...] = ()
    # The chips that its operator packages are for, as its folders call them.
    kernels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ascend:
    """The Ascend software outside Python."""

    cann: tuple[Cann, ...] = ()
    nnal: str = ""
    nnal_set_env: str = ""
    driver: str = ""
    firmware: str = ""
    hal: str = ""
    # Whether the user is in the group that may open the devices; None where there is no group.
    in_group: bool | None = None
    adc: str = ""


@dataclass(frozen=True)
class Cambricon:
    """The Cambricon software outside Python."""

    home: str = ""
    version: str = ""
    # CNToolkit, CNML, CNNL, CNPlugin, CNCL -> version, "found" or empty.
    components: dict[str, str] = field(default_factory=dict)
    # What the source tree of torch looks like: "", "not patched", "patched", "built before".
    tree: str = ""
    torch_home: bool = False


@dataclass(frozen=True)
class Command:
    """What a program of the vendor said."""

    path: str = ""
    code: int | None = None
    out: str = ""
    err: str = ""


@dataclass(frozen=True)
class Probe:
    """What importing a package in a process of its own gave."""

    code: int | None = None
    seconds: float = 0.0
    # What it printed as its result, as text values.
    said: dict[str, str] = field(default_factory=dict)
    error: str = ""
    log: str = ""


@dataclass(frozen=True)
class Sourced:
    """What sourcing a set_env.sh changes in this environment."""

    code: int | None = None
    changes: dict[str, str] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class Kernel:
    """The process that asked: a Jupyter kernel or not, and its variables."""

    is_kernel: bool = False
    # Known variables only; a snapshot must not carry a token.
    environ: dict[str, str] = field(default_factory=dict)
    # LD_LIBRARY_PATH as the loader read it, when the process started.
    loader_path: str = ""
    core_limit: str = ""
    # A variable that names a folder -> why that folder cannot be reached.
    lost: dict[str, str] = field(default_factory=dict)
    # The environment that the Jupyter server runs in, if it is another.
    server: str = ""
    # A name -> version of its front-end files, and where they lie.
    front_end: dict[str, str] = field(default_factory=dict)
    front_end_user: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Host:
    """The machine: Python, system, room."""

    python: str = ""
    executable: str = ""
    prefix: str = ""
    system: str = ""
    machine: str = ""
    distribution: str = ""
    glibc: str = ""
    libstdcxx: str = ""
    glibcxx: str = ""
    gcc: str = ""
    container: bool = False
    modelarts: bool = False
    cores: int = 0
    memory_gib: float = 0.0
    memory_free_gib: float = 0.0
    disk_free_gib: float = 0.0
    folder: str = ""
    avx512: bool = False
    # The working folder has been removed, or there is no home folder.
    folder_gone: bool = False
    homeless: bool = False


@dataclass(frozen=True)
class Facts:
    """One snapshot of a machine; :func:`migrate_kit.environment.collect.collect` takes it."""

    taken: str = ""
    probed: bool = False
    host: Host = field(default_factory=Host)
    kernel: Kernel = field(default_factory=Kernel)
    packages: dict[str, Package] = field(default_factory=dict)
    # Packages that "import torch" loads by itself (entry points of the group torch.backends).
    backends: tuple[str, ...] = ()
    # A file of entry points, whosever it is, that Python cannot read -> why.
    damaged: dict[str, str] = field(default_factory=dict)
    torch: Build | None = None
    libraries: tuple[Library, ...] = ()
    ascend: Ascend = field(default_factory=Ascend)
    cambricon: Cambricon = field(default_factory=Cambricon)
    # A device node -> "ready", "no permission".
    devices: dict[str, str] = field(default_factory=dict)
    commands: dict[str, Command] = field(default_factory=dict)
    probes: dict[str, Probe] = field(default_factory=dict)
    sourced: dict[str, Sourced] = field(default_factory=dict)

    def version(self, package: str) -> str:
        """Return the version of an installed package, or an empty text."""
        found = self.packages.get(package)
        return found.version if found else ""

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the snapshot as JSON.

        Raises
        ------
        MigrateError
            If the file cannot be written.
        """
        text = json.dumps(to_plain(self), indent=1, ensure_ascii=False)
        return write_text(as_path(path, "save(path)"), text + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Facts:
        """Read a snapshot that :meth:`save` wrote, perhaps on another machine.

        Raises
        ------
        MigrateError
            If the file is no such snapshot.
        """
        path = as_path(path, "Facts.load(path)")
        try:
            seen = path.stat()
            if not stat.S_ISREG(seen.st_mode):  # a pipe or a device would never end
                raise ValueError("it is not a regular file")
            if seen.st_size > _MOST_BYTES:
                raise MigrateError("too large for a snapshot", str(path), "save the facts again")
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise MigrateError(
                f"no snapshot of a machine: {error}"[:300],
                str(path),
                "name the file that the doctor kept on the other machine, where it was called with:"
                " python -m migrate_kit.environment --save facts.json",
            ) from error
        return from_plain(cls, data, path.name)
