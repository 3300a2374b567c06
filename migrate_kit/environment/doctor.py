"""Is this machine ready: read it, judge it, say what to type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migrate_kit.environment.collect import collect
from migrate_kit.environment.judge import judge
from migrate_kit.environment.report import EnvironmentReport
from migrate_kit.targets import Target, find_target

if TYPE_CHECKING:
    from migrate_kit.environment.facts import Facts


def check_environment(
    target: str | None = None,
    *,
    probes: bool = True,
    facts: Facts | None = None,
    seconds: float = 30.0,
) -> EnvironmentReport:
    """Examine this machine, without importing torch, torch_npu or MindSpore into this process.

    Package metadata, the symbol tables of the vendors' libraries, files, device nodes and the
    variables of this process are read; every risky import runs in a process of its own.

    Parameters
    ----------
    target : str, optional
        One of tables/targets.csv. It decides what is demanded: for an Ascend target on a machine
        without an NPU the absence of the device is told, and is no error. By default whatever is
        installed is judged.
    probes : bool
        Whether to start other processes (imports, ``npu-smi``, the vendors' scripts): some seconds.
        Without them only files are read: well under a second.
    facts : Facts, optional
        A snapshot to judge instead of this machine.
    seconds : float
        The time limit of one import.

    Returns
    -------
    EnvironmentReport
        ``.ok``, ``.findings`` with what, why and the exact command, ``.show()`` as a checklist,
        ``.kernel_spec(name)`` and ``.env_script(path)`` to keep the vendors' variables.

    Raises
    ------
    MigrateError
        If there is no such target.

    Examples
    --------
    >>> report = check_environment("ascend910b", probes=False)
    >>> "npu-absent" in {check.id for check in report.checks} or bool(report.facts.devices)
    True
    """
    goal = Target() if target is None else find_target(target, "check_environment(target=)")
    if facts is None:
        facts = collect(probe=probes, seconds=seconds)
    return EnvironmentReport(facts, goal, judge(facts, goal))
