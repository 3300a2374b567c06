"""The metadata of one installed package, and what is damaged in it."""

from __future__ import annotations

import importlib.metadata
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from packaging.requirements import InvalidRequirement, Requirement

from migrate_kit.environment.places import working_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

T = TypeVar("T")
PLUGINS = "torch.backends"


@dataclass(frozen=True)
class Metadata:
    """What one installation of a package says of itself.

    Attributes
    ----------
    version : str
        Empty where it cannot be read.
    requires : tuple of str
        What it asks for in this environment without any extra.
    tags : tuple of str
        What its files are made for.
    folder : str
        Where it is installed.
    damage : dict
        A file that cannot be read -> why.
    """

    version: str = ""
    requires: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    folder: str = ""
    damage: dict[str, str] = field(default_factory=dict)


def places(path: Sequence[str] | None) -> list[str]:
    """Return a search path, by default Python's own, with the working folder by its name."""
    listed = [str(p) or working_folder() for p in (sys.path if path is None else path)]
    return [p for p in listed if p]


def installed(name: str, path: list[str]) -> list[importlib.metadata.Distribution]:
    """Return every installation of a package on a search path, in the order of Python's."""
    return list(importlib.metadata.distributions(name=name, path=path))


def read_metadata(distribution: importlib.metadata.Distribution, *, whole: bool) -> Metadata:
    """Read the metadata of one installation.

    Parameters
    ----------
    distribution : Distribution
        The installation.
    whole : bool
        Whether what it asks for and its tags are wanted too.
    """
    read = _Reader(distribution)
    version = read.tried("METADATA", lambda: distribution.version)
    if not version and not read.damage:
        read.damage[read.file("METADATA")] = "it is not there, or names no version"
    requires: tuple[str, ...] | None = ()
    tags: tuple[str, ...] | None = ()
    if whole and not read.damage:
        requires = read.tried("METADATA", lambda: tuple(_requires(distribution)))
        tags = read.tried("WHEEL", lambda: tuple(_tags(distribution)))
    folder = str(distribution.locate_file(""))
    return Metadata(version or "", requires or (), tags or (), folder, read.damage)


def plugins(path: Sequence[str] | None) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return what ``import torch`` loads by itself, and what is damaged in any package on the way.

    Returns
    -------
    tuple
        The plug-ins' names; each file that cannot be read, and why.
    """
    names: set[str] = set()
    damage: dict[str, str] = {}
    for distribution in importlib.metadata.distributions(path=places(path)):
        read = _Reader(distribution)
        names |= read.tried("entry_points.txt", read.plugins) or set()
        damage |= read.damage
    return tuple(sorted(names)), damage


class _Reader:
    """Reads one installation, and keeps what could not be read."""

    def __init__(self, distribution: importlib.metadata.Distribution) -> None:
        self._distribution = distribution
        self.damage: dict[str, str] = {}

    def file(self, name: str) -> str:
        # There is no public name for the folder of the metadata.
        folder = Path(str(getattr(self._distribution, "_path", "")))
        old = folder.suffix == ".egg-info" and name == "METADATA"
        return str(folder / ("PKG-INFO" if old else name))

    def plugins(self) -> set[str]:
        return {p.name for p in self._distribution.entry_points if p.group == PLUGINS}

    def tried(self, name: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except Exception as error:  # noqa: BLE001 - whatever a damaged file makes of the parsers
            self.damage[self.file(name)] = f"{type(error).__name__}: {error}"[:200]
            return None


def _requires(distribution: importlib.metadata.Distribution) -> Iterator[str]:
    for line in distribution.requires or ():
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            requirement.marker = None
            requirement.extras = set()
            yield str(requirement)


def _tags(distribution: importlib.metadata.Distribution) -> Iterable[str]:
    for line in (distribution.read_text("WHEEL") or "").splitlines():
        if line.startswith("Tag:"):
            yield line.removeprefix("Tag:").strip()
