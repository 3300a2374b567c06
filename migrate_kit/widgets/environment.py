"""The doctor's checklist: every line with its reason and a command to copy."""

from __future__ import annotations

import base64
import html
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import anywidget
import traitlets

from migrate_kit.errors import MigrateError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from IPython.display import HTML

_STATIC = Path(__file__).parent / "static"
_SCRIPTS = ("text.js", "environment.js")
_EXPORT = "export default { render };"
_MOST_TEXT, _MOST_LINES = 2000, 500
_PAGE_HEIGHT = 640
# What a page of its own has in place of a kernel.
_HOST = """
const kept = document.querySelector("#data").textContent;
const bytes = Uint8Array.from(atob(kept), (c) => c.charCodeAt(0));
const state = JSON.parse(new TextDecoder().decode(bytes));
const scheme = matchMedia("(prefers-color-scheme: dark)");
const theme = () => document.body.classList.toggle("mk-page-dark", scheme.matches);
theme();
scheme.addEventListener("change", theme);
const model = { get: (k) => state[k], set() {}, on() {}, off() {}, save_changes() {} };
render({ model, el: document.querySelector("#here") });
"""


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
    return "\n".join((_STATIC / name).read_text(encoding="utf-8") for name in _SCRIPTS)


def style() -> str:
    """Return the widget's style sheet."""
    return (_STATIC / "environment.css").read_text(encoding="utf-8")


class EnvironmentWidget(anywidget.AnyWidget):
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

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        return data | {"text/html": self._report._repr_html_()}, metadata


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
    data = base64.b64encode(json.dumps(state).encode()).decode()
    page = (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none';"
        " script-src 'unsafe-inline'; style-src 'unsafe-inline'\">"
        f"<title>Environment</title><style>{style()}</style></head><body class='mk-page'>"
        f"<main id='here'></main><script id='data' type='text/plain'>{data}</script>"
        f"<script type='module'>{script().replace(_EXPORT, '')}\n{_HOST}</script></body></html>"
    )
    return HTML(
        "<div><iframe title='Environment' sandbox='allow-scripts' allow='clipboard-write'"
        f" width='100%' height='{_PAGE_HEIGHT}' style='border:0' srcdoc=\"{html.escape(page)}\">"
        f"</iframe><p>{html.escape(repr(report))}</p></div>"
    )
