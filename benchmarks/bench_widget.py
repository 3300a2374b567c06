"""How long a reader waits for the layer table, in a real JupyterLab in Chromium.

Two waits, each the median of five: from running the cell until the table of 2,000 rows is painted,
and from a click on a layer of ten million float32 elements, mapped from a trace on disk, until its
detail is painted. The traces are in the page cache.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figure import Figure, at_most, plain_table
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "browser"))

from conftest import FLAGS, chromium  # noqa: E402 - the same browser as in the tests
from lab import Notebook, running_lab, write_notebook  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Page, WebSocket

REPEATS = 5
TABLE_LIMIT, DETAIL_LIMIT, SIZE_LIMIT = 1000, 500, 1000  # ms, ms, kB
# Rows 1 to 6 hold ten million elements each and differ everywhere; 2,000 rows altogether.
SETUP = """
import copy
from collections import OrderedDict
import torch
from torch import nn
import migrate_kit as mk

torch.manual_seed(0)
wide = [nn.Conv2d(1, 64, 1), *(nn.Hardswish() for _ in range(5)), nn.AdaptiveAvgPool2d(4)]
deep = {f"encoder_layer_{i}_projection": nn.Conv2d(64, 64, 1) for i in range(1991)}
model = nn.Sequential(nn.Sequential(*wide), nn.Sequential(OrderedDict(deep)))
other = copy.deepcopy(model)
other[0][0].weight.data *= 1 + 1e-5
x = torch.randn(1, 1, 250, 625)
traces = [mk.capture(m, x, store=name) for m, name in ((model, "a"), (other, "b"))]
diff = mk.compare(*traces)
assert len(diff.rows) == 2000
assert all(row.shape == (1, 64, 250, 625) for row in diff.rows[1:7])
"""
SHOW = "diff.show()"

# Two frames after the last change of the page, what was drawn is on the screen.
PAINTED = """
const painted = async (ready) => {
  while (!ready()) await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
};"""
RUN_CELL = f"""async () => {{ {PAINTED}
  for (const old of document.querySelectorAll('.mk-root')) old.classList.add('old');
  const start = performance.now();
  window.jupyterapp.commands.execute('notebook:run-cell');
  await painted(() => document.querySelector('.mk-root:not(.old) [data-row]')?.clientHeight);
  return performance.now() - start }}"""
CLICK = f"""async (row) => {{ {PAINTED}
  const root = document.querySelector('.mk-root');
  const start = performance.now();
  root.querySelector(`[data-row="${{row}}"]`).click();
  await painted(() => root.dataset.row === String(row));
  return performance.now() - start }}"""


def main() -> list[Figure]:
    """Measure; about a minute, half of it to make the two traces and to start."""
    program = chromium()
    if program is None:
        raise RuntimeError("no Chromium: install it or set MIGRATE_KIT_CHROMIUM")
    with tempfile.TemporaryDirectory(prefix="migrate-kit-bench-") as name:
        work = Path(name)
        root = work / "root"
        root.mkdir()
        write_notebook(root / "bench.ipynb", SETUP, SHOW)
        with (
            running_lab(root, work, env={"PYTHONPATH": str(ROOT)}) as lab,
            sync_playwright() as playwright,
        ):
            browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
            try:
                page = browser.new_page(viewport={"width": 1280, "height": 900})
                table, detail = _waits(page, lab)
            finally:
                browser.close()
    return [
        *_figures("widget, 2,000 rows", "cell run to painted", TABLE_LIMIT, table),
        *_figures("widget, detail of 10M elements", "click to painted", DETAIL_LIMIT, detail),
    ]


def _waits(page: Page, lab: Any) -> tuple[list[tuple[float, int]], list[tuple[float, int]]]:
    """Return the milliseconds and the bytes received, of each table and of each detail."""
    received: list[int] = []

    def count(frame: str | bytes) -> None:
        received.append(len(frame.encode() if isinstance(frame, str) else frame))

    def watch(socket: WebSocket) -> None:
        socket.on("framereceived", count)

    def timed(script: str, row: int | None = None) -> tuple[float, int]:
        page.wait_for_timeout(500)
        received.clear()
        spent = page.evaluate(script, row)
        page.wait_for_timeout(100)
        return spent, sum(received)

    page.on("websocket", watch)
    notebook = Notebook(page, lab)
    notebook.open("bench.ipynb")
    notebook.run_all()  # afterwards the last cell is the active one
    page.wait_for_selector(".mk-root[data-ready=true]")
    table = [timed(RUN_CELL) for _ in range(REPEATS)]
    page.evaluate(CLICK, 1)  # brings code and files into their caches
    detail = []
    for row in range(2, 2 + REPEATS):
        detail.append(timed(CLICK, row))
        # A detail that could not be read is painted fast, too.
        said = page.locator(".mk-root").get_by_role("status").inner_text()
        if not said.endswith("Details shown."):
            raise RuntimeError(f"the widget says: {said}")
    if notebook.problems:
        raise RuntimeError(f"the page reports: {notebook.problems[0]}")
    return table, detail


def _figures(what: str, wait: str, limit: float, seen: list[tuple[float, int]]) -> list[Figure]:
    spent = statistics.median(ms for ms, _ in seen)
    size = statistics.median(count for _, count in seen) / 1000
    target, passed = at_most(limit, spent)
    size_target, small = at_most(SIZE_LIMIT, size)
    return [
        Figure(f"{what}: {wait}", spent, "ms", target, passed=passed),
        Figure(f"{what}: sent to the browser", size, "kB", size_target, passed=small),
    ]


if __name__ == "__main__":
    print(plain_table(main()))
