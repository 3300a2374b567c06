"""Chromium, a bare page that stands in for Jupyter's, and one JupyterLab a session."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # fakes.py and lab.py lie beside this file

from fakes import FakeDiff, rows_of, tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Locator, Page

ROOT = Path(__file__).parents[2]
# fmt: off
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]
# fmt: on


def chromium() -> str | None:
    named = os.environ.get("MIGRATE_KIT_CHROMIUM")
    places = [named] if named else ["/usr/bin/chromium", shutil.which("chromium")]
    return next((p for p in places if p and Path(p).exists()), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
            if chromium() is None:
                reason = "no Chromium: install it or set MIGRATE_KIT_CHROMIUM"
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def base_url() -> None:
    """Stand in for pytest-base-url's fixture, which pytest 9.2 calls deprecated."""


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    return browser_type_launch_args | {"executable_path": chromium(), "args": FLAGS}


@pytest.fixture(scope="session")
def browser_context_args(browser_context_args: dict[str, Any]) -> dict[str, Any]:
    return browser_context_args | {"viewport": {"width": 1280, "height": 900}}


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Serve a copy of the notebooks: a test may save, a checkout stays as it is."""
    from lab import running_lab

    root = tmp_path_factory.mktemp("lab-root")
    if (ROOT / "notebooks").is_dir():
        shutil.copytree(ROOT / "notebooks", root / "notebooks")
    path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH")) if p)
    work = tmp_path_factory.mktemp("lab")
    with running_lab(root, work, env={"PYTHONPATH": path}) as running:
        yield running


@pytest.fixture
def fake_diff() -> Callable[..., FakeDiff]:
    return FakeDiff


# The stand-in has the five calls that anywidget allows a script: get, set, save_changes, on, off.
# Python's answers are given by the test: `answer()` gives the one to the newest request.
HOST = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>bare page</title>
<style>%(theme)s</style><style>body{margin:8px;background:var(--jp-layout-color0)}%(css)s</style>
</head><body data-jp-theme-light="%(light)s"><main id="here"></main>
<script type="module">
class Model {
  constructor(state) { this.state = state; this.handlers = {}; this.saved = []; this.dirty = {} }
  get(k) { return this.state[k] }
  set(k, v) { this.dirty[k] = v; if (this.state[k] !== v) { this.state[k] = v; this.fire(k) } }
  save_changes() { this.saved.push(this.dirty); this.dirty = {}; window.onsave?.() }
  on(e, f) { (this.handlers[e] ??= new Set()).add(f) }
  off(e, f) { this.handlers[e]?.delete(f) }
  fire(k) { for (const f of this.handlers['change:' + k] ?? []) f() }
  count() { return Object.values(this.handlers).reduce((n, s) => n + s.size, 0) }
}
window.observers = 0;
for (const name of ['ResizeObserver', 'MutationObserver']) {
  const { observe, disconnect } = window[name].prototype;
  window[name].prototype.observe = function (...a) { observers++; return observe.apply(this, a) };
  window[name].prototype.disconnect = function () { observers--; return disconnect.call(this) };
}
window.model = new Model(%(state)s);
model.state.detail = new DataView(new ArrayBuffer(0));
window.give = (text) => {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const padded = new ArrayBuffer(bytes.length + 1); // an offset that no Float32Array accepts
  new Uint8Array(padded, 1).set(bytes);
  model.set('detail', new DataView(padded, 1));
};
const url = URL.createObjectURL(new Blob([%(esm)s], { type: 'text/javascript' }));
const { default: widget } = await import(url);
window.view = (el) => widget.render({ model, el });
window.cleanup = view(document.querySelector('#here'));
</script></body></html>"""


# A stand-in with the five calls that anywidget allows a script.
PLAIN_HOST = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>bare page</title>
<style>%(theme)s</style><style>body{margin:8px;background:var(--jp-layout-color0)}%(css)s</style>
</head><body data-jp-theme-light="%(light)s"><main id="here"></main>
<script type="module">
class Model {
  constructor(state) { this.state = state; this.handlers = {}; this.saved = [] }
  get(k) { return this.state[k] }
  set(k, v) { this.state[k] = v; for (const f of this.handlers['change:' + k] ?? []) f() }
  save_changes() { this.saved.push(this.state.request) }
  on(e, f) { (this.handlers[e] ??= new Set()).add(f) }
  off(e, f) { this.handlers[e]?.delete(f) }
  count() { return Object.values(this.handlers).reduce((n, s) => n + s.size, 0) }
}
window.model = new Model(%(state)s);
const url = URL.createObjectURL(new Blob([%(esm)s], { type: 'text/javascript' }));
const { default: widget } = await import(url);
window.cleanup = widget.render({ model, el: document.querySelector('#here') });
</script></body></html>"""


def fill(page: Page, host: str, room: Any, state: dict[str, Any], theme: str) -> None:
    """Put a view into the bare page ``host``: the script and style of its module, and its state."""
    page.set_content(
        host
        % {
            "theme": theme_css(theme),
            "light": str(theme == "light").lower(),
            "css": room.style(),
            "state": json.dumps(state).replace("</", "<\\/"),
            "esm": json.dumps(room.script()).replace("</", "<\\/"),
        }
    )


def theme_css(name: str) -> str:
    """Return JupyterLab's own theme, so that contrast is checked against the real colours."""
    path = "share/jupyter/lab/themes/@jupyterlab/theme-%s-extension/index.css"
    file = Path(sys.prefix) / (path % name)
    # What it loads over the network, such as fonts, plays no part here.
    return re.sub(r"url\([^)]*\)", "none", file.read_text()) if file.exists() else ""


@dataclass
class Bare:
    """A widget in a page of its own."""

    page: Page
    diff: FakeDiff
    root: Locator
    problems: list[str]

    @property
    def grid(self) -> Locator:
        return self.root.get_by_role("grid")

    @property
    def status(self) -> Locator:
        return self.root.get_by_role("status")

    def row(self, i: int) -> Locator:
        return self.root.locator(f'[data-row="{i}"]')

    def shown(self) -> list[int]:
        """Return the rows that are elements of the page, from the top."""
        return self.root.locator("[data-row]").evaluate_all(
            "rows => rows.map(r => Number(r.dataset.row))"
        )

    def request(self) -> dict[str, int]:
        return self.page.evaluate("model.get('request')")

    def answer(self, row: int | None = None, number: int | None = None) -> None:
        """Give Python's answer to the newest request, or to the one that is named."""
        from migrate_kit.widgets import wire

        asked = self.request()
        row = asked["row"] if row is None else row
        packed = wire.answer(self.diff, row, asked["number"] if number is None else number)
        self.page.evaluate("give", base64.b64encode(packed).decode())

    def click(self, i: int) -> None:
        self.row(i).click()
        self.answer()


@pytest.fixture
def bare(page: Page) -> Iterator[Callable[..., Bare]]:
    """Open a comparison in the bare page; a script error anywhere fails the test."""
    from migrate_kit.widgets import layer_diff

    problems: list[str] = []
    page.on("pageerror", lambda e: problems.append(str(e)))
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)

    def open_page(diff: FakeDiff, *, theme: str = "light", width: int = 1280) -> Bare:
        page.set_viewport_size({"width": width, "height": 900})
        table = layer_diff.table_of(diff)
        state = {"table": table, "selected": -1, "request": {"number": 0, "row": -1}}
        fill(page, HOST, layer_diff, state, theme)
        root = page.locator(".mk-root[data-ready=true]")
        root.wait_for()
        return Bare(page, diff, root, problems)

    yield open_page
    assert problems == []


@pytest.fixture
def widget(bare: Callable[..., Bare]) -> Bare:
    """Open 500 layers, every one with tensors."""
    return bare(FakeDiff(rows_of(), tensors_of()))


@pytest.fixture
def scan(page: Page) -> Callable[[int], None]:
    """Return a check that axe-core finds nothing wrong in #here, and that it did look."""
    place = ROOT / "build/npm/node_modules/axe-core/axe.min.js"
    axe = Path(os.environ.get("MIGRATE_KIT_AXE", place))
    if not axe.exists():
        pytest.skip("no axe-core: npm install --prefix build/npm axe-core@4.14.1")

    def scan_(more_rules_than: int) -> None:
        if not page.evaluate("'axe' in window"):
            page.add_script_tag(path=axe)
        found = page.evaluate("axe.run('#here')")
        wrong = [
            (v["id"], v["help"], [(n["target"], n["failureSummary"]) for n in v["nodes"]][:3])
            for v in found["violations"]
        ]
        assert wrong == []
        assert len(found["passes"]) > more_rules_than

    return scan_
