"""What every view sends to the browser: one module, that loads nothing and writes no markup."""

import pytest

from migrate_kit.widgets import environment, explain, layer_diff, pairing, view

ROOMS = pytest.mark.parametrize(
    "room", [environment, explain, layer_diff, pairing], ids=lambda r: r.__name__.rsplit(".", 1)[-1]
)


@ROOMS
def test_script_loads_nothing_and_writes_no_markup(room):
    code = room.script()
    assert code.count("export") == code.count("export default { render };") == 1
    for word in (
        "http:",
        "https:",
        "import(",
        "fetch(",
        "innerHTML",
        "insertAdjacentHTML",
        "eval(",
    ):
        assert word not in code
    assert "</script" not in code
    assert "url(" not in room.style()


def test_a_page_has_no_export_and_its_data_cannot_end_the_script():
    text = view.page("a < b", layer_diff.script(), "", "environment_page.js", {"x": "</script><b>"})
    assert "export" not in text
    assert "<title>a &lt; b</title>" in text
    assert "<b>" not in text


@ROOMS
def test_every_colour_of_a_state_is_set_for_light_and_for_dark(room):
    for name in ("--mk-quiet:", "--mk-error:", "--mk-warning:", "--mk-info:"):
        assert room.style().count(name) == 2
