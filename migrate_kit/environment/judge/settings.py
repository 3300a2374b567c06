"""Every environment variable that matters here, with what it does and the value it has."""

from __future__ import annotations

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
    for variable in variables():
        value = _value(facts, variable)
        if variable.group in sides or (value and variable.kind not in {"limit", "command"}):
            yield _explain(variable, value, facts)


def _value(facts: Facts, variable: Variable) -> str:
    if variable.kind == "limit":
        return facts.kernel.core_limit
    if variable.kind == "command":
        return ""
    return facts.kernel.environ.get(variable.name, "")


def _explain(variable: Variable, value: str, facts: Facts) -> Check:
    state: State = "ok"
    why = f"{variable.what}; {variable.why}"
    shown = value if len(value) <= 80 else f"{value[:77]}..."
    if variable.kind == "command":
        here = f"{facts.ascend.adc} sets it" if facts.ascend.adc else "there is no adc here"
        what = f"{variable.name}: {here}"
        if not facts.ascend.adc:
            why += "; CANN 5 and later read ASCEND_GLOBAL_LOG_LEVEL instead"
    elif not value:
        default = f" (default {variable.default})" if variable.default else ""
        what = f"{variable.name} is not set{default}"
    else:
        what = f"{variable.name} is {shown}"
        if variable.invalid(value):
            state = "warning"
            what += f", which is none of {', '.join(variable.values)}"
        elif variable.watched(value):
            # A limit is the system's own choice, not a fault of the user.
            state = "info" if variable.kind == "limit" else "warning"
            why = f"{variable.watch_why} ({variable.what})"
    return Check(
        f"variable-{variable.name}", _GROUP, state, what, why, variable.example, variable.source
    )
