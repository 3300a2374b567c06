"""The doctor's checklist: every line with its reason and a command to copy."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import traitlets

from migrate_kit.errors import MigrateError
from migrate_kit.widgets.view import View, joined, page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from IPython.display import HTML

_SCRIPTS = ("text.js", "clipboard.js", "environment.js")
_MOST_TEXT, _MOST_LINES = 2000, 500
_PAGE_HEIGHT = 640


class ShownCheck(Protocol):
    """One line of the checklist."""

    @property
    def state(self) -> str:
        """Error, warning, info or ok."""

    @property
    def group(self) -> str:
        """What it is about."""

    @property
    def what(self) -> str:
        """What was found."""

    @property
    def why(self) -> str:
        """Why it matters."""

    @property
    def command(self) -> str:
        """What to type."""


class ShownReport(Protocol):
    """A report with the actions that the view offers."""

    @property
    def checks(self) -> Sequence[ShownCheck]:
        """The lines, the gravest first."""

    @property
    def target(self) -> str | None:
        """What the machine was judged for."""

    def kernel_spec(self, name: str, /) -> Path:
        """Write a kernel."""

    def env_script(self, path: str, /) -> Path:
        """Write a script."""

    def _repr_html_(self) -> str: ...


def script() -> str:
    """Return the widget's JavaScript as one module."""
    return joined(*_SCRIPTS)


def style() -> str:
    """Return the widget's style sheet."""
    return joined("theme.css", "environment.css")


class EnvironmentWidget(View):
    """Show a report as a checklist whose commands can be copied.

    Parameters
    ----------
    report : EnvironmentReport
        The report; the two buttons call its ``kernel_spec`` and ``env_script``.
    """

    _esm: ClassVar[str] = script()
    _css: ClassVar[str] = style()

    checks = traitlets.Unicode("").tag(sync=True)
    live = traitlets.Bool(default_value=True).tag(sync=True)
    request = traitlets.Dict({"number": 0, "action": "", "name": ""}).tag(sync=True)
    answer = traitlets.Unicode("").tag(sync=True)

    def __init__(self, report: ShownReport) -> None:
        self._report = report
        super().__init__(checks=checks_of(report))

    @traitlets.observe("request")
    def _act(self, change: Mapping[str, Any]) -> None:
        asked = change["new"]
        number, action, name = (asked.get(k) for k in ("number", "action", "name"))
        # It comes from a browser, and a saved notebook may hold anything.
        if not isinstance(number, int) or not isinstance(name, str):
            return
        actions = {"kernel": self._kernel, "script": self._script}
        if isinstance(action, str) and action in actions:
            well, text = actions[action](name)
            self.answer = json.dumps({"number": number, "ok": well, "text": text[:_MOST_TEXT]})

    def _kernel(self, name: str) -> tuple[bool, str]:
        try:
            path = self._report.kernel_spec(name)
        except MigrateError as error:
            return False, str(error)
        return True, f"wrote {path}: reload the page, then choose the kernel"

    def _script(self, _: str) -> tuple[bool, str]:
        try:
            path = self._report.env_script("env.sh")
        except MigrateError as error:
            return False, str(error)
        return True, f"wrote {path}: source it before Jupyter starts"

    def __repr__(self) -> str:
        # anywidget's own holds a memory address, which no two runs of a notebook share.
        return repr(self._report)

    def _static_html(self) -> str:
        return self._report._repr_html_()


def checks_of(report: ShownReport) -> str:
    """Return the checklist as JSON."""
    keys = ("state", "group", "what", "why", "command")
    lines = [[str(getattr(c, k))[:_MOST_TEXT] for k in keys] for c in report.checks[:_MOST_LINES]]
    title = f"Environment for {report.target}" if report.target else "Environment"
    return json.dumps({"title": title, "lines": lines}, ensure_ascii=False)


def as_page(report: ShownReport) -> HTML:
    """Return the same checklist as one self-contained output: no widget manager, no kernel.

    The two buttons that write files are left out; ``report.kernel_spec`` does the same.

    Returns
    -------
    IPython.display.HTML
        A sandboxed frame that can load nothing and reach nothing.
    """
    from IPython.display import HTML

    state = {"checks": checks_of(report), "live": False, "answer": "", "request": {}}
    text = page("Environment", script(), style(), "environment_page.js", state)
    return HTML(
        "<div><iframe title='Environment' sandbox='allow-scripts' allow='clipboard-write'"
        f" width='100%' height='{_PAGE_HEIGHT}' style='border:0' srcdoc=\"{html.escape(text)}\">"
        f"</iframe><p>{html.escape(repr(report))}</p></div>"
    )
