"""What the chosen target demands."""

from __future__ import annotations

from dataclasses import dataclass

from migrate_kit.errors import MigrateError
from migrate_kit.tables import read_table


@dataclass(frozen=True)
class Goal:
    """A target of tables/targets.csv; without a name, whatever is installed is judged."""

    name: str = ""
    title: str = ""
    frameworks: tuple[str, ...] = ()
    chips: tuple[str, ...] = ()

    @property
    def ascend(self) -> bool:
        """Whether it is an Ascend processor."""
        return self.name.startswith("ascend")

    @property
    def cambricon(self) -> bool:
        """Whether it is a Cambricon card."""
        return self.name.startswith("mlu")


def goal_of(target: str | None) -> Goal:
    """Return what a target demands.

    Raises
    ------
    MigrateError
        If there is no such target.

    Examples
    --------
    >>> goal_of("ascend910b").ascend, goal_of(None).name
    (True, '')
    """
    if target is None:
        return Goal()
    rows = {row["target"]: row for row in read_table("targets")}
    if target not in rows:
        raise MigrateError(
            f"no target {target!r}",
            "check_environment(target=)",
            f"choose one of: {', '.join(sorted(rows))}",
        )
    row = rows[target]
    frameworks, chips = row["framework"].split(), row["chips"].split()
    return Goal(target, row["title"], tuple(frameworks), tuple(chips))
