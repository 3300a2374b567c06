"""Judge a snapshot: pure functions from facts to checks, so that any machine's can be judged."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

from migrate_kit.environment.check import STATES
from migrate_kit.environment.judge.ascend import ascend_checks
from migrate_kit.environment.judge.cambricon import cambricon_checks
from migrate_kit.environment.judge.damage import damage_checks
from migrate_kit.environment.judge.host import host_checks
from migrate_kit.environment.judge.imports import with_imports
from migrate_kit.environment.judge.libraries import library_checks
from migrate_kit.environment.judge.pairs import pair_checks
from migrate_kit.environment.judge.settings import setting_checks
from migrate_kit.environment.judge.wheels import wheel_checks
from migrate_kit.environment.judge.workbook import workbook_checks

if TYPE_CHECKING:
    from migrate_kit.environment.check import Check
    from migrate_kit.environment.facts import Facts
    from migrate_kit.targets import Target

__all__ = ["judge"]
_SPELLED = "backslashreplace"


def judge(facts: Facts, goal: Target) -> list[Check]:
    """Return every check that applies, the gravest first."""
    causes = [
        check
        for rule in (
            *(
                damage_checks,
                library_checks,
                pair_checks,
                wheel_checks,
                ascend_checks,
                cambricon_checks,
            ),
            *(host_checks, workbook_checks, setting_checks),
        )
        for check in rule(facts, goal)
    ]
    checks = map(_as_unicode, with_imports(causes, facts, goal))
    return sorted(checks, key=lambda check: STATES.index(check.state))


def _as_unicode(check: Check) -> Check:
    """Spell out bytes that are no UTF-8: no page and no widget takes the surrogates they are."""
    said = {f.name: getattr(check, f.name) for f in fields(check)}
    try:
        "".join(said.values()).encode()
    except UnicodeEncodeError:
        return replace(check, **{k: v.encode("utf-8", _SPELLED).decode() for k, v in said.items()})
    return check
