"""The environment variables that matter, each explained: tables/env_variables.csv."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

from migrate_kit.tables import read_table


@dataclass(frozen=True)
class Variable:
    """One variable, limit or log level.

    Attributes
    ----------
    group : str
        ascend, cambricon, mindspore, torch or machine.
    kind : str
        ``set_env`` and ``set_env_nnal`` come from a vendor's script, ``build`` is for building from
        source, ``limit`` and ``command`` are no variables; else switch, path, log or dump.
    values : tuple of str
        What it may be, if that is a short list.
    watch : tuple of str
        Values, with ``*`` for anything, that deserve a warning; ``watch_why`` says why.
    without : tuple of str
        Targets on which it has no effect; ``without_why`` says why.
    """

    name: str
    group: str
    kind: str
    values: tuple[str, ...]
    default: str
    what: str
    why: str
    watch: tuple[str, ...]
    watch_why: str
    without: tuple[str, ...]
    without_why: str
    example: str
    source: str

    def invalid(self, value: str) -> bool:
        """Say whether it may not have this value."""
        return bool(self.values) and value not in self.values

    def watched(self, value: str) -> bool:
        """Say whether this value deserves a warning."""
        return any(fnmatchcase(value, pattern) for pattern in self.watch)


@lru_cache(maxsize=1)
def variables() -> tuple[Variable, ...]:
    """Return the table, read once.

    Examples
    --------
    >>> {v.name: v for v in variables()}["TASK_QUEUE_ENABLE"].values
    ('0', '1', '2')
    """
    return tuple(
        Variable(
            name=r["variable"],
            values=tuple(r["values"].split()),
            watch=tuple(r["watch"].split()),
            without=tuple(r["without"].split()),
            **{k: r[k] for k in ("group", "kind", "default", "what", "why", "watch_why")},
            without_why=r["without_why"],
            example=r["example"],
            source=r["source"],
        )
        for r in read_table("env_variables")
    )
