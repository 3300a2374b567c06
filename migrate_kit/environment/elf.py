"""What a shared library needs, lacks and offers, read from its file without loading it."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from migrate_kit.environment.places import exists, is_file
from migrate_kit.errors import MigrateError

if TYPE_CHECKING:
    from pathlib import Path

# libtorch_cpu.so, the largest in use, has 76,000 symbols with 5 MB of names.
MOST_BYTES = 64 << 20
_MOST_ENTRIES, _LONGEST_NAME = 20_000, 1 << 14
_WEAK, _BOUND = 2, {1, 2, 10}  # elf.h: STB_WEAK; STB_GLOBAL, STB_WEAK, STB_GNU_UNIQUE


@dataclass(frozen=True)
class Elf:
    """The dynamic part of one library.

    Attributes
    ----------
    needed : tuple of str
        Libraries it asks the loader for.
    paths : tuple of str
        Where it asks the loader to look (RPATH, RUNPATH), ``$ORIGIN`` as written.
    undefined, defined : frozenset of str
        Symbols it takes from others and must find; symbols it offers.
    wants, gives : frozenset of str
        Versions such as ``GLIBC_2.28`` that it asks of others, or offers.
    """

    needed: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    undefined: frozenset[str] = frozenset()
    defined: frozenset[str] = frozenset()
    wants: frozenset[str] = frozenset()
    gives: frozenset[str] = frozenset()


def read_elf(path: Path, *, symbols: bool = True) -> Elf:
    """Read one library.

    The headers are read with pyelftools, the symbol table in one piece: entry by entry it takes
    seconds for libtorch_cpu.so, in one piece 0.05 s. Nothing else of the file is read, and tables
    above 64 MiB are refused.

    Parameters
    ----------
    path : Path
        The file.
    symbols : bool
        Whether to read the symbols too.

    Raises
    ------
    MigrateError
        If it cannot be read or is no sound ELF file.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        if exists(path) and not is_file(path):
            raise MigrateError("it is not a regular file")
        with path.open("rb") as file:
            elf = ELFFile(file)
            needed, paths = _dynamic(elf)
            wants, gives = _versions(elf)
            undefined, defined = _symbols(elf, file) if symbols else (frozenset(), frozenset())
    except (MigrateError, OSError) as error:
        raise _unreadable(path, error) from error
    # What a damaged file makes of pyelftools beside its own error.
    except (ELFError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError,
            AssertionError, MemoryError, RecursionError, struct.error) as error:  # fmt: skip
        raise _unreadable(path, error) from error
    return Elf(needed, paths, undefined, defined, wants, gives)


def _unreadable(path: Path, error: BaseException) -> MigrateError:
    what = error.what if isinstance(error, MigrateError) else f"{type(error).__name__}: {error}"
    return MigrateError(
        f"not a library that can be read: {what}"[:300], str(path), "install its package again"
    )


def _dynamic(elf: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    section = elf.get_section_by_name(".dynamic")
    if section is None:
        raise MigrateError("no dynamic section")
    needed, paths = [], []
    for tag in islice(section.iter_tags(), _MOST_ENTRIES):
        if tag.entry.d_tag == "DT_NEEDED":
            needed.append(str(tag.needed))
        elif tag.entry.d_tag in {"DT_RPATH", "DT_RUNPATH"}:
            text = tag.rpath if tag.entry.d_tag == "DT_RPATH" else tag.runpath
            paths += [p for p in str(text).split(":") if p]
    return tuple(needed), tuple(paths)


def _versions(elf: Any) -> tuple[frozenset[str], frozenset[str]]:
    wants, gives = set(), set()
    if (section := elf.get_section_by_name(".gnu.version_r")) is not None:
        for _, versions in islice(section.iter_versions(), _MOST_ENTRIES):
            wants |= {str(v.name) for v in islice(versions, _MOST_ENTRIES)}
    if (section := elf.get_section_by_name(".gnu.version_d")) is not None:
        for _, versions in islice(section.iter_versions(), _MOST_ENTRIES):
            gives |= {str(v.name) for v in islice(versions, 1)}  # the others are its parents
    return frozenset(wants), frozenset(gives)


def _symbols(elf: Any, file: Any) -> tuple[frozenset[str], frozenset[str]]:
    table = elf.get_section_by_name(".dynsym")
    if table is None:
        return frozenset(), frozenset()
    names = _piece(file, elf.get_section(table["sh_link"]))
    data = _piece(file, table)
    # elf.h: Elf64_Sym and Elf32_Sym have their fields in another order.
    end = "<" if elf.little_endian else ">"
    wide = elf.elfclass == 64
    form = struct.Struct(end + ("IBBHQQ" if wide else "IIIBBH"))
    usable = memoryview(data)[: len(data) // form.size * form.size]
    undefined, defined, total = set(), set(), 0
    for entry in form.iter_unpack(usable):
        start, info, index = (
            (entry[0], entry[1], entry[3]) if wide else (entry[0], entry[3], entry[5])
        )
        end_of_name = names.find(b"\0", start, start + _LONGEST_NAME)
        if end_of_name <= start:
            continue
        name = names[start:end_of_name]
        total += len(name)
        if total > MOST_BYTES:  # names that overlap on purpose
            raise MigrateError("names of more than 64 MiB")
        if index != 0:
            if info >> 4 in _BOUND:
                defined.add(name)
        elif info >> 4 != _WEAK:
            undefined.add(name)
    return _text(undefined), _text(defined)


def _piece(file: Any, section: Any) -> bytes:
    if section["sh_size"] > MOST_BYTES:
        raise MigrateError(f"a table of {section['sh_size']:,} bytes")
    file.seek(section["sh_offset"])
    return bytes(file.read(section["sh_size"]))


def _text(names: set[bytes]) -> frozenset[str]:
    return frozenset(name.decode("utf-8", "replace") for name in names)
