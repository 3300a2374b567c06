"""The doctor's checklist in a bare page: copying, the two buttons, hostile text, axe."""

from __future__ import annotations

import html
import re
from types import SimpleNamespace

import pytest

from migrate_kit.environment.check import Check
from migrate_kit.widgets import environment
from migrate_kit.widgets.environment import as_page, checks_of

HOSTILE = "<img src=x onerror=\"document.title='hit'\"> </script> \u202e x\ny"
COMMAND = "export A='x $(id)' && echo \"<b>\""
CHECKS = [
    Check("a", "versions", "error", f"broken {HOSTILE}", f"because {HOSTILE}", COMMAND),
    Check("b", "Ascend", "warning", "look here", "a reason", "pip install 'numpy<2'"),
    Check("c", "Ascend", "info", "no NPU is here", "the rehearsal will run"),
    Check("d", "machine", "ok", "2 cores"),
]


def report(checks=CHECKS):
    return SimpleNamespace(checks=checks, target="ascend910b")


@pytest.fixture
def opened(page):
    """Open the checklist; a script error anywhere fails the test."""
    from conftest import PLAIN_HOST, fill

    problems = []
    page.on("pageerror", lambda e: problems.append(str(e)))

    def open_page(checks=CHECKS, *, theme="light", live=True):
        state = {"checks": checks_of(report(checks)), "live": live, "answer": ""}
        state["request"] = {"number": 0, "action": "", "name": ""}
        fill(page, PLAIN_HOST, environment, state, theme)
        root = page.locator(".mk-env[data-ready=true]")
        root.wait_for()
        return root

    yield open_page
    assert problems == []


def test_what_is_in_order_is_shown_on_demand(opened):
    root = opened()
    assert root.get_by_role("listitem").count() == 3
    button = root.get_by_role("button", name=re.compile("Show (all|less)"))
    button.click()
    assert root.get_by_role("listitem").count() == 4
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert root.get_by_role("listitem").count() == 3


def test_a_command_is_copied_exactly(opened, page):
    root = opened()
    page.evaluate(
        "Object.defineProperty(navigator, 'clipboard',"
        " { value: { writeText: async (t) => { window.copied = t } } })"
    )
    root.get_by_role("button", name="Copy the command").first.click()
    page.wait_for_function("window.copied")
    assert page.evaluate("window.copied") == COMMAND
    assert root.get_by_role("status").inner_text() == "The command is copied."


def test_without_a_clipboard_the_command_is_selected(opened, page):
    root = opened()
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.evaluate("document.execCommand = () => false")
    root.get_by_role("button", name="Copy the command").first.click()
    page.wait_for_function("getSelection().toString()")
    assert page.evaluate("getSelection().toString()") == COMMAND
    assert root.get_by_role("button", name="Copy the command").first.inner_text() == "Press Ctrl+C"


def test_hostile_text_is_shown_as_text(opened, page):
    root = opened()
    assert root.locator("img").count() == 0
    assert page.title() == "bare page"
    assert "<img src=x" in root.inner_text()
    assert "‹202E›" in root.inner_text()


def test_the_buttons_ask_python_and_show_its_answer(opened, page):
    root = opened()
    root.get_by_role("textbox", name="Name of the kernel").fill("mine")
    root.get_by_role("button", name="Write a kernel").click()
    asked = page.evaluate("model.saved.at(-1)")
    assert asked == {"number": 1, "action": "kernel", "name": "mine"}
    page.evaluate("model.set('answer', JSON.stringify({number: 9, ok: true, text: 'old'}))")
    assert root.get_by_role("status").inner_text() == "Writing ..."
    page.evaluate("model.set('answer', JSON.stringify({number: 1, ok: false, text: 'a\\n<b>'}))")
    assert root.get_by_role("status").inner_text() == "a\n<b>"
    root.get_by_role("button", name="Write env.sh").click()
    assert page.evaluate("model.saved.at(-1).action") == "script"


def test_cleaning_up_leaves_nothing(opened, page):
    opened()
    page.evaluate("cleanup()")
    assert page.locator(".mk-env").count() == 0
    assert page.evaluate("Object.values(model.handlers).every((s) => s.size === 0)")


def test_nothing_to_do_is_said(opened):
    assert "everything is in order" in opened([CHECKS[3]]).inner_text()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_violation(opened, page, scan, theme):
    opened(theme=theme).get_by_role("button", name="Show all").click()
    scan(8)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_its_own_is_live_and_has_no_violation(page, scan, scheme, tmp_path):
    page.emulate_media(color_scheme=scheme)
    inner = re.search(r'srcdoc="(.*?)"></iframe>', as_page(report()).data, re.DOTALL)[1]
    # axe itself is a script the page's own policy would rightly refuse.
    text = re.sub("<meta http-equiv[^>]*>", "", html.unescape(inner))
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    page.goto((tmp_path / "page.html").as_uri())
    root = page.locator(".mk-env[data-ready=true]")
    assert root.get_by_role("listitem").count() == 3
    assert root.get_by_role("textbox").count() == 0
    scan(8)
