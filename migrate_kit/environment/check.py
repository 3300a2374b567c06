"""One line of the checklist: what was looked at, why it matters, the command that mends it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from migrate_kit.results import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from migrate_kit.environment.facts import Facts
    from migrate_kit.results import Level

State = Literal["ok", "info", "warning", "error"]
STATES: tuple[State, ...] = ("error", "warning", "info", "ok")


@dataclass(frozen=True)
class Fault(Finding):
    """A finding of the doctor; ``fix`` is the exact command where there is one.

    Attributes
    ----------
    id : str
        The check's own name, which does not change between machines.
    why : str
        Why it matters.
    command : str
        What to type, quoted for a shell.
    source : str
        Where the rule was read or measured.
    """

    id: str = ""
    why: str = ""
    command: str = ""
    source: str = ""


@dataclass(frozen=True)
class Check:
    """One line of the checklist; ``ok`` lines say what is in order."""

    id: str
    group: str
    state: State
    what: str
    why: str = ""
    command: str = ""
    source: str = ""

    def fault(self) -> Fault:
        """Return the check as a finding."""
        return Fault(
            cast("Level", self.state),
            self.what,
            self.group,
            self.command or "",
            id=self.id,
            why=self.why,
            command=self.command,
            source=self.source,
        )


def pip_install(facts: Facts, *requirements: str) -> str:
    """Return the command that installs into the environment that was looked at.

    Examples
    --------
    >>> from migrate_kit.environment.facts import Facts, Host
    >>> pip_install(Facts(host=Host(executable="/opt/my env/bin/python")), "numpy<2")
    "'/opt/my env/bin/python' -m pip install 'numpy<2'"
    """
    return shlex.join([facts.host.executable or "python", "-m", "pip", "install", *requirements])


def some(names: Iterable[str], most: int = 4, total: int | None = None) -> str:
    """Join names for a sentence, the first few of them; ``total`` where not all are given.

    Examples
    --------
    >>> some(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    listed = list(names)
    more = (len(listed) if total is None else total) - min(most, len(listed))
    return ", ".join(listed[:most]) + (f" and {more} more" if more > 0 else "")
