"""Names beside names in a bare page: filters, the list, an open row, copying, strangers, axe."""

from __future__ import annotations

import ast
import html
import re

import pytest
from fakes import HOSTILE
from playwright.sync_api import expect

from migrate_kit.checkpoints.load_rows import LoadRow
from migrate_kit.results import Finding
from migrate_kit.widgets import pairing

ROW_H = 26


class Report:
    """A diagnosis of rows that no model has."""

    def __init__(self, rows, findings=()):
        self.rows, self.findings = rows, list(findings)

    def __repr__(self):
        return f"LoadReport({len(self.rows)} rows)"

    def _repr_html_(self):
        return "<p>static</p>"


def row(key, source, status="renamed", shape=(8, 4), dtype="float32", **more):
    ours = (shape, dtype) if key is not None else (None, "")
    theirs = (shape, dtype) if source is not None else (None, "")
    fields = {"source_shape": theirs[0], "source_dtype": theirs[1], **more}
    return LoadRow(key or "", *ours, source, status=status, **fields)


def same(i, **more):
    return row(f"layers.{i}.weight", f"layers.{i}.weight", "same name", **more)


def renamed(i):
    return row(
        f"layers.{i}.weight", f"module.layers.{i}.weight", rule="prefix 'module.' removed",
        reason="saved from nn.DataParallel",
    )  # fmt: skip


PROBLEMS = [
    row("head.weight", "module.head.weight", "shape differs", source_shape=(1000, 4), reason="why"),
    row("embed.weight", "embed.weight", "dtype differs", source_dtype="float16", rule="same name"),
    row("new.weight", None, "missing", reason="nothing fits"),
    row(None, "old.weight", "unexpected", shape=(3,)),
    row("a.weight", None, "ambiguous", reason="one of: x, y"),
    row("qkv.weight", "q.weight + k.weight + v.weight", "made", rule="q, k, v joined"),
    row("steps", None, "kept", shape=(), dtype="int64"),
    row("odd.weight", "odder.weight", "guessed"),
]
REPORT = Report(
    [*(renamed(i) for i in range(6)), *PROBLEMS, *(same(i) for i in range(6, 40))],
    [Finding("error", "1 shape differs", "head.weight", 'repair(head="keep")')]
    + [Finding("info", f"note {i}") for i in range(30)],
)


class Opened:
    """The widget in a page of its own."""

    def __init__(self, page, root):
        self.page, self.root = page, root
        self.list = root.get_by_role("treegrid")
        self.status = root.get_by_role("status")
        self.text = root.get_by_role("searchbox")
        self.detail = root.locator(".mk-pair-detail")

    def row(self, i):
        return self.root.locator(f'[data-row="{i}"]')

    def cell(self, i, key):
        return self.row(i).locator(f'[data-cell="{key}"]')

    def chip(self, word):
        return self.root.get_by_role("button", name=re.compile(rf"^{word} [\d,]+$"))

    def shown(self):
        rows = self.root.locator("[data-row]")
        return rows.evaluate_all("rows => rows.map(r => Number(r.dataset.row))")

    def keys(self, *names):
        self.list.focus()
        for name in names:
            self.page.keyboard.press(name)


@pytest.fixture
def opened(page):
    """Open a report; a script error anywhere fails the test, and so does a name that is run."""
    from conftest import PLAIN_HOST, fill

    problems = []
    page.on("pageerror", lambda e: problems.append(str(e)))
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.on("dialog", lambda d: problems.append(d.message))

    def open_page(report=REPORT, *, theme="light", width=1000, most=8_000_000):
        page.set_viewport_size({"width": width, "height": 900})
        state = {"table": pairing.table_of(report, most), "selected": -1}
        fill(page, PLAIN_HOST, pairing, state, theme)
        root = page.locator(".mk-pairing[data-ready=true]")
        root.wait_for()
        return Opened(page, root)

    yield open_page
    assert problems == []


# --- filters ---


def test_what_needs_attention_is_shown_first(opened):
    w = opened()
    expect(w.chip("needs attention")).to_have_attribute("aria-pressed", "true")
    assert w.shown() == [6, 8, 9, 10]
    expect(w.root.locator(".mk-pair-tally")).to_have_text("4 of 48 pairings")
    w.chip("all").click()
    assert w.shown()[:7] == [0, 1, 2, 3, 4, 5, 6]
    expect(w.status).to_have_text("48 pairings shown.")


def test_chips_count_the_gravest_first_and_what_is_unknown_last(opened):
    w = opened()
    chips = w.root.locator(".mk-pair-chip").all_inner_texts()
    assert chips == [
        "needs attention 4", "all 48", "missing 1", "shape differs 1", "ambiguous 1",
        "unexpected 1", "dtype differs 1", "renamed 6", "made 1", "kept 1", "same name 34",
        "guessed 1",
    ]  # fmt: skip
    for word, rows in (("missing", [8]), ("guessed", [13]), ("renamed", [0, 1, 2, 3, 4, 5])):
        w.chip(word).click()
        assert w.shown() == rows
    expect(w.root.locator('.mk-pair-chip[aria-pressed="true"]')).to_have_count(1)


def test_where_all_is_well_all_is_shown(opened):
    w = opened(Report([same(i) for i in range(5)]))
    assert w.shown() == [0, 1, 2, 3, 4]
    expect(w.root.locator(".mk-pair-chip")).to_have_count(0)  # there is nothing to choose
    expect(w.root.get_by_role("region", name="Findings")).to_have_count(0)


def test_the_search_is_over_both_names(opened, page):
    w = opened()
    w.chip("all").click()
    w.text.fill("MODULE layers.3")
    assert w.shown() == [3]
    w.text.fill("old")
    assert w.shown() == [9]
    w.text.fill("no such name")
    expect(w.root.locator(".mk-pair-none")).to_contain_text("Escape clears it")
    expect(w.status).to_have_text("0 of 48 pairings shown.")
    w.text.press("Escape")
    assert w.text.input_value() == ""
    assert w.shown()[:2] == [0, 1]
    w.text.fill("layers.2")
    page.keyboard.press("ArrowDown")  # into the list
    expect(w.list).to_be_focused()
    expect(w.row(2)).to_have_attribute("aria-selected", "true")


def test_findings_say_their_level_in_words(opened):
    w = opened()
    section = w.root.get_by_role("region", name="Findings")
    expect(section.get_by_role("listitem").first).to_have_text(
        'error1 shape differs head.weight→ repair(head="keep")'
    )
    expect(section.get_by_text("note 3")).to_be_hidden()
    section.get_by_text("28 more findings").click()
    expect(section.get_by_text("note 3")).to_be_visible()
    expect(section).to_contain_text("11 not shown")


# --- rows ---


@pytest.mark.parametrize(
    ("key", "source", "unlike"),
    [
        ("conv.weight", "module.conv.weight", ["", "module."]),
        ("layer1.0.bn.weight", "layer2.0.bn.weight", ["1", "2"]),
        ("model.bn.gamma", "model.bn.weight", ["gamma", "weight"]),
        ("enc.layers.0.attn.q.weight", "module.enc.layer.0.self.q.weight",
         ["layers|attn", "module.|layer|self"]),
        ("a.x_y.weight", "a.p.q.weight", ["x_y", "p.q"]),
        # Nothing but numbers and dots in common: all of it differs, and nothing is marked.
        ("p.0.w", "q.0.v", ["", ""]),
        ("same", "same", ["", ""]),
    ],
)  # fmt: skip
def test_what_differs_in_two_names_is_marked(opened, key, source, unlike):
    w = opened(Report([row(key, source)]))
    for cell, name, wanted in zip(("key", "source"), (key, source), unlike, strict=True):
        marked = w.cell(0, cell).locator(".mk-pair-unlike").all_inner_texts()
        assert "|".join(marked) == wanted
        assert w.cell(0, cell).inner_text() == name


def test_a_status_is_a_word_and_an_absence_is_said(opened):
    w = opened()
    expect(w.cell(8, "link")).to_have_text("missing")
    expect(w.cell(8, "source")).to_have_text("not in the checkpoint")
    expect(w.cell(9, "key")).to_have_text("not in the model")
    expect(w.cell(10, "source")).to_have_text("–")  # it is there, but which?
    w.chip("guessed").click()
    expect(w.cell(13, "link")).to_have_text("guessed")
    expect(w.row(13)).to_have_class(re.compile("mk-pair-quiet"))


@pytest.mark.parametrize("status", ["constructor", "__proto__", "all", "needs attention", ""])
def test_a_status_may_be_any_word(opened, status):
    w = opened(Report([same(0), row("a.b", "c.b", status), row("new", None, "missing")]))
    w.root.locator(".mk-pair-chip").last.click()
    assert w.shown() == [1]


def test_shapes_and_dtypes_show_where_they_differ(opened, page):
    w = opened()
    expect(w.cell(6, "shape")).to_have_text("8≠1000×4")
    assert w.cell(6, "shape").locator("b").all_inner_texts() == ["8≠1000"]
    expect(w.cell(6, "shape")).to_have_attribute("title", "8×4 ≠ 1000×4")
    expect(w.cell(9, "shape")).to_have_text("3")
    w.chip("dtype differs").click()
    expect(w.cell(7, "dtype").locator("b")).to_have_text("float32 ≠ float16")
    # In a narrow list one column shows what differs.
    page.set_viewport_size({"width": 600, "height": 900})
    expect(w.cell(7, "tensor")).to_have_text("float32 ≠ float16")
    w.chip("shape differs").click()
    expect(w.cell(6, "tensor")).to_have_text("8≠1000×4")


@pytest.mark.parametrize("shapes", [((4,), (4, 1)), ((), (4,)), ((4, 4), (3, 5))])
def test_shapes_of_any_rank(opened, shapes):
    w = opened(Report([row("a", "a", "shape differs", shape=shapes[0], source_shape=shapes[1])]))
    text = w.cell(0, "shape").locator("b").all_inner_texts()
    wanted = {1: ["4 ≠ 4×1"], 0: ["scalar ≠ 4"], 2: ["4≠3", "4≠5"]}
    assert text == wanted[len(shapes[0])]


@pytest.mark.parametrize("width", [1280, 1000, 600, 420])
def test_names_fit_at_every_width_and_keep_what_matters(opened, page, width):
    long = "encoder.blocks.11.attention.self.query.projection.in_proj.weight"
    w = opened(Report([row(long, f"module.{long}"), row("a", "module.a")]), width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert w.list.evaluate("e => e.scrollWidth <= e.clientWidth")
    for key, name in (("key", long), ("source", f"module.{long}")):
        cell = w.cell(0, key)
        assert cell.text_content() == name  # whole, for who copies it or has it read out
        assert cell.evaluate("e => e.scrollWidth <= e.clientWidth")
        box = cell.bounding_box()
        for part in [*cell.locator(".mk-pair-unlike").all(), cell.locator("bdi > span").last]:
            inner = part.bounding_box()
            assert inner["x"] >= box["x"]
            assert inner["x"] + inner["width"] <= box["x"] + box["width"]
    assert w.root.locator(".mk-pair-dots").count() == 2
    expect(w.cell(1, "source").locator(".mk-pair-unlike")).to_have_text("module.")
    assert w.cell(1, "source").locator(".mk-pair-gone").count() == 0


@pytest.mark.parametrize(
    ("width", "name", "gaps"),
    [
        (600, "encoder.blocks.11.{}.projection.in_proj.weight", 2),
        (700, "encoder.abc.{}.blocks.11.attention.projection.in_proj.weight", 1),
    ],
)
def test_what_differs_in_the_middle_of_a_name_is_not_what_is_cut(opened, width, name, gaps):
    w = opened(Report([row(name.format("self"), name.format("cross"))]), width=width)
    for cell, word in (("key", "self"), ("source", "cross")):
        assert w.cell(0, cell).locator(".mk-pair-dots").count() == gaps
        expect(w.cell(0, cell).locator(".mk-pair-unlike")).to_have_text(word)
        assert w.cell(0, cell).locator(".mk-pair-unlike .mk-pair-gone").count() == 0
        assert w.cell(0, cell).text_content() == name.format(word)
        assert w.cell(0, cell).evaluate("e => e.scrollWidth <= e.clientWidth")


# --- the list ---


def test_only_a_window_of_10000_rows_is_in_the_page(opened):
    w = opened(Report([renamed(i) for i in range(10_000)]))
    expect(w.list).to_have_attribute("aria-rowcount", "10001")
    for top in (0, 5000, 10_000 * ROW_H):
        w.list.evaluate("(e, t) => e.scrollTo(0, t)", top)
        expect(w.row(min(9999, top // ROW_H + 1))).to_be_visible()
        shown = w.shown()
        assert len(shown) <= 18 + 2 * 6 + 2
        assert shown == list(range(shown[0], shown[-1] + 1))
    w.text.fill("layers.9998.")
    assert w.shown() == [9998]


def test_enter_opens_a_row_and_escape_closes_it(opened, page):
    w = opened(Report([renamed(i) for i in range(200)]))
    w.keys("ArrowDown", "ArrowDown", "Enter")
    expect(w.row(1)).to_have_attribute("aria-expanded", "true")
    expect(w.detail).to_contain_text("saved from nn.DataParallel")
    expect(w.detail).to_contain_text("prefix 'module.' removed")
    box, below = w.detail.bounding_box(), w.row(2).bounding_box()
    assert box["height"] > 60
    assert abs(box["y"] + box["height"] - below["y"]) < 1.5
    expect(w.row(2)).to_have_attribute("aria-rowindex", "5")  # the header, two rows, what is open
    w.keys("ArrowDown", "ArrowRight")  # another one: the first closes
    expect(w.row(1)).to_have_attribute("aria-expanded", "false")
    expect(w.row(2)).to_have_attribute("aria-expanded", "true")
    expect(w.detail).to_have_count(1)
    w.keys("ArrowLeft")
    expect(w.detail).to_have_count(0)
    w.keys("Enter", "Escape")
    expect(w.detail).to_have_count(0)
    assert w.list.evaluate("e => e.scrollHeight") == 28 + 200 * ROW_H


def test_an_open_row_comes_into_view_and_the_end_is_still_the_end(opened):
    # Narrow and wordy: what is open is higher than the rows that are drawn to spare.
    rows = [row(f"a.{i}", f"b.{i}", reason="many words " * 36) for i in range(200)]
    w = opened(Report(rows), width=420)
    w.keys("End", "Enter")
    expect(w.detail).to_be_in_viewport(ratio=1)
    w.keys("Home")
    expect(w.row(0)).to_be_in_viewport()
    w.keys("End")
    expect(w.row(199)).to_be_in_viewport()
    assert w.shown()[-1] == 199
    # In the middle of it, too, the window has no hole and no row twice.
    w.keys("Escape", "Home", *["ArrowDown"] * 50, "Enter")
    for top in range(0, 200 * ROW_H, 500):
        w.list.evaluate("(e, t) => e.scrollTo(0, t)", top)
        w.page.wait_for_timeout(30)
        hole = w.list.evaluate("""e => {
          const { left, top, bottom } = e.getBoundingClientRect();
          for (let y = top + 32; y < bottom - 4; y += 13) {
            const at = document.elementFromPoint(left + 30, y);
            if (!at.closest('[data-row], .mk-pair-detail')) return y - top }
          return null }""")
        assert hole is None
    assert len(w.shown()) == len(set(w.shown()))


def test_a_click_opens_and_closes_and_marked_text_stays(opened, page):
    w = opened(Report([renamed(i) for i in range(5)]))
    w.row(3).click()
    expect(w.detail).to_be_visible()
    w.row(3).click()
    expect(w.detail).to_have_count(0)
    box = w.cell(3, "source").bounding_box()
    page.mouse.move(box["x"] + 8, box["y"] + 12)
    page.mouse.down()
    page.mouse.move(box["x"] + 60, box["y"] + 12)
    page.mouse.up()
    assert page.evaluate("getSelection().toString()") in "module.layers.3.weight"
    expect(w.detail).to_have_count(0)


def test_the_focus_stays_on_a_button_while_the_list_scrolls(opened, page):
    w = opened(Report([renamed(i) for i in range(500)]))
    w.keys("ArrowDown", "Enter", "Tab")
    focused = "document.activeElement.ariaLabel"
    assert page.evaluate(focused) == "Copy the model's key"
    for top in (300, 5000, 0):
        w.list.evaluate("(e, t) => e.scrollTo(0, t)", top)
        page.wait_for_timeout(50)
        assert page.evaluate(focused) == "Copy the model's key"
    page.keyboard.press("Escape")  # back to the list, and closed
    expect(w.list).to_be_focused()
    expect(w.detail).to_have_count(0)


def test_a_filter_that_hides_the_open_row_closes_it(opened):
    w = opened()
    w.row(8).click()
    w.chip("renamed").click()
    expect(w.detail).to_have_count(0)
    assert w.shown() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("keys", "at"),
    [
        ("Home", 0), ("End", 99), ("ArrowDown", 0), ("End ArrowUp", 98), ("PageDown", 16),
        ("End PageUp", 82), ("ArrowUp", 0), ("End ArrowDown", 99), ("ArrowRight ArrowDown", 0),
    ],
)  # fmt: skip
def test_keys_move(opened, page, keys, at):
    w = opened(Report([renamed(i) for i in range(100)]))
    w.keys(*keys.split())
    assert page.evaluate("model.get('selected')") == at
    active = page.locator(f"#{w.list.get_attribute('aria-activedescendant')}")
    expect(active).to_have_attribute("data-row", str(at))
    expect(active).to_be_in_viewport()
    page.wait_for_function("model.saved.length === 1", timeout=2000)  # Python hears of the rest


def test_python_can_mark_a_row(opened, page):
    w = opened(Report([renamed(i) for i in range(300)]))
    page.evaluate("model.set('selected', 250)")
    expect(w.row(250)).to_be_in_viewport()
    expect(w.row(250)).to_have_attribute("aria-selected", "true")


def test_where_not_all_was_sent_rows_keep_their_numbers_and_it_is_said(opened, page):
    rows = [*(same(i) for i in range(300)), row("new", None, "missing")]
    w = opened(Report(rows), most=4_000)
    w.root.get_by_text("missing", exact=True).last.click()
    assert page.evaluate("model.get('selected')") == 300
    expect(w.root.locator(".mk-pair-tally")).to_contain_text("of 301; more than a view holds")


def test_the_list_is_one_tab_stop_and_every_stop_keeps_its_keys(opened, page):
    w = opened()
    w.row(6).click()
    stops = w.root.locator("input, button, summary, [tabindex]")
    bad = stops.evaluate_all("s => s.filter(e => !e.dataset.lmSuppressShortcuts).length")
    assert bad == 0
    w.root.locator(".mk-pair-chip").last.focus()
    names = []
    for _ in range(3):
        page.keyboard.press("Tab")
        names.append(page.evaluate("document.activeElement.ariaLabel"))
    assert names == ["Pairings", "Copy the model's key", "Copy the checkpoint's key"]


def test_browser_shortcuts_are_left_alone(opened, page):
    w = opened()
    w.keys("Control+Home", "Alt+ArrowDown")
    assert page.evaluate("model.get('selected')") == -1


def test_no_rows_at_all(opened):
    w = opened(Report([]))
    expect(w.root.locator(".mk-pair-none")).to_have_text("Neither side has a tensor.")
    w.keys("ArrowDown", "End", "Enter", "ArrowRight", "Escape")


def test_cleaning_up_leaves_nothing(opened, page):
    w = opened()
    w.keys("ArrowDown", "Enter")
    page.evaluate("window.kept = document.querySelector('.mk-pair-list'); cleanup()")
    assert page.locator(".mk-pairing").count() == 0
    assert page.evaluate("model.count()") == 0
    page.evaluate("document.querySelector('#here').append(kept)")
    page.evaluate("kept.dispatchEvent(new KeyboardEvent('keydown', { key: 'End' }))")
    page.wait_for_timeout(250)
    assert page.evaluate("[model.get('selected'), model.saved.length]") == [6, 0]


# --- copying ---

# What a button says for a while after a click, read before that while is over on a busy machine.
PRESS = "async b => { b.click(); await new Promise(r => setTimeout(r, 50)); return b.textContent }"


@pytest.fixture
def clipboard(page):
    def read():
        page.wait_for_function("window.copied !== undefined")
        return page.evaluate("window.copied")

    page.add_init_script(
        "Object.defineProperty(navigator, 'clipboard',"
        " { value: { writeText: async (t) => { window.copied = t } } })"
    )
    page.goto("about:blank")
    return read


def test_the_mapping_is_a_dict_of_what_may_be_loaded(opened, clipboard):
    w = opened()
    w.root.get_by_role("button", name="Copy mapping").click()
    text = clipboard()
    wanted = {r.key: r.source for r in REPORT.rows if r.status in ("same name", "renamed")}
    assert ast.literal_eval(text) == wanted | {"embed.weight": "embed.weight"}
    assert "    # 'head.weight': 'module.head.weight',  # shape differs\n" in text
    assert "    # 'qkv.weight': 'q.weight + k.weight + v.weight',  # made\n" in text
    assert "'embed.weight': 'embed.weight',  # dtype differs; same name\n" in text
    assert "new.weight" not in text
    expect(w.status).to_have_text("A dict of 41 pairs, with 3 more as comments, is copied.")


def test_what_is_made_of_several_is_no_name_even_if_it_is_converted(opened, clipboard):
    rows = [row("qkv", "q + k + v", "dtype differs", source_dtype="float16")]
    w = opened(Report(rows))
    w.root.get_by_role("button", name="Copy mapping").click()
    assert ast.literal_eval(clipboard()) == {}


ODD = [
    *HOSTILE, "it's", 'a "b"', "it's \"b\"", "back\\slash\\", "\\",
    "\x00\x1f\x7f\x85\u2028", "\ud800", "soft\u00adhyphen", "'", '"', "# comment", "\ufeff",
    "${x}`",
]  # fmt: skip


def test_any_name_is_copied_as_the_same_python_text(opened, clipboard):
    names = [n for n in dict.fromkeys(ODD) if n]
    w = opened(Report([row(f"{i}.k{n}", n) for i, n in enumerate(names)]))
    w.root.get_by_role("button", name="Copy mapping").click()
    text = clipboard()
    assert ast.literal_eval(text) == {f"{i}.k{n}": n for i, n in enumerate(names)}
    assert all(c.isprintable() or c == "\n" for c in text)


def test_a_name_that_was_cut_is_not_copied(opened, clipboard):
    w = opened(Report([row("a", "b"), row("k" * 1000, "b")]))
    w.root.get_by_role("button", name="Copy mapping").click()
    text = clipboard()
    assert ast.literal_eval(text) == {"a": "b"}
    assert "left out: 1 pair with a name too long" in text
    w.row(1).click()
    expect(w.detail).to_contain_text("too long for this view")
    expect(w.detail.get_by_role("button")).to_have_count(0)


def test_one_key_is_copied_as_it_is(opened, clipboard, page):
    name = "right\u202eot <b>\n'x'"
    w = opened(Report([row("a.b", name), row("c", "x + y + z", "made")]))
    w.row(0).click()
    button = w.root.get_by_role("button", name="Copy the checkpoint's key")
    assert button.evaluate(PRESS) == "Copied"
    assert clipboard() == name
    expect(w.status).to_have_text("The checkpoint's key is copied.")
    assert w.root.get_by_role("button", name="Copy the model's key").evaluate(PRESS) == "Copied"
    expect(button).to_have_text("Copy")
    w.row(1).click()
    w.root.get_by_role("button", name="Copy the checkpoint's key").nth(1).click()
    page.wait_for_function("window.copied === 'y'")
    expect(w.cell(1, "source")).to_have_text("x + 2")


def test_without_a_clipboard_the_text_is_selected_where_it_can_be_seen(opened, page):
    w = opened()
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.evaluate("document.execCommand = () => false")
    box = w.root.locator("pre")
    assert box.bounding_box()["width"] <= 1
    button = w.root.get_by_role("button", name="Copy mapping")
    assert button.evaluate(PRESS) == "Press Ctrl+C"
    expect(w.status).to_contain_text("is selected: press Ctrl+C.")
    assert ast.literal_eval(page.evaluate("getSelection().toString()"))["layers.0.weight"]
    assert box.bounding_box()["width"] > 300
    assert box.bounding_box()["height"] < 160


# --- names of strangers ---


@pytest.mark.parametrize("width", [1000, 600])
def test_hostile_names_are_shown_and_never_run(opened, page, width):
    rows = [row(n, f"x.{n}", n, rule=n, reason=n) for n in HOSTILE]
    w = opened(Report(rows, [Finding("info", n, n, n) for n in HOSTILE]), width=width)
    for i, name in enumerate(HOSTILE):
        assert w.row(i).bounding_box()["height"] == ROW_H
        text = w.cell(i, "key").text_content()
        if "\n" in name:
            assert text == "line one⏎line two⇥tab"
        elif "\u202e" in name:
            assert text == "right‹202E›ot tfel"
        else:
            assert text == (name or "(empty name)")
        w.row(i).scroll_into_view_if_needed()
        w.row(i).click(position={"x": 5, "y": 8})
        expect(w.detail).to_be_visible()
        assert w.detail.evaluate("e => e.scrollWidth <= e.clientWidth + 1")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert w.root.locator("img, script").count() == 0
    assert w.cell(7, "key").inner_text().endswith(".the_tail")
    w.text.fill("<script>")
    assert w.shown() == [0]


# --- axe ---


@pytest.mark.parametrize("width", [1000, 600])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_violation(opened, page, scan, theme, width):
    w = opened(theme=theme, width=width)
    scan(12)
    w.chip("all").click()
    w.root.get_by_text("28 more findings").click()
    for i in (6, 11):  # a row that differs; one that is made of three
        w.row(i).click()
        scan(12)
    w.text.fill("no such name")
    scan(12)
    page.evaluate("document.execCommand = () => false")
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    w.root.get_by_role("button", name="Copy mapping").click()
    expect(w.status).to_contain_text("Ctrl+C")
    scan(12)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_its_own_is_live_and_has_no_violation(page, scan, scheme, tmp_path):
    problems = []
    page.on("pageerror", lambda e: problems.append(str(e)))
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.emulate_media(color_scheme=scheme)
    inner = re.search(r'srcdoc="(.*?)"></iframe>', pairing.as_page(REPORT).data, re.DOTALL)[1]
    # axe itself is a script the page's own policy would rightly refuse.
    text = re.sub("<meta http-equiv[^>]*>", "", html.unescape(inner))
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    page.goto((tmp_path / "page.html").as_uri())
    w = Opened(page, page.locator(".mk-pairing[data-ready=true]"))
    w.row(8).click()
    expect(w.detail).to_contain_text("nothing fits")
    scan(12)
    assert problems == []


def test_a_page_in_its_frame_asks_for_nothing(page):
    requests, problems = [], []
    page.on("request", lambda r: requests.append(r.url))
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.set_content(f"<!doctype html><body>{pairing.as_page(REPORT).data}</body>")
    inner = page.frame_locator("iframe")
    inner.locator('[data-row="8"]').click()
    expect(inner.locator(".mk-pair-detail")).to_contain_text("nothing fits")
    assert [u for u in requests if not u.startswith(("about:", "data:"))] == []
    assert problems == []


# --- a real JupyterLab ---

CELL = """
import torch
import migrate_kit as mk
from migrate_kit.widgets.pairing import PairingWidget

model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(60)))
saved = torch.nn.DataParallel(model).state_dict()
saved["module.60.weight"] = torch.zeros(3)
PairingWidget(mk.diagnose(model, saved))
"""


@pytest.mark.slow
def test_in_jupyterlab(page, lab):
    from lab import Notebook, write_notebook

    write_notebook(lab.root / "pairing_widget.ipynb", CELL)
    notebook = Notebook(page, lab)
    notebook.open("pairing_widget.ipynb")
    notebook.run_all()
    root = page.locator(".mk-pairing[data-ready=true]")
    expect(root).to_have_count(1, timeout=15_000)
    w = Opened(page, root)
    w.row(120).click()
    expect(w.detail).to_contain_text("module.60.weight")
    notebook.type_everywhere_in(root)
    w.text.fill("")
    w.chip("all").click()
    w.keys("End", "ArrowUp", "Enter")
    expect(w.row(119)).to_have_attribute("aria-expanded", "true")
    assert notebook.problems == []
