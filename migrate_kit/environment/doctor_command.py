"""The doctor as a command: ``migrate-kit doctor`` and ``python -m migrate_kit.environment``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migrate_kit.environment.doctor import check_environment
from migrate_kit.environment.verdict import CANNOT_RUN, FINE, FOUND
from migrate_kit.errors import MigrateError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from migrate_kit.environment.report import EnvironmentReport

EXIT_CODES = (
    "Exit code: 0 nothing is wrong, and the target can run here if one is named, 1 something is"
    " wrong, 2 wrong use, 3 a fault of this program, 4 nothing is wrong, but the target cannot run"
    " here (no device, or its software is absent): enough to rehearse; with --rehearse it is 0."
)


def examine(
    target: str | None,
    say: Callable[[str], object],
    *,
    probes: bool = True,
    every: bool = False,
    rehearse: bool = False,
    facts: Path | None = None,
    save: Path | None = None,
    kernel: str | None = None,
    env_script: Path | None = None,
    set_env: Sequence[Path] = (),
) -> int:
    """Examine this machine or a snapshot, say what was found line by line, return the exit code.

    Raises
    ------
    MigrateError
        If an argument is wrong or a file cannot be written; then nothing has been said.
    """
    report = check_environment(target, probes=probes, facts=facts)
    done = []
    if save is not None:
        report.facts.save(save)
        done.append(f"kept in {save}")
    done += _written(report, kernel, env_script, [str(s) for s in set_env] or None)
    for line in [*report.lines(every=every), *done]:
        say(line)
    if not report.ok:
        return FOUND
    return CANNOT_RUN if report.can_run is False and not rehearse else FINE


def _written(
    report: EnvironmentReport,
    kernel: str | None,
    env_script: Path | None,
    set_env: list[str] | None,
) -> list[str]:
    if set_env and kernel is None and env_script is None:
        raise MigrateError(
            "there is nothing to write the variables to",
            "--set-env",
            "add --env-script FILE or --kernel NAME",
        )
    done = []
    if kernel is not None:
        done.append(f"wrote {report.kernel_spec(kernel, set_env=set_env)}")
    if env_script is not None:
        done.append(f"wrote {report.env_script(env_script, set_env=set_env)}")
    return done
