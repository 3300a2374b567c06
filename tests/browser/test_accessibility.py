"""axe-core over the widget, in JupyterLab's own light and dark colours."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from migrate_kit.layers.rows import LayerRow
from migrate_kit.widgets import as_page

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "build/npm/node_modules/axe-core/axe.min.js"


@pytest.fixture(scope="session")
def axe() -> Path:
    path = Path(os.environ.get("MIGRATE_KIT_AXE", PLACE))
    if not path.exists():
        pytest.skip("no axe-core: npm install --prefix build/npm axe-core@4.14.1")
    return path


@pytest.fixture
def diff(fake_diff):
    verdicts = ["same", "look", "differs", "unpaired"]
    rows = [
        LayerRow(
            f"layers.{i}.attention.projection", kind="Linear", shape=(1, 8, 4, 4),
            R=10.0 ** (i % 4), verdict=verdicts[i % 4], origin="made here", bits=12.0,
            arithmetic="TF32/fp16", nan=(0, i % 3), note="A sentence about this layer.",
            channel="forward" if i % 2 else "gradient",
        )
        for i in range(300)
    ]  # fmt: skip
    reference = torch.randn(1, 8, 4, 4)
    candidate = reference + 0.1
    candidate[0, 3, 2, 1] = torch.nan
    shapes = (torch.ones(3), torch.ones(4))
    return fake_diff(rows, {1: shapes, 2: (reference, candidate), 3: (None, candidate)})


def scan(page, axe) -> None:
    """Fail with what axe says, where it says it."""
    if not page.evaluate("'axe' in window"):
        page.add_script_tag(path=axe)
    found = page.evaluate("axe.run('#here')")
    wrong = [
        (v["id"], v["help"], [(n["target"], n["failureSummary"]) for n in v["nodes"]][:3])
        for v in found["violations"]
    ]
    assert wrong == []
    assert len(found["passes"]) > 15  # it did look


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_violation_beside_each_other(bare, diff, page, axe, theme):
    w = bare(diff, theme=theme)
    scan(page, axe)  # nothing chosen yet
    w.click(2)
    w.grid.focus()
    for key in ("Home", "ArrowUp", "Enter"):  # pictures; a header is active and sorted
        page.keyboard.press(key)
    scan(page, axe)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_violation_below_each_other(bare, diff, page, axe, theme):
    w = bare(diff, theme=theme, width=700)
    w.root.get_by_role("button", name="All columns").click()
    w.click(1)  # shapes that differ
    scan(page, axe)
    w.root.get_by_role("searchbox").fill("no such layer")
    scan(page, axe)
    w.root.get_by_role("searchbox").fill("")
    w.click(0)  # no tensors
    scan(page, axe)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_violation_without_a_divergence(bare, fake_diff, page, axe, theme):
    bare(fake_diff([LayerRow("a"), LayerRow("b")]), theme=theme)
    scan(page, axe)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_violation_in_a_page_of_its_own(diff, page, axe, scheme, tmp_path):
    import html
    import re

    page.emulate_media(color_scheme=scheme)
    inner = re.search(r'srcdoc="(.*)"></iframe>', as_page(diff).data, re.DOTALL)[1]
    # axe itself is a script the page's own policy would rightly refuse.
    text = re.sub("<meta http-equiv[^>]*>", "", html.unescape(inner))
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    page.goto((tmp_path / "page.html").as_uri())
    page.get_by_role("button", name="First divergence").click()
    page.wait_for_selector(".mk-root[data-painted]")
    scan(page, axe)
