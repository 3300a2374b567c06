"""The table in a bare page: window, sorting, filters, names of strangers, the keyboard."""

from __future__ import annotations

import re

import pytest
from fakes import HOSTILE, column, rows_of, tensors_of
from playwright.sync_api import expect

from migrate_kit.layers.rows import LayerRow

# --- the table ---


def test_only_a_window_of_the_rows_is_in_the_page(widget):
    expect(widget.grid).to_have_attribute("aria-rowcount", "501")
    for top in (0, 3000, 500 * 24):
        widget.grid.evaluate("(e, t) => e.scrollTo(0, t)", top)
        expect(widget.row(min(499, top // 24))).to_be_visible()
        shown = widget.shown()
        assert len(shown) <= 24 + 2 * 6 + 2
        assert shown == list(range(shown[0], shown[-1] + 1))
    expect(widget.row(499)).to_have_attribute("aria-rowindex", "501")


def test_sorting_by_a_click_and_back(widget):
    head = widget.root.locator('[data-key="R"]')
    head.click()
    expect(head).to_have_attribute("aria-sort", "descending")
    assert widget.shown()[:3] == [442, 342, 242]
    head.click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    assert column(widget, "R")[0] == "1.00"
    head.click()
    expect(head).to_have_attribute("aria-sort", "none")
    assert widget.shown()[:3] == [0, 1, 2]


def test_what_was_not_measured_is_last_both_ways(bare, fake_diff):
    inf, nan = float("inf"), float("nan")
    rows = [LayerRow(f"l{i}", R=r) for i, r in enumerate([nan, 2.0, inf, 0.5, nan])]
    w = bare(fake_diff(rows))
    w.root.locator('[data-key="R"]').click()
    assert w.shown() == [2, 1, 3, 0, 4]
    assert column(w, "R") == ["∞", "2.00", "0.500", "–", "–"]
    w.root.locator('[data-key="R"]').click()
    assert w.shown() == [3, 1, 2, 0, 4]


def test_verdicts_sort_by_gravity_and_names_by_their_numbers(bare, fake_diff):
    verdicts = ["same", "differs", "look", "unpaired"]
    rows = [LayerRow(f"l{10 - i}", verdict=v) for i, v in enumerate(verdicts)]
    w = bare(fake_diff(rows))
    w.root.locator('[data-key="verdict"]').click()
    assert column(w, "verdict") == ["differs", "unpaired", "look", "same"]
    w.root.locator('[data-key="layer"]').click()
    assert column(w, "layer") == ["l7", "l8", "l9", "l10"]


def test_filters(widget, page):
    text = widget.root.get_by_role("searchbox")
    text.fill("relu 7.CONV")
    assert widget.shown()[:3] == [7, 17, 27]
    widget.root.get_by_label("Filter by verdict").select_option("look")
    expect(widget.root.locator(".mk-none")).to_be_visible()
    expect(widget.grid).to_have_attribute("aria-rowcount", "1")
    expect(widget.root.locator(".mk-tally")).to_have_text("0 of 500 layers")
    text.press("Escape")
    expect(widget.grid).to_have_attribute("aria-rowcount", "501")
    assert text.input_value() == ""
    widget.root.get_by_label("Filter by channel").select_option("gradient")
    assert widget.shown()[0] == 400
    expect(widget.status).to_have_text("100 of 500 layers shown.")
    widget.grid.focus()
    page.keyboard.press("Escape")
    assert widget.shown()[0] == 0


def test_one_channel_needs_no_filter(bare, fake_diff):
    w = bare(fake_diff([LayerRow("a"), LayerRow("b")]))
    expect(w.root.get_by_label("Filter by channel")).to_be_hidden()


def test_first_divergence_and_the_flagged_ones(widget):
    button = widget.root.get_by_role("button", name="First divergence")
    button.click()
    assert widget.request()["row"] == 42
    expect(widget.row(42)).to_be_in_viewport()
    expect(widget.row(42)).to_have_attribute("aria-selected", "true")
    following = widget.root.get_by_role("button", name="Next flagged layer")
    following.click()
    assert widget.request()["row"] == 43
    following.click()
    assert widget.request()["row"] == 53
    for _ in range(3):
        widget.root.get_by_role("button", name="Previous flagged layer").click()
    assert widget.request()["row"] == 33
    # It finds its layer again out of sight, and where a filter hides it.
    widget.grid.evaluate("e => e.scrollTo(0, 9000)")
    widget.root.get_by_role("searchbox").fill("layers.7")
    button.click()
    expect(widget.row(42)).to_be_in_viewport()
    widget.grid.evaluate("e => e.scrollTo(0, 9000)")
    expect(widget.row(42)).to_have_count(0)
    button.click()
    expect(widget.row(42)).to_be_in_viewport()


def test_without_a_divergence_the_button_says_why(bare, fake_diff):
    w = bare(fake_diff([LayerRow("a"), LayerRow("b")]))
    for name in ("First divergence", "Next flagged layer", "Previous flagged layer"):
        button = w.root.get_by_role("button", name=name)
        expect(button).to_have_attribute("aria-disabled", "true")
        button.click(force=True)
    expect(w.status).to_have_text("No layer is flagged: all are the same.")
    w.root.get_by_role("button", name="First divergence").click(force=True)
    expect(w.status).to_have_text("No layer differs.")
    assert w.request()["row"] == -1


@pytest.mark.parametrize("width", [1600, 1280, 760, 420])
def test_what_matters_is_shown_at_every_width(bare, fake_diff, page, width):
    w = bare(fake_diff(rows_of(60), tensors_of(60)), width=width)
    w.click(2)
    for key in ("layer", "R", "verdict"):
        expect(w.row(2).locator(f'[data-cell="{key}"]')).to_be_in_viewport()
    # Nothing sticks out of the page, and the two halves stand side by side only where they fit.
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    table, detail = w.root.locator(".mk-table"), w.root.locator(".mk-detail")
    beside = detail.bounding_box()["x"] > table.bounding_box()["x"] + 100
    assert beside is (width > 1000)
    assert w.grid.evaluate("e => e.scrollWidth <= e.clientWidth")
    everything = w.root.get_by_role("button", name="All columns")
    if width < 1600:
        assert w.row(2).locator("[data-cell]").count() < 12
        everything.click()
        # Sideways, the names stay: nothing of the columns behind them shows through.
        assert w.grid.evaluate("e => { e.scrollLeft = 300; return e.scrollLeft > 0 }")
        assert (
            w.row(2)
            .locator('[data-cell="layer"]')
            .evaluate("""e => {
          const { left, right, top, bottom } = e.getBoundingClientRect();
          const at = (x) => document.elementFromPoint(x, (top + bottom) / 2);
          for (let x = left + 2; x < right - 2; x += 3) if (!e.contains(at(x))) return false;
          return true }""")
        )
    assert w.row(2).locator("[data-cell]").count() == 12
    assert w.grid.get_attribute("aria-colcount") == "12"


def test_columns_explain_themselves(bare, fake_diff):
    w = bare(fake_diff(rows_of(5)), width=1600)
    titles = w.root.get_by_role("columnheader").evaluate_all("h => h.map(e => e.title)")
    assert len(titles) == 12
    assert all(len(t) > 25 for t in titles)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0"), (1.0, "1.00"), (-1.5, "−1.50"), (0.0123, "0.0123"), (9.999e-3, "0.0100"),
        (1.23e-7, "1.23e−7"), (-4e-9, "−4.00e−9"), (999.4, "999"), (999.7, "1000"),
        (9999.0, "9999"), (12345.0, "1.2e4"), (1e300, "1.0e300"), (float("inf"), "∞"),
        (float("-inf"), "−∞"), (float("nan"), "–"),
    ],
)  # fmt: skip
def test_numbers_are_short(bare, fake_diff, number, text):
    w = bare(fake_diff([LayerRow("a", max_abs=number)]))
    assert column(w, "max_abs") == [text]


# --- names of strangers ---


@pytest.mark.parametrize("width", [1280, 500])
def test_hostile_names_are_shown_and_never_run(bare, fake_diff, page, width):
    page.on("dialog", lambda d: pytest.fail(f"a name was run: {d.message}"))
    rows = [LayerRow(n, kind=n, note=n, verdict="look", channel=n) for n in HOSTILE]
    w = bare(fake_diff(rows), width=width)
    for i, name in enumerate(HOSTILE):
        cell = w.row(i).locator('[data-cell="layer"]')
        w.click(i)
        title = w.root.locator(".mk-title")
        if "\n" in name:
            expect(cell).to_have_text("line one⏎line two⇥tab")
            expect(title).to_have_text("line one⏎line two⇥tab")
        elif "\u202e" in name:
            expect(cell).to_have_text("right‹202E›ot tfel")
        else:
            assert cell.text_content() == (name or "(no name)")
        assert cell.get_attribute("title") == name
        assert w.row(i).bounding_box()["height"] == 24
    # A long name is cut in the middle: its end is still to be seen.
    tail = w.row(7).locator(".mk-name-tail")
    assert tail.inner_text().endswith(".the_tail")
    assert tail.evaluate("e => e.scrollWidth <= e.clientWidth")
    box, cell = tail.bounding_box(), w.row(7).locator('[data-cell="layer"]').bounding_box()
    assert box["x"] + box["width"] <= cell["x"] + cell["width"] + 0.5
    assert w.root.locator("img, script").count() == 0
    w.root.get_by_role("searchbox").fill("<script>")
    assert w.shown() == [0]


def test_no_layers_at_all(bare, fake_diff, page):
    w = bare(fake_diff([]))
    expect(w.root.locator(".mk-none")).to_have_text("There are no layers in this comparison.")
    w.grid.focus()
    for key in ("ArrowDown", "End", "PageDown", "Enter", "ArrowUp", "Enter", "Escape"):
        page.keyboard.press(key)
    assert w.request()["row"] == -1


# --- the keyboard ---


@pytest.mark.parametrize(
    ("keys", "row"),
    [
        ("Home", 0), ("End", 499), ("ArrowDown", 0), ("End ArrowUp", 498), ("PageDown", 22),
        ("End PageUp", 476), ("ArrowDown ArrowDown ArrowDown", 2), ("End ArrowDown", 499),
    ],
)  # fmt: skip
def test_keys_move_and_rest_asks(widget, page, keys, row):
    widget.grid.focus()
    # All keys in one task of the page: on a busy machine the pause would end between two of them.
    selected, asked = widget.grid.evaluate(
        """(grid, keys) => {
          const press = (key) => grid.dispatchEvent(new KeyboardEvent("keydown",
            { key, bubbles: true, cancelable: true }));
          keys.forEach(press);
          return [model.get("selected"), model.saved.length] }""",
        keys.split(),
    )
    assert selected == row
    assert asked == 0  # moving alone asks nothing
    page.wait_for_function("model.saved.length === 1", timeout=2000)
    assert widget.request() == {"number": 1, "row": row}
    active = page.locator(f"#{widget.grid.get_attribute('aria-activedescendant')}")
    expect(active).to_have_attribute("aria-rowindex", str(row + 2))
    expect(active).to_be_in_viewport()


def test_enter_asks_at_once(widget, page):
    widget.grid.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert widget.request()["row"] == 0
    page.wait_for_timeout(200)
    assert page.evaluate("model.saved.length") == 1


def test_headers_are_reached_through_the_first_row(widget, page):
    widget.grid.focus()
    for key in ("Home", "ArrowUp", "End", "ArrowLeft", "Home", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    active = page.locator(f"#{widget.grid.get_attribute('aria-activedescendant')}")
    expect(active).to_have_attribute("data-key", "R")
    expect(widget.status).to_contain_text("rounding")
    page.keyboard.press("Enter")
    active = page.locator(f"#{widget.grid.get_attribute('aria-activedescendant')}")
    expect(active).to_have_attribute("aria-sort", "descending")
    expect(active).to_have_class(re.compile("mk-active"))
    expect(active).to_have_attribute("data-key", "R")
    page.keyboard.press("ArrowDown")  # back to the row that was chosen
    assert page.evaluate("model.get('selected')") == 0


def test_the_table_is_one_tab_stop_and_every_stop_keeps_its_keys(widget, page):
    widget.click(0)
    widget.root.get_by_role("searchbox").focus()
    stops = []
    for _ in range(9):
        stops.append(
            page.evaluate("""() => {
              const { tagName, ariaLabel, dataset } = document.activeElement;
              return [ariaLabel ?? tagName, dataset.lmSuppressShortcuts] }""")
        )
        page.keyboard.press("Tab")
    names = [name for name, _ in stops]
    assert names.count("Layers") == 1
    assert names[-1] == "Worst elements"
    assert {kept for _, kept in stops} == {"true"}
    # And nothing else in it can take the focus.
    all_stops = widget.root.locator("input, select, button, [tabindex]")
    bad = all_stops.evaluate_all("s => s.filter(e => !e.dataset.lmSuppressShortcuts).length")
    assert bad == 0


def test_down_from_the_filter_goes_to_the_table(widget, page):
    widget.root.get_by_role("searchbox").fill("layers.42.")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert widget.request()["row"] == 42


def test_browser_shortcuts_are_left_alone(widget, page):
    widget.grid.focus()
    page.keyboard.press("Control+Home")
    page.keyboard.press("Alt+ArrowDown")
    assert page.evaluate("model.get('selected')") == -1
