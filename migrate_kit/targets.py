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
    found = named_target(name)
    if found is not None:
        return found
    near = meant(_plain(name), targets())
    raise MigrateError(
        f"no target {name!r}{near}",
        where,
        f"choose one of: {', '.join(targets())}, or a SoC name such as Ascend910B4",
    )


def named_target(name: str) -> Target | None:
    """Return a target by its name or that of one of its chips, or None.

    Examples
    --------
    >>> named_target("Ascend910_9391").name, named_target("cuda")
    ('ascend910_93', None)
    """
    wanted = _plain(name)
    if wanted in targets():
        return targets()[wanted]
    return next((t for t in targets().values() if t.has(wanted)), None)


def _plain(name: str) -> str:
    return name.strip().lower() if isinstance(name, str) else ""
