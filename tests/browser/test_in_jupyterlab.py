"""The widget in a real JupyterLab, on a real comparison, driven as a reader would."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import nbformat
import pytest
from fakes import colours
from lab import Notebook, running_lab, write_notebook
from playwright.sync_api import expect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Locator, Page

ROOT = Path(__file__).parents[2]
COMPARISON = """
import copy, torch, migrate_kit as mk
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(*(m for _ in range(12) for m in (nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())))
x = torch.randn(2, 8, 16, 16)
other = copy.deepcopy(model)
other[8].weight.data[3] *= 1.001
diff = mk.compare(mk.capture(model, x), mk.capture(other, x))
"""


@pytest.fixture
def book(page: Page, lab: Any) -> Iterator[Notebook]:
    notebook = Notebook(page, lab)
    write_notebook(lab.root / "diff.ipynb", COMPARISON, "diff.show()", "diff")
    yield notebook
    assert notebook.problems == []


def shown(page: Page) -> Locator:
    root = page.locator(".mk-root[data-ready=true]")
    expect(root).to_have_count(1, timeout=30_000)
    return root


def test_first_divergence_opens_its_detail(book: Notebook, page: Page) -> None:
    hosts: set[str | None] = set()
    page.on("request", lambda r: hosts.add(urlsplit(r.url.removeprefix("blob:")).hostname))
    book.open("diff.ipynb")
    book.run_all()
    root = shown(page)
    root.get_by_role("button", name="First divergence").click()
    chosen = root.locator('[data-row][aria-selected="true"]')
    expect(chosen).to_contain_text("differs")
    expect(chosen.locator('[data-cell="layer"]')).to_have_text("8")
    heat = root.locator("canvas").first
    expect(heat).to_be_visible()
    page.wait_for_function("c => c.width > 1", arg=heat.element_handle())
    assert colours(heat) > 20
    # Keys typed in the table neither add nor delete cells around it.
    cells = page.locator(".jp-Notebook .jp-Cell")
    before = cells.count()
    root.get_by_role("grid").focus()
    for key in ("a", "b", "d", "d", "End"):
        page.keyboard.press(key)
    expect(root.locator('[data-row][aria-selected="true"]')).to_contain_text("output")
    assert cells.count() == before
    assert hosts <= {"127.0.0.1", None}  # None: a data: address


def test_dark_theme_behind_a_prefix(page: Page, tmp_path: Path) -> None:
    """Hubs and ModelArts serve below a path of their own."""
    root = tmp_path / "root"
    root.mkdir()
    write_notebook(root / "diff.ipynb", COMPARISON, "diff.show()")
    env = {"PYTHONPATH": str(ROOT)}
    with running_lab(
        root, tmp_path / "lab", theme="JupyterLab Dark", base_url="/a1/notebook/", env=env
    ) as lab:
        book = Notebook(page, lab)
        book.open("diff.ipynb")
        book.run_all()
        ink, paper = shown(page).evaluate(
            "e => { const s = getComputedStyle(e); return [s.color, s.backgroundColor] }"
        )
        brightness = [sum(map(int, re.findall(r"\d+", c)[:3])) for c in (ink, paper)]
        assert brightness[0] > 450
        assert brightness[1] < 200
        assert book.problems == []


def test_a_published_notebook_shows_tables_before_anything_is_run(
    page: Page, tmp_path: Path
) -> None:
    """Also where the reader has run it before, so that JupyterLab trusts it."""
    root = tmp_path / "root"
    root.mkdir()
    shutil.copy(ROOT / "notebooks" / "07_layer_diff.ipynb", root / "lesson.ipynb")
    settings = {
        "JUPYTER_DATA_DIR": str(tmp_path / "lab" / "data"),
        "JUPYTER_CONFIG_DIR": str(tmp_path / "lab" / "config"),
    }
    trust = [sys.executable, "-m", "jupyter", "trust", str(root / "lesson.ipynb")]
    subprocess.run(trust, check=True, capture_output=True, env=os.environ | settings)
    with running_lab(root, tmp_path / "lab") as lab:
        book = Notebook(page, lab)
        book.open("lesson.ipynb")
        caption = page.locator(".jp-OutputArea-output table caption")
        expect(caption.filter(has_text="made here").first).to_be_attached(timeout=30_000)
        expect(page.get_by_text("model not found")).to_have_count(0)
        expect(page.locator(".mk-root")).to_have_count(0)


def test_as_page_is_live_without_any_extension(page: Page, lab: Any) -> None:
    book = Notebook(page, lab)
    write_notebook(lab.root / "page.ipynb", COMPARISON, "diff.as_page()")
    book.open("page.ipynb")
    book.run_all()
    frame = page.frame_locator(".jp-OutputArea-output iframe")
    frame.get_by_role("button", name="First divergence").click()
    expect(frame.locator('[data-row][aria-selected="true"]')).to_contain_text("differs")
    assert book.problems == []


def test_every_show_of_the_lessons_left_html_beside_it() -> None:
    for path in (ROOT / "notebooks").rglob("*.ipynb"):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code" and cell.source.rstrip().endswith(".show()"):
                assert any("text/html" in o.get("data", {}) for o in cell.outputs), cell.source
