"""What the doctor found: a checklist, the variables a kernel should have, and who writes them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate_kit.environment import compat, kernel_spec
from migrate_kit.environment.cann import set_env_scripts
from migrate_kit.environment.check import STATES
from migrate_kit.environment.places import as_path, is_file
from migrate_kit.environment.set_env import source_all
from migrate_kit.environment.verdict import lacking, sentence
from migrate_kit.errors import MigrateError
from migrate_kit.results import Result, plain, table_html

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import pandas as pd

    from migrate_kit.environment.check import Check
    from migrate_kit.environment.facts import Facts
    from migrate_kit.targets import Target

_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"


class EnvironmentReport(Result):
    """What :func:`check_environment` found.

    Attributes
    ----------
    target : str or None
        What the machine was judged for.
    checks : list of Check
        Every line of the checklist, the gravest first; ``ok`` ones too.
    findings : list of Fault
        The lines that are not ``ok``: what, why it matters, the command.
    lacking : list of str
        What a program for the target would miss here, as ``no NPU``; empty without a target.
    facts : Facts
        The snapshot; ``facts.save(path)`` keeps it, to be judged on another machine.
    """

    kind = "environment"

    def __init__(self, facts: Facts, goal: Target, checks: list[Check]) -> None:
        self.facts, self.target, self.checks = facts, goal.name or None, checks
        self.title = goal.title
        self.lacking = lacking(checks, facts, goal.frameworks) if goal.name else []
        self.findings = [check.fault() for check in checks if check.state != "ok"]

    @property
    def can_run(self) -> bool | None:
        """Whether the target can run here, and not only be rehearsed; None without a target."""
        return None if self.target is None else self.ok and not self.lacking

    def counts(self) -> dict[str, int]:
        """Return how many lines are in each state."""
        return {state: sum(c.state == state for c in self.checks) for state in STATES}

    def to_frame(self) -> pd.DataFrame:
        """Return one line a check: state, group, what, why, command, id, source."""
        import pandas as pd

        columns = ["state", "group", "what", "why", "command", "id", "source"]
        return pd.DataFrame([asdict(c) for c in self.checks], columns=columns)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return super().to_dict() | {
            "target": self.target,
            "can_run": self.can_run,
            "lacking": self.lacking,
            "counts": self.counts(),
            "table_checked": compat.checked(),
        }

    def show(self) -> Any:
        """Return the checklist with its copy buttons."""
        from migrate_kit.widgets.environment import EnvironmentWidget

        return EnvironmentWidget(self)

    def variables(self, set_env: Sequence[str | os.PathLike[str]] | None = None) -> dict[str, str]:
        """Return the variables that a kernel here should have and this process may lack.

        Parameters
        ----------
        set_env : sequence of path, optional
            The vendors' scripts to source, in order; by default those that were found.

        Raises
        ------
        MigrateError
            If a script is not there or cannot be sourced.
        """
        scripts = self._scripts() if set_env is None else _named(set_env)
        for script in scripts:
            if not is_file(Path(script)):
                raise MigrateError("no such script", script, "name the set_env.sh of your CANN")
        abi = self.facts.torch.cxx11_abi if self.facts.torch else ""
        found: dict[str, str] = {}
        for script, sourced in source_all(scripts, abi).items():
            if sourced.problem:
                raise MigrateError(
                    f"the script cannot be sourced: {sourced.problem}", script, f"bash -x {script}"
                )
            found |= sourced.changes
        if any(c.id == "torch-autoload" and c.state == "error" for c in self.checks) and not found:
            found[_AUTOLOAD] = "0"
        return found

    def kernel_spec(
        self,
        name: str,
        *,
        set_env: Sequence[str | os.PathLike[str]] | None = None,
        prefix: str | os.PathLike[str] | None = None,
        replace: bool = False,
    ) -> Path:
        """Write a Jupyter kernel of this Python that starts with the vendors' variables.

        Parameters
        ----------
        name : str
            The kernel's name: letters, digits, dots, dashes and underscores.
        set_env : sequence of path, optional
            Scripts to source; by default those that were found.
        prefix : path, optional
            An environment's prefix to write below; by default the user's Jupyter data folder.
        replace : bool
            Whether to replace a kernel of that name that this function did not write.

        Returns
        -------
        Path
            The kernel.json. Reload the page, then choose the kernel in JupyterLab.

        Raises
        ------
        MigrateError
            If there is nothing to set, or the file cannot be written.
        """
        found = self.variables(set_env)
        return kernel_spec.write_kernel(name, self._some(found), prefix=prefix, replace=replace)

    def env_script(
        self,
        path: str | os.PathLike[str],
        *,
        set_env: Sequence[str | os.PathLike[str]] | None = None,
    ) -> Path:
        """Write a shell script that sets the same variables; ``source`` it before Jupyter starts.

        Parameters
        ----------
        path : path
            The file to write.
        set_env : sequence of path, optional
            Scripts to source; by default those that were found.

        Raises
        ------
        MigrateError
            If there is nothing to set, or the file cannot be written.
        """
        file = as_path(path, "env_script(path)")
        return kernel_spec.write_script(file, self._some(self.variables(set_env)))

    def _some(self, found: dict[str, str]) -> dict[str, str]:
        if not found:
            raise MigrateError(
                "there are no variables to set: no set_env.sh was found here",
                "NEUWARE_HOME, ASCEND_HOME_PATH, /usr/local/Ascend",
                "name the script: --set-env /usr/local/Ascend/ascend-toolkit/set_env.sh"
                " (in Python: set_env=['...'])",
            )
        return found

    def _scripts(self) -> list[str]:
        return list(set_env_scripts(self.facts.ascend))

    def lines(self, *, every: bool = False) -> list[str]:
        """Return the checklist as lines for a terminal."""
        lines = [repr(self)]
        if self.target:
            lines.append(f"target   {self.target}: {self.title}")
        for c in self.checks:
            if c.state == "ok" and not every:
                continue
            lines.append(f"{c.state:<8} {c.what}  [{c.id}]")
            # What is in order needs nothing to be typed.
            typed = f"{'for example:' if c.state == 'ok' else '$'} {c.command}"
            lines += [f"         {text}" for text in (c.why, c.command and typed) if text]
        well = self.counts()["ok"]
        lines.append(f"{well} checks are in order" + ("" if every else "; --all lists them"))
        # Names and messages come from strangers: no control characters on a terminal.
        return [plain(line) for line in lines]

    def __repr__(self) -> str:
        return f"EnvironmentReport({sentence(self.target, self.checks, self.lacking)})"

    def _html(self) -> str:
        rows = [
            (c.state, c.group, c.what, c.why, c.command) for c in self.checks if c.state != "ok"
        ]
        well = self.counts()["ok"]
        note = f"{well} checks are in order; versions from the table of {compat.checked()}"
        head = ("state", "about", "what", "why it matters", "command")
        return table_html(repr(self), head, [*rows, ("ok", "", note, "", "")])


def _named(scripts: object) -> list[str]:
    # One script in place of a list of them is what is meant, and not its letters.
    listed = scripts if isinstance(scripts, list | tuple) else [scripts]
    return [str(as_path(script, "set_env=")) for script in listed]
