"""Is this machine ready: read it, judge it, say what to type."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from migrate_kit.environment.collect import collect
from migrate_kit.environment.facts import Facts
from migrate_kit.environment.judge import judge
from migrate_kit.environment.places import as_path
from migrate_kit.environment.report import EnvironmentReport
from migrate_kit.errors import MigrateError
from migrate_kit.targets import Target, find_target

if TYPE_CHECKING:
    import os


def check_environment(
    target: str | None = None,
    *,
    probes: bool = True,
    facts: Facts | str | os.PathLike[str] | None = None,
    seconds: float = 30.0,
) -> EnvironmentReport:
    """Examine this machine, without importing torch, torch_npu or MindSpore into this process.

    Package metadata, the symbol tables of the vendors' libraries, files, device nodes and the
    variables of this process are read; every risky import runs in a process of its own.

    Parameters
    ----------
    target : str, optional
        A name, chip or product of tables/targets.csv. It decides what is demanded: for an Ascend
        target on a machine without an NPU the absence of the device is told, and is no error. By
        default whatever is installed is judged.
    probes : bool
        Whether to start other processes (imports, ``npu-smi``, the vendors' scripts): some seconds.
        Without them only files are read: well under a second.
    facts : Facts or path, optional
        A snapshot to judge instead of this machine, or the file of one.
    seconds : float
        The time limit of one import.

    Returns
    -------
    EnvironmentReport
        ``.ok`` (nothing is wrong), ``.can_run`` (the target would run here, and not only be
        rehearsed) with what is ``.lacking``, ``.findings`` with what, why and the exact command,
        ``.show()`` as a checklist, ``.kernel_spec(name)`` and ``.env_script(path)`` to keep the
        vendors' variables.

    Raises
    ------
    MigrateError
        If there is no such target, ``facts`` is no snapshot, or ``seconds`` no time.

    Examples
    --------
    >>> report = check_environment("ascend910b", probes=False)
    >>> "npu-absent" in {check.id for check in report.checks} or bool(report.facts.devices)
    True
    """
    goal = Target() if target is None else find_target(target, "check_environment(target=)")
    known = collect(probe=probes, seconds=_limit(seconds)) if facts is None else _snapshot(facts)
    return EnvironmentReport(known, goal, judge(known, goal))


def _snapshot(facts: object) -> Facts:
    if isinstance(facts, Facts):
        return facts
    return Facts.load(as_path(facts, "check_environment(facts=)"))


def _limit(seconds: object) -> float:
    if isinstance(seconds, int | float) and 0 < seconds < math.inf:
        return float(seconds)
    raise MigrateError(
        f"{seconds!r} is no time limit"[:200],
        "check_environment(seconds=)",
        "give a number of seconds above 0, such as 30.0",
    )
