"""Which versions go together: tables/compat.csv, and how a version meets a cell of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from migrate_kit.tables import read_table

# The columns that demand a version of something else.
PARTNERS = ("torch", "cann", "driver", "numpy", "protobuf", "python", "gcc")
_LEADING = re.compile(
    r"v?(\d+(?:\.\d+)*)(?:[.\-_]?(rc|post|alpha|beta|a|b)[.\-_]?(\d+))?",
    re.IGNORECASE | re.ASCII,
)
_LONGEST = 200


@dataclass(frozen=True)
class Row:
    """One release of the table, and what it goes with."""

    package: str
    version: str
    cells: tuple[tuple[str, str], ...]
    cann_also: str
    status: str
    eol: str
    checked: str
    note: str
    source: str

    def cell(self, partner: str) -> str:
        """Return what the row accepts of ``partner``; empty where it does not say."""
        return dict(self.cells)[partner]


@lru_cache(maxsize=1)
def rows() -> tuple[Row, ...]:
    """Return the table, read once."""
    keep = ("package", "version", "cann_also", "status", "eol", "checked", "note", "source")
    return tuple(
        Row(cells=tuple((p, r[p]) for p in PARTNERS), **{k: r[k] for k in keep})
        for r in read_table("compat")
    )


def checked() -> str:
    """Return the day on which the newest row was looked up, as ``2026-12-01``."""
    return max(row.checked for row in rows())


def rows_of(package: str, version: str | None = None) -> list[Row]:
    """Return the rows of a package, and of one version of it.

    Examples
    --------
    >>> [row.cell("torch") for row in rows_of("torch-npu", "2.9.0.post2")]
    ['2.9.0']
    """
    name = canonicalize_name(package)
    mine = [row for row in rows() if canonicalize_name(row.package) == name]
    return [row for row in mine if version is None or accepts(row.version, version)]


def parse(text: str) -> Version | None:
    """Read a version as far as it can be ordered; None where nothing can.

    CANN and the drivers have forms that Python's rules do not know: ``8.2.RC1.alpha003``,
    ``24.1.rc1.b060``. They are ordered by the part in front.

    Examples
    --------
    >>> parse("8.3.RC1") < parse("8.3.0"), str(parse("24.1.rc1.b060")), parse("unknown")
    (True, '24.1rc1', None)
    """
    if len(text) > _LONGEST:  # Python makes no integer of some thousand digits
        return None
    try:
        return Version(text.strip())
    except InvalidVersion:
        found = _LEADING.match(text.strip())
        if found is None:
            return None
        release, stage, number = found.groups()
        return Version(release + (f"{stage.lower()}{number}" if stage else ""))


def accepts(cell: str, version: str) -> bool:
    """Say whether a cell of the table accepts a version.

    Parameters
    ----------
    cell : str
        Alternatives between spaces: a version, ``25.5.*``, ``>=1.25,<2``, or ``*`` for any.
    version : str
        As the package says it; a local part (``+cpu``) is not compared.

    Examples
    --------
    >>> accepts("3.10 3.11", "3.11"), accepts(">=1.25,<2", "2.4.6"), accepts("8.2.*", "8.2.RC1")
    (True, False, True)
    """
    found = parse(version)
    return any(_one(alternative, version, found) for alternative in cell.split())


def _one(alternative: str, version: str, found: Version | None) -> bool:
    if alternative == "*":
        return True
    if found is None:
        return alternative == version
    if alternative[0] in "<>=!~":
        try:
            wanted = SpecifierSet(alternative, prereleases=True)
        except InvalidSpecifier:
            return False
        return wanted.contains(found.public)
    if alternative.endswith((".*", ".X")):
        release = tuple(int(p) for p in alternative[:-2].split("."))
        return found.release[: len(release)] == release
    exact = parse(alternative)
    return exact is not None and exact.public == found.public


def older(version: str, cell: str) -> bool | None:
    """Say whether a version is below everything that a cell accepts; None where it cannot tell.

    Examples
    --------
    >>> older("24.1.rc1", "25.5.* 25.3.*"), older("26.0.RC1", ">=25.0.RC1")
    (True, False)
    """
    found = parse(version)
    bounds = [parse(a.lstrip("<>=!~").removesuffix(".*").removesuffix(".X")) for a in cell.split()]
    known = [b for b in bounds if b is not None]
    if found is None or not known:
        return None
    lowest = min(known)
    return found < lowest and found.release[: len(lowest.release)] != lowest.release
