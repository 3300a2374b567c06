"""The widget's JavaScript in a bare page with a stand-in model, then once in a real JupyterLab.

The table has test_widget_table.py to itself.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import torch
from fakes import HOSTILE, colours, rows_of, tensors_of
from playwright.sync_api import expect

from migrate_kit.layers.rows import LayerRow
from migrate_kit.widgets import as_page

if TYPE_CHECKING:
    from collections.abc import Callable

# --- asking and answering ---


def test_a_click_asks_once_and_the_answer_is_drawn(widget, page):
    assert page.evaluate("model.saved") == []
    widget.row(3).click()
    assert page.evaluate("model.saved") == [{"selected": 3, "request": {"number": 1, "row": 3}}]
    detail = widget.root.get_by_role("region", name="Layer detail")
    expect(detail).to_have_attribute("aria-busy", "true")
    widget.answer()
    expect(detail).to_have_attribute("aria-busy", "false")
    expect(widget.root.locator(".mk-title")).to_have_text("layers.3.conv")
    expect(widget.root.locator(".mk-message")).to_have_text(
        "128 of 128 elements differ; largest difference 4.00e−3."
    )
    expect(widget.status).to_have_text("layers.3.conv: look, R 4.00. Details shown.")
    assert colours(widget.root.locator(".mk-heat")) > 60
    assert colours(widget.root.locator(".mk-histogram")) > 3
    assert colours(widget.root.locator(".mk-scatter")) > 3
    assert widget.root.locator(".mk-worst tbody tr").count() == 20
    first = widget.root.locator(".mk-worst tbody tr").first.locator("td")
    assert first.all_inner_texts()[0] in {"[0, 0, 0, 0]", "[0, 7, 3, 3]"}
    label = widget.root.locator(".mk-heat").get_attribute("aria-label")
    assert "candidate − reference, one element a cell" in label
    assert "8 channels (axis 1)" in label
    assert "16 positions (axes 2, 3)" in label


def test_a_late_answer_to_an_old_question_is_dropped(widget):
    widget.row(3).click()
    widget.row(4).click()
    widget.answer(row=3, number=1)
    expect(widget.root.locator(".mk-title")).to_be_hidden()
    widget.answer(row=4, number=2)
    expect(widget.root.locator(".mk-title")).to_have_text("layers.4.conv")
    widget.answer(row=3, number=1)
    expect(widget.root.locator(".mk-title")).to_have_text("layers.4.conv")


def test_a_failure_in_python_is_a_sentence_and_a_second_click_tries_again(widget, page):
    tensors = widget.diff.tensors
    widget.diff.tensors = lambda i: 1 / 0
    widget.click(5)
    expect(widget.status).to_contain_text("ZeroDivisionError")
    expect(widget.root.locator(".mk-heat")).to_be_hidden()
    widget.diff.tensors = tensors
    widget.click(5)
    expect(widget.root.locator(".mk-heat")).to_be_visible()
    widget.row(5).click()  # it is shown: nothing to ask
    assert page.evaluate("model.saved.filter((s) => s.request).length") == 2


def test_no_kernel_is_said_at_once(widget, page):
    page.evaluate("document.querySelector('#here').classList.add('jupyter-widgets-disconnected')")
    widget.row(1).click()
    # Long before a busy kernel would be suspected.
    expect(widget.status).to_have_text("No kernel: run the cell again.", timeout=1500)


def test_an_answer_that_does_not_come_is_said_after_a_while(widget):
    widget.row(1).click()
    expect(widget.status).to_contain_text("run the cell again", timeout=6000)
    widget.answer()
    expect(widget.status).to_contain_text("Details shown")


def test_layers_without_tensors_or_with_other_shapes(bare, fake_diff):
    rows = [LayerRow("none", R=3.0), LayerRow("shapes"), LayerRow("empty"), LayerRow("bad")]
    bad = torch.zeros(4, 4)
    bad[1, 2] = torch.nan
    pairs = {
        1: (torch.ones(3), torch.ones(4)),
        2: (torch.ones(0, 3), torch.ones(0, 3)),
        3: (torch.zeros(4, 4), bad),
    }
    w = bare(fake_diff(rows, pairs))
    message, heat = w.root.locator(".mk-message"), w.root.locator(".mk-heat")
    w.click(0)
    expect(message).to_contain_text("tensors=True")
    expect(w.root.locator(".mk-facts")).to_contain_text("R 3.00")
    w.click(1)
    expect(message).to_contain_text("The shapes differ: 3 against 4")
    expect(w.root.locator(".mk-histogram")).to_be_visible()
    expect(heat).to_be_hidden()
    w.click(2)
    expect(message).to_contain_text("empty")
    w.click(3)
    expect(message).to_contain_text("candidate: 1 NaN, 0 Inf; 1 place not alike")
    expect(w.root.locator(".mk-odd")).to_be_visible()
    expect(w.root.locator(".mk-not-finite")).to_have_text("[1, 2]0nannot finite")
    # The only cell that is not finite has the colour that no scale has.
    amber = heat.evaluate("""c => {
      const x = Math.round(c.width * 2.5 / 4), y = Math.round(c.height * 1.1 / 4);
      return Array.from(c.getContext('2d').getImageData(x, y, 1, 1).data) }""")
    assert amber == [0xF9, 0xA8, 0x25, 255]


def test_the_pointer_reads_cells(widget):
    widget.click(9)
    heat = widget.root.locator(".mk-heat")
    box = heat.bounding_box()
    heat.hover(position={"x": box["width"] - 4, "y": box["height"] - 4})
    expect(widget.root.locator(".mk-readout")).to_have_text("channel 7, position 15: 0.0100")


# --- views, themes, cleaning up ---


def test_two_views_of_one_model(widget, page):
    page.evaluate("""() => {
      const el = document.createElement('div');
      document.body.append(el);
      window.second = view(el) }""")
    roots = page.locator(".mk-root")
    expect(roots).to_have_count(2)
    roots.nth(1).locator('[data-row="6"]').click()
    widget.answer()
    for i in (0, 1):
        expect(roots.nth(i).locator(".mk-title")).to_have_text("layers.6.conv")
        expect(roots.nth(i).locator('[data-row="6"]')).to_have_attribute("aria-selected", "true")
    roots.nth(0).get_by_role("grid").focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_timeout(300)
    assert widget.request() == {"number": 2, "row": 7}  # asked once, by the view that moved
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    # A view made now shows what the others show.
    widget.answer()
    page.evaluate("""() => {
      const el = document.createElement('div');
      document.body.append(el);
      view(el) }""")
    expect(roots.nth(2).locator(".mk-title")).to_have_text("layers.7.conv")
    page.evaluate("second()")
    expect(roots).to_have_count(2)


def test_python_can_choose_the_row(widget, page):
    page.evaluate("model.set('selected', 321)")
    expect(widget.row(321)).to_be_in_viewport()
    expect(widget.row(321)).to_have_attribute("aria-selected", "true")


def test_cleaning_up_leaves_nothing_behind(widget, page):
    widget.click(3)
    assert page.evaluate("[model.count(), observers]") == [2, 2]
    page.evaluate("""() => {
      window.kept = document.querySelector('.mk-grid');
      kept.focus();
      kept.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowDown' }));
      cleanup();
      document.querySelector('#here').append(kept) }""")
    assert page.evaluate("[model.count(), observers]") == [0, 0]
    # Neither a timer that was running nor an element that was kept does anything.
    saved = page.evaluate("model.saved.length")
    page.evaluate("kept.dispatchEvent(new KeyboardEvent('keydown', { key: 'End' }))")
    page.wait_for_timeout(250)
    assert page.evaluate("model.saved.length") == saved
    assert page.evaluate("model.get('selected')") == 4


def test_a_change_of_theme_redraws(widget, page):
    widget.click(0)
    scale, paint = widget.root.locator(".mk-scale"), "c => c.toDataURL()"
    before = widget.root.locator(".mk-histogram").evaluate(paint)
    paper = "e => getComputedStyle(e).getPropertyValue('--mk-differs')"
    light = widget.root.evaluate(paper)
    page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    page.wait_for_function(
        "before => document.querySelector('.mk-histogram').toDataURL() !== before", arg=before
    )
    assert widget.root.evaluate(paper) != light
    # Signed differences are blue, white and red in either theme.
    assert "rgb(247, 247, 247)" in scale.evaluate("e => e.style.background")


def test_a_change_of_width_redraws_sharply(widget, page):
    widget.click(0)
    page.set_viewport_size({"width": 700, "height": 900})
    canvas = widget.root.locator(".mk-heat")
    page.wait_for_function("""() => {
      const c = document.querySelector('.mk-heat');
      return c.clientWidth > 500 && c.width === c.clientWidth * devicePixelRatio }""")
    assert colours(canvas) > 60


# --- as_page ---


@pytest.fixture
def frame(page, fake_diff) -> Callable:
    def open_page(diff=None, scheme="light", **options):
        requests, problems = [], []
        page.on("request", lambda r: requests.append(r.url))
        page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda e: problems.append(str(e)))
        page.emulate_media(color_scheme=scheme)
        output = as_page(diff or fake_diff(rows_of(), tensors_of()), **options)
        page.set_content(f"<!doctype html><body>{output.data}</body>")
        inner = page.frame_locator("iframe")
        inner.locator(".mk-root[data-ready=true]").wait_for()
        return inner, requests, problems

    return open_page


def test_a_page_works_alone_and_asks_for_nothing(frame):
    inner, requests, problems = frame(rows=3)
    inner.get_by_role("button", name="First divergence").click()
    expect(inner.locator(".mk-title")).to_have_text("layers.42.conv")
    expect(inner.locator(".mk-heat")).to_be_visible()
    inner.locator('[data-row="44"]').click()
    expect(inner.locator(".mk-title")).to_have_text("layers.44.conv")
    expect(inner.locator(".mk-message")).to_contain_text("holds the details of 3 of 500 layers")
    inner.locator('[data-row="42"]').click()
    expect(inner.locator(".mk-heat")).to_be_visible()
    assert [u for u in requests if not u.startswith(("about:", "data:"))] == []
    assert problems == []


def test_a_page_with_hostile_names(frame, fake_diff, page):
    page.on("dialog", lambda d: pytest.fail(f"a name was run: {d.message}"))
    rows = [LayerRow(n, note=n, verdict="differs") for n in HOSTILE]
    inner, _, problems = frame(fake_diff(rows))
    inner.locator('[data-row="0"]').click()
    expect(inner.locator(".mk-title")).to_have_text(HOSTILE[0])
    assert problems == []


def test_a_page_follows_the_reader_s_scheme(frame, page):
    inner, _, _ = frame(scheme="dark", rows=1)
    root = inner.locator(".mk-root")

    def brightness() -> int:
        paper = root.evaluate("e => getComputedStyle(e).backgroundColor")
        return sum(map(int, re.findall(r"\d+", paper)[:3]))

    assert brightness() < 150
    page.emulate_media(color_scheme="light")
    expect(inner.locator("body")).not_to_have_class(re.compile("mk-page-dark"))
    assert brightness() > 600


# --- a real JupyterLab ---

CELL = """
import torch
from migrate_kit.layers.rows import LayerRow
from migrate_kit.widgets import LayerDiffWidget

class Diff:
    rows = [LayerRow(f"layers.{i}", R=300.0 if i == 42 else 1.0,
                     verdict="differs" if i == 42 else "same") for i in range(2000)]
    def tensors(self, i):
        return torch.ones(1, 4, 8, 8), torch.ones(1, 4, 8, 8) * (1 + i / 1000)
    first_divergence = rows[42]
    def __repr__(self):
        return "LayerDiff(1 of 2000 layers differs)"
    def _repr_html_(self):
        return "<p>static</p>"

LayerDiffWidget(Diff())
"""


@pytest.mark.slow
def test_in_jupyterlab(page, lab):
    from lab import Notebook, write_notebook

    write_notebook(lab.root / "layer_diff_widget.ipynb", CELL)
    notebook = Notebook(page, lab)
    notebook.open("layer_diff_widget.ipynb")
    notebook.run_all()
    root = page.locator(".mk-root[data-ready=true]")
    expect(root).to_have_count(1, timeout=15_000)
    root.get_by_role("button", name="First divergence").click()
    expect(root).to_have_attribute("data-row", "42", timeout=15_000)
    expect(root.locator(".mk-message")).to_have_text(
        "256 of 256 elements differ; largest difference 0.0420."
    )
    assert root.locator("[data-row]").count() < 50
    notebook.type_everywhere_in(root)
    root.get_by_role("searchbox").fill("")
    # The keyboard reaches a layer that was not in the page before.
    root.get_by_role("grid").focus()
    page.keyboard.press("End")
    expect(root).to_have_attribute("data-row", "1999", timeout=15_000)
    # Without a kernel the widget stays, and says what to do.
    notebook.command("notebook:restart-kernel")
    page.get_by_role("button", name="Confirm Kernel Restart").click()
    notebook.wait_until_idle()
    root.get_by_role("grid").focus()
    page.keyboard.press("Home")
    expect(root.get_by_role("status")).to_contain_text("run the cell again", timeout=10_000)
    assert notebook.problems == []
