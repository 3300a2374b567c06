"""axe-core over the widget, in JupyterLab's own light and dark colours."""

from __future__ import annotations

import pytest
import torch

from migrate_kit.layers.rows import LayerRow
from migrate_kit.widgets import as_page


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


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_violation_beside_each_other(bare, diff, page, scan, theme):
    w = bare(diff, theme=theme)
    scan(15)  # nothing chosen yet
    w.click(2)
    w.grid.focus()
    for key in ("Home", "ArrowUp", "Enter"):  # pictures; a header is active and sorted
        page.keyboard.press(key)
    scan(15)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_violation_below_each_other(bare, diff, page, scan, theme):
    w = bare(diff, theme=theme, width=700)
    w.root.get_by_role("button", name="All columns").click()
    w.click(1)  # shapes that differ
    scan(15)
    w.root.get_by_role("searchbox").fill("no such layer")
    scan(15)
    w.root.get_by_role("searchbox").fill("")
    w.click(0)  # no tensors
    scan(15)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_violation_without_a_divergence(bare, fake_diff, page, scan, theme):
    bare(fake_diff([LayerRow("a"), LayerRow("b")]), theme=theme)
    scan(15)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_violation_in_a_page_of_its_own(diff, page, scan, scheme, tmp_path):
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
    scan(15)
