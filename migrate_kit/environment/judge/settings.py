"""Every environment variable that matters here, with what it does and the value it has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from migrate_kit.environment.check import Check
from migrate_kit.environment.variables import variables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migrate_kit.environment.check import State
    from migrate_kit.environment.facts import Facts
    from migrate_kit.environment.variables import Variable
    from migrate_kit.targets import Target

_GROUP = "variables"


def setting_checks(facts: Facts, goal: Target) -> Iterator[Check]:
    """Explain the variables of the sides that are wanted or installed."""
    sides = {"torch", "machine"}
    if goal.ascend or facts.version("torch-npu") or facts.ascend.cann:
        sides.add("ascend")
    if goal.cambricon or facts.version("torch-mlu") or facts.cambricon.home:
        sides.add("cambricon")
    if facts.version("mindspore"):
        sides.add("mindspore")
    for name, problem in facts.kernel.lost.items():
        yield Check(
            f"folder-{name}",
            _GROUP,
            "warning",
            f"{name} names a folder that cannot be reached: {problem}",
            "what lies there is taken to be absent, here and by the programs that look there",
            f'ls -ld "${name}"',
        )
    for variable in variables():
        value = _value(facts, variable)
        if variable.group in sides or (value and variable.kind not in {"limit", "command"}):
            yield _of_the_target(_explain(variable, value, facts), variable, value, goal)


def _value(facts: Facts, variable: Variable) -> str:
    if variable.kind == "limit":
        return facts.kernel.core_limit
    if variable.kind == "command":
        return ""
    return facts.kernel.environ.get(variable.name, "")


def _of_the_target(check: Check, variable: Variable, value: str, goal: Target) -> Check:
    """Say of a variable that has no effect on the target that it has none, and warn of nothing."""
    if goal.name not in variable.without:
        return check
    is_set = f"is {value}" if value else "is not set"
    what = f"{variable.name} {is_set}, and has no effect on {goal.name}"
    why = f"{variable.what}; {variable.without_why}"
    return replace(check, state="ok", what=what, why=why, command="")


def _explain(variable: Variable, value: str, facts: Facts) -> Check:
    state: State = "ok"
    why = f"{variable.what}; {variable.why}"
    command = variable.example
    shown = value if len(value) <= 80 else f"{value[:77]}..."
    if variable.kind == "command":
        here = f"{facts.ascend.adc} sets it" if facts.ascend.adc else "there is no adc here"
        what = f"{variable.name}: {here}"
        if not facts.ascend.adc:
            why += "; CANN 5 and later read ASCEND_GLOBAL_LOG_LEVEL instead"
    elif not value:
        what = f"{variable.name} is not set"
        if script := _absent_script(variable, facts):
            # Nothing to do: the script that sets it is not here either.
            what, command = f"{what} (no {script} here)", ""
        elif variable.default:
            what += f" (default {variable.default})"
    else:
        what = f"{variable.name} is {shown}"
        if variable.invalid(value):
            state = "warning"
            what += f", which is none of {', '.join(variable.values)}"
        elif variable.watched(value):
            # A limit is the system's own choice, not a fault of the user.
            state = "info" if variable.kind == "limit" else "warning"
            why = f"{variable.watch_why} ({variable.what})"
    return Check(f"variable-{variable.name}", _GROUP, state, what, why, command, variable.source)


def _absent_script(variable: Variable, facts: Facts) -> str:
    """Return whose script would set a variable, where that software is not installed."""
    if variable.group == "ascend" and variable.kind == "set_env" and not facts.ascend.cann:
        return "CANN"
    if variable.kind == "set_env_nnal" and not facts.ascend.nnal:
        return "NNAL"
    if variable.group == "cambricon" and variable.kind == "set_env" and not facts.cambricon.home:
        return "Neuware"
    return ""
