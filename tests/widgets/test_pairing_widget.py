"""The Python half of the widget: what it sends, and what it shows where it cannot run."""

from __future__ import annotations

import base64
import html
import json
import re

import pytest
import torch

import migrate_kit as mk
from migrate_kit.checkpoints.load_rows import LoadRow
from migrate_kit.errors import MigrateError
from migrate_kit.results import Finding
from migrate_kit.widgets import pairing
from migrate_kit.widgets.pairing import PairingWidget, as_page, table_of, write_page


class Report:
    """A diagnosis of rows that no model has."""

    def __init__(self, rows, findings=()):
        self.rows, self.findings = rows, list(findings)

    def __repr__(self):
        return "LoadReport(1 missing)"

    def _repr_html_(self):
        return "<table><tr><td>the static table</td></tr></table>"


def row(key, source, status="renamed", shape=(8, 4), dtype="float32", **more):
    """Return a pairing whose sides are alike; a side without a name has nothing else either."""
    ours = (shape, dtype) if key else (None, "")
    theirs = (shape, dtype) if source is not None else (None, "")
    fields = {"source_shape": theirs[0], "source_dtype": theirs[1], **more}
    return LoadRow(key or "", *ours, source, status=status, **fields)


@pytest.fixture
def report():
    rows = [
        row("conv.weight", "module.conv.weight", rule="prefix", reason="saved from DataParallel"),
        row("conv.bias", "conv.bias", "same name", shape=(8,)),
        row("fc.weight", "fc.weight", "shape differs", source_shape=(5, 4)),
        row("new.weight", None, "missing"),
        row(None, "old.weight", "unexpected", shape=()),
        row("qkv", "q + k + v", "made"),
    ]
    return Report(rows, [Finding("error", "1 place stays empty", "new.weight", "load a file")])


def columns_of(report, *most):
    return json.loads(table_of(report, *most))["columns"]


def words(column):
    return [column["words"][i] for i in column["at"]]


def test_the_table_travels_as_columns(report):
    table = json.loads(table_of(report))
    columns = table["columns"]
    assert (table["count"], table["total"], table["rows"], table["cut"]) == (6, 6, None, [])
    # An empty key is no key; a name that both have travels once; three names make one tensor.
    assert columns["key"] == ["conv.weight", "conv.bias", "fc.weight", "new.weight", None, "qkv"]
    assert columns["source"] == ["module.conv.weight", 0, 0, None, "old.weight", "q + k + v"]
    assert (table["keys"], table["sources"]) == (5, 7)
    assert words(columns["shape"]) == ["8×4", "8", "8×4", "8×4", "", "8×4"]
    assert words(columns["source_shape"]) == ["8×4", "8", "5×4", "", "scalar", "8×4"]
    assert words(columns["status"])[2:5] == ["shape differs", "missing", "unexpected"]
    assert columns["reason"]["words"] == ["saved from DataParallel", ""]
    assert table["findings"] == [["error", "1 place stays empty", "new.weight", "load a file"]]


def test_none_for_a_key_is_no_key_either(report):
    class Plain:
        key = shape = dtype = None
        source, source_shape, source_dtype = "a", (2,), "torch.float16"
        status, rule, reason = "unexpected", "", ""

    table = json.loads(table_of(Report([Plain()])))
    assert table["columns"]["key"] == [None]
    assert table["keys"] == 0
    assert words(table["columns"]["source_dtype"]) == ["float16"]


def test_10000_rows_are_a_megabyte_and_a_half_at_most():
    rows = [
        row(
            f"model.layers.{i}.self_attn.q_proj.weight",
            f"module.model.layers.{i}.self_attn.q_proj.weight",
            reason="saved from nn.DataParallel or DistributedDataParallel",
        )
        for i in range(10_000)
    ]
    assert len(table_of(Report(rows)).encode()) < 1_500_000


def test_names_from_strangers_are_cut_and_then_never_copied():
    rows = [row("a", "b"), row("n" * 10**6, "b", reason="r" * 10**6)]
    table = json.loads(table_of(Report(rows, [Finding("info", "w" * 10**6)])))
    assert table["cut"] == [1]
    assert len(table["columns"]["key"][1]) < 500
    assert len(table["columns"]["reason"]["words"][1]) < 500
    assert len(table["findings"][0][1]) < 500


def test_half_a_surrogate_pair_gets_through_the_wire():
    name = "conv\ud800.weight"
    sent = table_of(Report([row("a", name)])).encode()
    assert json.loads(sent)["columns"]["source"] == [name]


def test_where_not_all_is_sent_plain_matches_stay_behind():
    rows = [row(f"same{i}", f"same{i}", "same name") for i in range(500)]
    rows.insert(200, row("new", None, "missing"))
    table = json.loads(table_of(Report(rows), 5_000))
    assert 20 < table["count"] < 200
    assert table["total"] == 501
    assert table["rows"] == [*range(table["count"] - 1), 200]
    assert table["columns"]["key"][-1] == "new"
    assert len(table_of(Report(rows), 5_000)) < 6_000


def test_findings_have_a_limit(report):
    report.findings = [Finding("info", str(i)) for i in range(50)]
    table = json.loads(table_of(report))
    assert (len(table["findings"]), table["more"]) == (20, 30)


def test_no_rows_at_all():
    assert json.loads(table_of(Report([])))["count"] == 0


def test_a_real_diagnosis():
    model = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.BatchNorm1d(2))
    saved = torch.nn.DataParallel(model).state_dict()
    saved["module.2.weight"] = torch.zeros(3)
    report = mk.diagnose(model, saved)
    columns = columns_of(report)
    assert columns["key"][:2] == ["0.weight", "0.bias"]
    assert columns["source"][:2] == ["module.0.weight", "module.0.bias"]
    assert columns["key"][-1] is None
    assert set(words(columns["status"])) == {"renamed", "unexpected"}
    assert PairingWidget(report)._static_html() == report._repr_html_()


def test_repr_is_one_line_without_an_address(report):
    assert repr(PairingWidget(report)) == "LoadReport(1 missing)"


def test_static_html_stands_beside_the_live_view(report):
    data, _ = PairingWidget(report)._repr_mimebundle_()
    assert data["text/html"] == report._repr_html_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["text/plain"] == repr(report)


# --- what is sent to the browser ---


@pytest.mark.parametrize("name", ["pair-mark", "pair-chosen"])
def test_every_colour_is_set_for_light_and_for_dark(name):
    assert pairing.style().count(f"--mk-{name}:") == 2


def test_no_rule_reaches_another_widget_on_the_page():
    own = pairing.joined("pairing.css")
    rules = re.sub(r"/\*.*?\*/|\{[^}]*\}", "\n", own, flags=re.DOTALL)
    selectors = [s for s in (line.strip() for line in rules.split("\n")) if s]
    assert len(selectors) > 50
    assert [s for s in selectors if ".mk-pairing" not in s] == []


# --- as_page ---


def page_of(output):
    return html.unescape(re.search(r'srcdoc="(.*)"></iframe>', output.data, re.DOTALL)[1])


def table_in(text):
    kept = re.search(r"id='data' type='text/plain'>([^<]*)<", text)[1]
    return json.loads(json.loads(base64.b64decode(kept))["table"])


def test_page_is_sandboxed_and_may_load_nothing(report):
    output = as_page(report)
    assert "sandbox='allow-scripts'" in output.data
    assert "default-src 'none'" in page_of(output)
    assert not re.search(r"(src|href)\s*=", page_of(output))
    assert table_in(page_of(output)) == json.loads(table_of(report))


def test_page_has_a_size_limit():
    rows = [row(f"{'k' * 80}.{i}", f"{'s' * 80}.{i}") for i in range(20_000)]
    output = as_page(Report(rows))
    assert len(output.data) < 2_500_000
    table = table_in(page_of(output))
    assert 4_000 < table["count"] < table["total"] == 20_000


def test_hostile_names_cannot_leave_the_page():
    name = "</script><script>alert(1)</script>\"'><img src=x>"
    output = as_page(Report([row(name, name, reason=name, rule=name)], [Finding("info", name)]))
    assert "alert(1)" not in output.data
    assert "<img" not in page_of(output)


def test_a_page_on_disk_is_the_page_in_the_frame(report, tmp_path):
    path = write_page(report, tmp_path / "new" / "load.html")
    assert path.read_text(encoding="utf-8") == page_of(as_page(report))
    with pytest.raises(MigrateError, match="cannot write"):
        write_page(report, path / "below a file.html")
