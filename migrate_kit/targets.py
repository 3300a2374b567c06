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
    aliases : tuple of str
        What engineers and products call it, with ``*`` for any ending.
    """

    name: str = ""
    title: str = ""
    frameworks: tuple[str, ...] = ()
    chips: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    def has(self, chip: str) -> bool:
        """Whether a chip of this name is one of these, in upper or lower case."""
        return any(fnmatchcase(chip.lower(), name.lower()) for name in self.chips)

    def goes_by(self, name: str) -> bool:
        """Whether engineers or products call it so, in lower case."""
        return any(fnmatchcase(name, alias) for alias in self.aliases)

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
            tuple(filter(None, row["aliases"].split("|"))),
        )
        for row in read_table("targets")
    }


def find_target(name: str, where: str) -> Target:
    """Return a target by its name, the name of one of its chips, or what a product is called.

    Parameters
    ----------
    name : str
        As ``ascend310p``, ``Ascend310P3``, ``310p`` or ``Atlas 300I Duo``.
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
        f"choose one of: {', '.join(targets())}; SoC and product names such as Ascend910B4 and"
        " Atlas 800T A2 are taken too",
    )


def named_target(name: str) -> Target | None:
    """Return a target by its name, that of one of its chips or products, or None.

    Examples
    --------
    >>> named_target("Ascend910_9391").name, named_target("cuda")
    ('ascend910_93', None)
    >>> [named_target(n).name for n in ("910B", "Ascend910C", "Atlas 300I Duo", "MLU370-X8")]
    ['ascend910b', 'ascend910_93', 'ascend310p', 'mlu370']
    """
    wanted = _plain(name)
    # "910b4" is the chip without the maker's word, "Ascend 910B" has a blank too many.
    for form in (wanted, wanted.replace(" ", ""), f"ascend{wanted}"):
        if form in targets():
            return targets()[form]
        found = next((t for t in targets().values() if t.has(form) or t.goes_by(form)), None)
        if found is not None:
            return found
    return None


def answered_for(name: str, answers: str) -> Target | None:
    """Return the target of a name where the tables of another one answer for it.

    Parameters
    ----------
    name : str
        What was asked for.
    answers : str
        The target whose tables are used.

    Examples
    --------
    >>> answered_for("Atlas 800T A3", "ascend910b").name
    'ascend910_93'
    >>> answered_for("Ascend310P3", "ascend310p") is None
    True
    """
    found = named_target(name)
    return None if found is None or found.name == answers else found


def _plain(name: str) -> str:
    return " ".join(name.lower().split()) if isinstance(name, str) else ""
