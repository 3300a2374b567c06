"""The box to paste into, in a bare page: asking, copying, languages, hostile text, axe."""

from __future__ import annotations

import pytest

import migrate_kit as mk
from migrate_kit.widgets import explain
from migrate_kit.widgets.explain import MOST_SENT, answer_of

KNOWN = "AttributeError: 'collections.OrderedDict' object has no attribute 'eval'"
HOSTILE = "<img src=x onerror=\"document.title='hit'\"> </script> \u202e "
LOG = (
    f"{HOSTILE}{KNOWN}\nerror code is 507011\n"
    "UserWarning: Device do not support double dtype now\nATC run success, welcome to the next use."
)


@pytest.fixture
def opened(page):
    """Open the box; a script error anywhere fails the test."""
    from conftest import PLAIN_HOST, fill

    problems = []
    page.on("pageerror", lambda e: problems.append(str(e)))

    def open_page(text="", *, theme="light", language="en", width=1000):
        page.set_viewport_size({"width": width, "height": 900})
        answer = answer_of(mk.explain(text), 0) if text else ""
        state = {"text": text, "language": language, "answer": answer, "most": MOST_SENT}
        state["request"] = {"number": 0, "text": ""}
        fill(page, PLAIN_HOST, explain, state, theme)
        root = page.locator(".mk-explain[data-ready=true]")
        root.wait_for()
        return root

    yield open_page
    assert problems == []


def give(page):
    """Answer the newest request as Python does."""
    asked = page.evaluate("model.get('request')")
    page.evaluate(
        "(a) => model.set('answer', a)", answer_of(mk.explain(asked["text"]), asked["number"])
    )


def box_of(root):
    return root.get_by_role("textbox", name="Error message or log")


def test_paste_and_press(opened, page):
    root = opened()
    box_of(root).fill(KNOWN)
    root.get_by_role("button", name="Explain").click()
    assert page.evaluate("model.get('request')") == {"number": 1, "text": KNOWN}
    assert root.get_by_role("status").inner_text() == "Reading …"
    give(page)
    answer = mk.explain(KNOWN).root
    heading = root.get_by_role("heading", level=3)
    assert heading.inner_text().startswith(answer.meaning)
    assert "SCR02" in heading.inner_text()
    for part in (KNOWN, answer.cause, answer.fix, answer.command, answer.next_check, answer.source):
        assert part in root.locator(".mk-root-answer").inner_text()
    assert answer.meaning in root.get_by_role("status").inner_text()


def test_the_keyboard_alone_is_enough(opened, page):
    root = opened()
    box_of(root).focus()
    page.keyboard.insert_text("OddError: nothing known")
    page.keyboard.press("Control+Enter")
    give(page)
    assert "No known error" in root.inner_text()
    assert "line 1" in root.locator(".mk-result").inner_text()
    stops = []
    for _ in range(4):
        stops.append(page.evaluate("document.activeElement.tagName"))
        page.keyboard.press("Tab")
    assert stops == ["TEXTAREA", "BUTTON", "BUTTON", "SELECT"]


def test_what_takes_the_focus_keeps_its_keys(opened):
    root = opened(LOG)
    kept = root.locator("textarea, button, select, summary")
    assert kept.count() > 4
    suppress = "els => els.every(e => e.dataset.lmSuppressShortcuts === 'true')"
    assert kept.evaluate_all(suppress)


def test_an_answer_to_an_older_text_is_dropped(opened, page):
    root = opened()
    for text in ("first", KNOWN):
        box_of(root).fill(text)
        root.get_by_role("button", name="Explain").click()
    late = answer_of(mk.explain("NPU out of memory. Tried to allocate 1.00 GiB"), 1)
    page.evaluate("(a) => model.set('answer', a)", late)
    assert root.get_by_role("heading").count() == 0
    give(page)
    assert "SCR02" in root.get_by_role("heading", level=3).inner_text()


def test_an_empty_box_asks_nothing(opened, page):
    root = opened()
    box_of(root).fill("  \n")
    root.get_by_role("button", name="Explain").click()
    assert page.evaluate("model.saved.length") == 0
    assert "Paste a message" in root.get_by_role("status").inner_text()


def test_no_kernel_is_said_at_once(opened, page):
    root = opened()
    page.evaluate("document.querySelector('#here').classList.add('jupyter-widgets-disconnected')")
    box_of(root).fill(KNOWN)
    root.get_by_role("button", name="Explain").click()
    assert "No kernel" in root.get_by_role("status").inner_text()
    assert page.evaluate("model.saved.length") == 0


def test_of_a_very_long_text_the_ends_are_sent(opened, page):
    root = opened()
    page.evaluate(
        "(n) => { document.querySelector('textarea').value = 'a' + 'x'.repeat(n) + 'z' }", MOST_SENT
    )
    root.get_by_role("button", name="Explain").click()
    sent = page.evaluate("model.get('request').text")
    assert len(sent) <= MOST_SENT + 1
    assert (sent[0], sent[-1]) == ("a", "z")
    assert "1,000,000" in root.get_by_role("status").inner_text()


def test_a_command_is_copied_exactly(opened, page):
    root = opened(KNOWN)
    page.evaluate(
        "Object.defineProperty(navigator, 'clipboard',"
        " { value: { writeText: async (t) => { window.copied = t } } })"
    )
    root.get_by_role("button", name="Copy: ").click()
    page.wait_for_function("window.copied")
    assert page.evaluate("window.copied") == mk.explain(KNOWN).root.command
    assert root.get_by_role("status").inner_text() == "The command is copied."


def test_without_a_clipboard_the_command_is_selected(opened, page):
    root = opened(KNOWN)
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.evaluate("document.execCommand = () => false")
    root.get_by_role("button", name="Copy: ").click()
    page.wait_for_function("getSelection().toString()")
    assert page.evaluate("getSelection().toString()") == mk.explain(KNOWN).root.command
    assert root.get_by_role("status").inner_text() == "The command is selected."


def test_the_language_changes_in_place(opened, page):
    root = opened(LOG)
    root.get_by_role("combobox", name="Language").select_option("zh")
    chinese = mk.explain(LOG, "zh").root
    assert chinese.cause in root.inner_text()
    assert root.get_by_role("button", name="解释").count() == 1
    assert root.get_attribute("lang") == "zh"
    assert page.evaluate("model.get('language')") == "zh"
    assert mk.explain(LOG).root.cause not in root.inner_text()


def test_other_answers_and_harmless_lines_stand_apart(opened):
    root = opened(LOG)
    others = root.get_by_role("region", name="Also in this text")
    assert others.locator("summary").count() == 2
    detail = others.locator("details").first
    assert detail.locator("dl").is_hidden()
    detail.locator("summary").click()
    assert detail.locator("dl").is_visible()
    assert "ATC run success" in root.get_by_role("region", name="Harmless lines").inner_text()


def test_hostile_text_is_shown_as_text(opened, page):
    root = opened(LOG)
    assert root.locator("img").count() == 0
    assert page.title() == "bare page"
    assert "<img src=x" in root.locator(".mk-line").first.inner_text()
    assert "‹202E›" in root.inner_text()
    assert root.locator("textarea").input_value().startswith("<img src=x")


def test_clear_takes_text_and_answer_away(opened):
    root = opened(LOG)
    root.get_by_role("button", name="Clear").click()
    assert box_of(root).input_value() == ""
    assert root.get_by_role("heading").count() == 0


def test_nothing_is_left_behind(opened, page):
    opened(LOG)
    page.evaluate("cleanup()")
    assert page.evaluate("model.count()") == 0
    assert page.locator("#here > *").count() == 0


@pytest.mark.parametrize("width", [320, 1000])
def test_nothing_is_wider_than_the_page(opened, page, width):
    opened(f"{'y' * 600} {KNOWN}", width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("text", ["", LOG, "OddError: unknown"])
def test_no_violation(opened, scan, theme, text):
    root = opened(text, theme=theme)
    for summary in root.locator("summary").all():
        summary.click()
    scan(10)
