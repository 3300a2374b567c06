"""The workbook's own stack: JupyterLab, ipywidgets, and both halves of anywidget."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from migrate_kit.environment.check import Check, pip_install

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migrate_kit.environment.facts import Facts
    from migrate_kit.targets import Target

_GROUP = "workbook"
_SOURCE = "measured: JupyterLab 3.2 to 4.6 with anywidget 0.9 and 0.11 on either side"
_ANYWIDGET, _MANAGER = "anywidget", "@jupyter-widgets/jupyterlab-manager"


def workbook_checks(facts: Facts, goal: Target) -> Iterator[Check]:
    """Judge whether live widgets will work; tables do in any case."""
    del goal
    names = ("jupyterlab", "ipywidgets", "anywidget")
    here = {n: facts.version(n) for n in names}
    lost = [n for n in names[1:] if not here[n]]
    if lost:
        yield Check(
            "workbook-widgets",
            _GROUP,
            "warning",
            f"{' and '.join(lost)} not installed",
            "results show as tables, without the live views",
            pip_install(facts, *lost),
            _SOURCE,
        )
        return
    said = ", ".join(f"{n} {v}" for n, v in here.items() if v)
    kernel = facts.kernel
    # The files that the server sees: the user's folder, and this environment's own if it is its.
    seen = dict(kernel.front_end_user)
    if not kernel.server:
        seen |= {k: v for k, v in kernel.front_end.items() if k not in seen}
    problem = _problem(seen, here["anywidget"])
    if problem:
        set_up = "import migrate_kit as mk; mk.setup_front_end()"
        yield Check(
            "workbook-front-end",
            _GROUP,
            "warning",
            problem,
            "live views show as a broken icon or as a table; the page must be reloaded after this",
            shlex.join([facts.host.executable or "python", "-c", set_up]),
            _SOURCE,
        )
    else:
        yield Check("workbook", _GROUP, "ok", f"{said}; both halves of the widgets are in place")


def _problem(seen: dict[str, str], ours: str) -> str:
    theirs = seen.get(_ANYWIDGET, "")
    if not theirs:
        return "JupyterLab does not have anywidget's front end"
    if _minor(theirs) != _minor(ours):
        return f"JupyterLab has anywidget {theirs}, this kernel {ours}: they must agree in 0.x"
    if _MANAGER not in seen:
        return "JupyterLab does not have the widget manager"
    return ""


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]
