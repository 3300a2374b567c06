"""List the symbols that a library needs and the installed torch does not have.

Needs only pyelftools; nothing is loaded or run, so it works where ``import torch`` fails:
python missing_symbols.py site-packages/torch_npu/lib/libtorch_npu.so site-packages/torch/lib
"""

import sys
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

# How the mangled names of torch's own namespaces begin (Itanium C++ ABI, section 5.1).
TORCHS_OWN = ("2at", "3c10", "6caffe2", "5torch")


def symbols(library: Path) -> tuple[set[str], set[str]]:
    """Return what a library must find elsewhere, and what it offers."""
    wanted: set[str] = set()
    offered: set[str] = set()
    with library.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".dynsym")
        if isinstance(table, SymbolTableSection):
            for symbol in table.iter_symbols():
                if symbol["st_shndx"] != "SHN_UNDEF":
                    offered.add(symbol.name)
                elif symbol["st_info"]["bind"] != "STB_WEAK":
                    wanted.add(symbol.name)
    return wanted, offered


def is_torchs(name: str) -> bool:
    """Whether a mangled name lies in one of torch's namespaces."""
    return name.startswith("_Z") and any(part in name[:12] for part in TORCHS_OWN)


def missing(library: Path, folder: Path) -> list[str]:
    """Return the names of torch that ``library`` needs and no library in ``folder`` has."""
    offered: set[str] = set()
    for other in sorted(folder.glob("*.so*")):
        offered |= symbols(other)[1]
    return sorted(name for name in symbols(library)[0] - offered if is_torchs(name))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    found = missing(Path(sys.argv[1]), Path(sys.argv[2]))
    print(f"{len(found)} symbols of torch are missing")
    print("\n".join(found[:20]))
    if found:
        print("The two were not built for each other: install the pair of one version.")
