"""What the loader will not find for the vendors' libraries, worked out without loading them."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from migrate_kit.environment.elf import Elf, read_elf
from migrate_kit.environment.facts import Library, Missing
from migrate_kit.environment.places import below, is_file, text
from migrate_kit.errors import MigrateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from migrate_kit.environment.facts import Package

# Package -> files below its folder; those of the second list are only asked which C library they
# need.
PLUGINS = {
    "torch-npu": (
        *("torch_npu/lib/libtorch_npu.so", "torch_npu/lib/libnpu_profiler.so"),
        "torch_npu/lib/libop_plugin_atb.so",
    ),
    "torch-mlu": ("torch_mlu/csrc/lib/libtorch_mlu*.so", "torch_mlu/lib/libtorch_mlu*.so"),
    "torchvision": ("torchvision/_C*.so",),
    "torchaudio": ("torchaudio/lib/*torchaudio*.so",),
}
OTHERS = {
    "torch": ("torch/lib/libtorch_cpu.so", "torch/lib/libc10.so"),
    "mindspore": ("mindspore/_c_expression*.so", "mindspore/lib/libmindspore_core.so"),
}
_NAMES, _FOLLOWED, _FILES = 20, 300, 8
# Which side a symbol belongs to, by the namespaces in its mangled name.
_SIDES = (
    ("atb", re.compile(r"_Z\w*?(?:3atb|3Mki)")),
    ("cann", re.compile(r"_Z\w*?2ge\d|acl|Acl|Hccl|Msprof|hccl|rt[A-Z]|AscendC|aoe")),
    ("driver", re.compile(r"hal[A-Z]|drv[A-Z]")),
    ("cambricon", re.compile(r"cn(?:rt|ml|nl|cl|dev)[A-Z_]")),
    (
        "torch",
        re.compile(r"_Z\w*?(?<!\d)(?:3c10|2at|5torch|6caffe2)(?:[^_a-z]|[a-z]{2}E)|_Z\w*?TH[A-Z]"),
    ),
)


class Loader:
    """Finds libraries where the loader would: RPATH, the environment's path, the system's."""

    def __init__(self, loader_path: str, loaded: Sequence[Path], root: Path = Path("/")) -> None:
        self._path = [Path(p) for p in loader_path.split(":") if p]
        # What torch itself has loaded by then is found by its name alone.
        self._loaded = list(loaded)
        self._system = system_folders(root)
        self._read: dict[Path, Elf] = {}

    def find(self, name: str, user: Path, elf: Elf) -> Path | None:
        """Return the file that ``user`` gets when it asks for ``name``."""
        own = [
            Path(p.replace("$ORIGIN", str(user.parent)).replace("${ORIGIN}", str(user.parent)))
            for p in elf.paths
        ]
        for folder in (*self._loaded, *own, *self._path, *self._system):
            if is_file(file := folder / name):
                return file
        return None

    def read(self, file: Path) -> Elf:
        """Return what a library offers; an unreadable one offers nothing."""
        if file not in self._read:
            try:
                self._read[file] = read_elf(file)
            except MigrateError:
                self._read[file] = Elf()
        return self._read[file]

    def closure(self, file: Path, elf: Elf) -> tuple[set[str], list[str]]:
        """Return all symbols that ``file`` can take, and the libraries it needs that are absent."""
        given, absent = set(elf.defined), []
        todo, seen = [(file, elf, True)], {file}
        while todo and len(seen) < _FOLLOWED:
            user, its, direct = todo.pop()
            for name in its.needed:
                found = self.find(name, user, its)
                if found is None:
                    if direct:
                        absent.append(name)
                # CUDA's own libraries are large and offer nothing that a plug-in takes.
                elif found not in seen and "nvidia" not in found.parts:
                    seen.add(found)
                    offers = self.read(found)
                    given |= offers.defined
                    todo.append((found, offers, False))
        return given, absent


def system_folders(root: Path = Path("/")) -> list[Path]:
    """Return the loader's own folders: those of ld.so.conf, then the built-in ones."""
    named: list[Path] = []
    todo: list[Path] = [root / "etc/ld.so.conf"]
    seen: set[Path] = set()
    while todo and len(seen) < 100:
        file = todo.pop(0)
        seen.add(file)
        for line in text(file).splitlines():
            word = line.partition("#")[0].strip()
            if word.startswith("include "):
                pattern = word.removeprefix("include ").strip()
                start = root if pattern.startswith("/") else root / "etc"
                todo += [p for p in below(start, pattern.lstrip("/")) if p not in seen]
            elif word.startswith("/"):
                named.append(root / word.lstrip("/"))
    triples = [p for top in ("lib", "usr/lib") for p in below(root / top, "*-linux-gnu")]
    plain = [root / p for p in ("lib64", "usr/lib64", "lib", "usr/lib")]
    return list(dict.fromkeys([*named, *triples, *plain]))


def examine(found: dict[str, Package], loader: Loader) -> tuple[Library, ...]:
    """Examine the libraries of the installed packages."""
    libraries: list[Library] = []
    for package, patterns in (*PLUGINS.items(), *OTHERS.items()):
        if package not in found or not found[package].folder:
            continue
        folder, deep = Path(found[package].folder), package in PLUGINS
        files = list(islice(_files(folder, patterns), _FILES))
        # They are loaded together, and give each other what they define.
        own = {name for file in files if deep for name in loader.read(file).defined}
        libraries += [
            library(package, file, folder, loader, own if deep else None) for file in files
        ]
    return tuple(libraries)


def library(
    package: str, file: Path, folder: Path, loader: Loader, own: set[str] | None
) -> Library:
    """Examine one library; with the symbols of its siblings, also look for every one it takes."""
    name = str(file.relative_to(folder)) if file.is_relative_to(folder) else str(file)
    try:
        elf = read_elf(file, symbols=own is not None)
    except MigrateError as error:
        return Library(package, name, problem=error.what)
    glibc, glibcxx = newest(elf.wants, "GLIBC_"), newest(elf.wants, "GLIBCXX_")
    if own is None:
        return Library(package, name, glibc=glibc, glibcxx=glibcxx)
    given, absent = loader.closure(file, elf)
    # The interpreter itself gives the symbols of Python.
    given |= own
    lost = [s for s in elf.undefined if s not in given and not s.startswith(("Py", "_Py"))]
    sides: dict[str, list[str]] = {}
    for symbol in sorted(lost):
        sides.setdefault(side_of(symbol), []).append(symbol)
    missing = {k: Missing(len(v), tuple(v[:_NAMES])) for k, v in sides.items()}
    return Library(
        package, name, len(elf.undefined), tuple(absent), missing, glibc=glibc, glibcxx=glibcxx
    )


def side_of(symbol: str) -> str:
    """Say whose symbol it is: torch, cann, atb, driver, cambricon or other.

    Examples
    --------
    >>> side_of("_ZN3c106Symbol14fromQualStringEv"), side_of("halSqMemGet"), side_of("aclrtMalloc")
    ('torch', 'driver', 'cann')
    """
    return next((side for side, rule in _SIDES if rule.match(symbol)), "other")


def newest(versions: Iterable[str], prefix: str) -> str:
    """Return the highest of ``GLIBC_2.28``-like names with this prefix, as ``2.28``.

    Examples
    --------
    >>> newest({"GLIBC_2.9", "GLIBC_2.28", "GLIBC_PRIVATE"}, "GLIBC_")
    '2.28'
    """
    rule = re.compile(re.escape(prefix) + r"([0-9]{1,9}(?:\.[0-9]{1,9})*)")
    numbers = [m[1] for v in versions if (m := rule.fullmatch(v))]
    return max(numbers, key=lambda n: tuple(map(int, n.split("."))), default="")


def cxx11_abi(libc10: Path) -> str:
    """Return "1" if torch was built with the C++11 ABI, "0" if not, empty if unknown."""
    try:
        elf = read_elf(libc10)
    except MigrateError:
        return ""
    return "1" if any("__cxx11" in name for name in elf.defined) else "0"


def _files(folder: Path, patterns: Sequence[str]) -> Iterable[Path]:
    for pattern in patterns:
        yield from below(folder, pattern)
