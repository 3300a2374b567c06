"""The Python half of the widget: what it sends, when, and what it shows where it cannot run."""

from __future__ import annotations

import base64
import html
import json
import math
import re

import pytest
import torch

from migrate_kit.errors import MigrateError
from migrate_kit.layers.rows import LayerRow
from migrate_kit.widgets import LayerDiffWidget, as_page, wire
from migrate_kit.widgets.layer_diff import table_of, write_page


class Diff:
    """A comparison that counts how often its tensors are asked for."""

    def __init__(self, rows, tensors=None):
        self.rows, self.kept, self.asked = rows, tensors or {}, []

    def tensors(self, i):
        self.asked.append(i)
        return self.kept.get(i, (None, None))

    @property
    def first_divergence(self):
        return next((r for r in self.rows if r.verdict == "differs"), None)

    def __repr__(self):
        return "LayerDiff(2 of 4 layers differ)"

    def _repr_html_(self):
        return "<table><tr><td>the static table</td></tr></table>"


@pytest.fixture
def diff():
    rows = [
        LayerRow("conv1", "conv1", kind="Conv2d", shape=(1, 8), R=1.0123456789, nan=(1, 2)),
        LayerRow("fc", "fc", shape=(1, 8), candidate_shape=(1, 9), R=300.0, verdict="differs"),
        LayerRow("bn", "bn", R=math.inf, verdict="differs", channel="gradient"),
        LayerRow("", "extra", candidate_shape=(3,), verdict="unpaired"),
    ]
    return Diff(rows, {1: (torch.zeros(4), torch.ones(4))})


def answer_of(widget):
    return wire.unpack(widget.detail)


def test_the_table_travels_as_columns(diff):
    table = json.loads(table_of(diff))
    columns = table["columns"]
    assert (table["count"], table["first"]) == (4, 1)
    assert columns["layer"] == ["conv1", "fc", "bn", "extra"]
    assert columns["R"] == [1.0123, 300.0, "inf", None]
    shape = columns["shape"]
    assert [shape["words"][i] for i in shape["at"]] == ["1×8", "1×8 → 1×9", "", "3"]
    assert columns["channel"] == {"words": ["forward", "gradient"], "at": [0, 0, 1, 0]}
    assert columns["nan"] == {"0": [1, 2]}
    assert columns["inf"] == {}


def test_2000_rows_are_a_quarter_of_a_megabyte_at_most():
    rows = [
        LayerRow(
            f"model.layers.{i}.self_attn.q_proj", kind="Linear", shape=(1, 77, 768),
            R=1.234567, rel_l2=1.23456e-7, max_abs=1.23456e-6, rho=0.123456, bits=22.3456,
            arithmetic="fp32",
        )
        for i in range(2000)
    ]  # fmt: skip
    assert len(table_of(Diff(rows)).encode()) < 250_000


def test_names_from_strangers_are_cut_to_a_bounded_length():
    table = json.loads(table_of(Diff([LayerRow("n" * 10**6, kind="k" * 10**6)])))
    assert len(table["columns"]["layer"][0]) < 500
    assert len(table["columns"]["kind"]["words"][0]) < 200


def test_no_divergence():
    assert json.loads(table_of(Diff([LayerRow("a")])))["first"] == -1
    assert json.loads(table_of(Diff([])))["count"] == 0


def test_tensors_are_read_only_when_a_layer_is_asked_for(diff):
    widget = LayerDiffWidget(diff)
    widget.selected = 1
    assert diff.asked == []
    assert widget.detail == b""
    widget.request = {"number": 4, "row": 1}
    assert diff.asked == [1]
    header, arrays = answer_of(widget)
    assert (header["number"], header["row"], header["max"]) == (4, 1, 1.0)
    assert arrays["heat"].tolist() == [[1.0] * 4]


def test_an_answer_carries_the_number_of_its_question(diff):
    widget = LayerDiffWidget(diff)
    sent = []
    widget.observe(lambda change: sent.append(wire.unpack(change["new"])[0]["number"]), "detail")
    for number in (1, 2, 3):
        widget.request = {"number": number, "row": 1}
    assert sent == [1, 2, 3]


@pytest.mark.parametrize(
    "asked", [{}, {"row": 1}, {"row": "1", "number": 1}, {"row": None, "number": 2}]
)
def test_a_question_that_makes_no_sense_is_ignored(diff, asked):
    widget = LayerDiffWidget(diff)
    widget.request = asked
    assert widget.detail == b""


def test_an_exception_becomes_a_sentence_not_a_dead_widget(diff):
    widget = LayerDiffWidget(diff)
    diff.tensors = lambda i: 1 / 0
    widget.request = {"number": 1, "row": 0}
    assert "ZeroDivisionError" in answer_of(widget)[0]["message"]
    del diff.tensors
    widget.request = {"number": 2, "row": 1}
    assert answer_of(widget)[0]["max"] == 1.0


def test_repr_is_one_line_without_an_address(diff):
    assert repr(LayerDiffWidget(diff)) == "LayerDiff(2 of 4 layers differ)"


def test_static_html_stands_beside_the_live_view(diff):
    data, _ = LayerDiffWidget(diff)._repr_mimebundle_()
    assert data["text/html"] == diff._repr_html_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["text/plain"] == repr(diff)


# --- as_page ---


def page_of(output):
    return html.unescape(re.search(r'srcdoc="(.*)"></iframe>', output.data, re.DOTALL)[1])


def data_of(output):
    kept = re.search(r"id='data' type='text/plain'>([^<]*)<", page_of(output))[1]
    return json.loads(base64.b64decode(kept))


def test_page_is_sandboxed_and_may_load_nothing(diff):
    output = as_page(diff)
    assert "sandbox='allow-scripts'" in output.data
    assert "default-src 'none'" in page_of(output)
    assert not re.search(r"(src|href)\s*=", page_of(output))


def test_page_keeps_flagged_layers_first_and_says_how_many(diff):
    data = data_of(as_page(diff, rows=2))
    assert sorted(data["answers"]) == ["1", "2"]
    assert "2 of 4 layers" in data["absent"]
    assert "2 of 4 layers" in as_page(diff, rows=2).data
    assert data_of(as_page(diff, rows=0))["answers"] == {}


def test_page_answers_are_those_of_the_widget(diff):
    answer = data_of(as_page(diff))["answers"]["1"]
    header, arrays = wire.unpack(base64.b64decode(answer))
    assert header["max"] == 1.0
    assert arrays["heat"].tolist() == [[1.0] * 4]


def test_page_has_a_size_limit_and_states_its_size():
    rows = [LayerRow(f"l{i}", R=100.0 + i, verdict="differs") for i in range(200)]
    tensors = {i: (torch.randn(1, 64, 40, 40), torch.randn(1, 64, 40, 40)) for i in range(200)}
    output = as_page(Diff(rows, tensors), rows=200)
    kept = data_of(output)["answers"]
    assert 40 <= len(kept) < 200
    assert "0" in kept  # the first divergence
    assert "199" in kept  # and the largest R
    assert len(output.data) < 4_000_000
    assert f"{len(kept)} of 200 layers" in output.data
    assert re.search(r"\d\.\d MB", output.data)


def test_hostile_names_cannot_leave_the_page():
    name = "</script><script>alert(1)</script>\"'><img src=x>"
    output = as_page(Diff([LayerRow(name, verdict="differs", note=name)]))
    assert "alert(1)" not in output.data
    assert "<img" not in page_of(output)


def test_a_page_on_disk_is_the_page_in_the_frame(diff, tmp_path):
    path = write_page(diff, tmp_path / "new" / "diff.html")
    assert path.read_text(encoding="utf-8") == page_of(as_page(diff))
    with pytest.raises(MigrateError, match="cannot write"):
        write_page(diff, path / "below a file.html")
