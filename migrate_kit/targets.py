"""The hardware that a model can be moved to, under the names it goes by."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

from migrate_kit.errors import MigrateError, meant
from migrate_kit.tables import read_table


@dataclass(frozen=True)
class Target:
    """One row of ``tables/targets.csv``.

    Attributes
    ----------
    name, title : str
        The name used here, and the products it stands for.
    frameworks : tuple of str
        What runs on it: ``torch_npu``, ``mindspore``, ``om``, ``torch_mlu``.
    chips : tuple of str
        What its driver calls it (SoC names), with ``*`` for any ending.
    """

    name: str = ""
    title: str = ""
    frameworks: tuple[str, ...] = ()
    chips: tuple[str, ...] = ()

    def has(self, chip: str) -> bool:
        """Whether a chip of this name is one of these, in upper or lower case."""
        return any(fnmatchcase(chip.lower(), name.lower()) for name in self.chips)

    @property
    def ascend(self) -> bool:
        """Whether it is an Ascend processor."""
        return self.name.startswith("ascend")

    @property
    def cambricon(self) -> bool:
        """Whether it is a Cambricon card."""
        return self.name.startswith("mlu")


@lru_cache(maxsize=1)
def targets() -> dict[str, Target]:
    """Return every target by name.

    Examples
    --------
    >>> targets()["ascend310p"].chips[2]
    'Ascend310P3'
    """
    return {
        row["target"]: Target(
            row["target"],
            row["title"],
            tuple(row["framework"].split()),
            tuple(row["chips"].split()),
        )
        for row in read_table("targets")
    }


def find_target(name: str, where: str) -> Target:
    """Return a target by its name or the name of one of its chips.

    Parameters
    ----------
    name : str
        As ``ascend310p`` or ``Ascend310P3``.
    where : str
        What an error names as the place.

    Raises
    ------
    MigrateError
        If there is none; it lists the targets.

    Examples
    --------
    >>> find_target("Ascend310P3", "target=").name
    'ascend310p'
    """
    known = targets()
    wanted = name.strip().lower() if isinstance(name, str) else ""
    if wanted in known:
        return known[wanted]
    for target in known.values():
        if target.has(wanted):
            return target
    raise MigrateError(
        f"no target {name!r}{meant(wanted, known)}",
        where,
        f"choose one of: {', '.join(known)}, or a SoC name such as Ascend910B4",
    )
