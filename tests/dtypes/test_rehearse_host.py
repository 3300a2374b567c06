"""What leaves the NPU: products that the host computes, and calls at which the host waits."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torchvision.ops import nms

import migrate_kit as mk
from migrate_kit.dtypes import look as looked
from migrate_kit.dtypes.support import lookup

LINES = Path(__file__).read_text(encoding="utf-8").splitlines()


def line_of(mark):
    (found,) = [n for n, text in enumerate(LINES, 1) if text.endswith(f"# {mark}")]
    return f"{Path(__file__).name}:{found}"


def values(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


@pytest.fixture
def tables(monkeypatch):
    """Let the tables say something else of the operators whose names are given."""

    def say(status, *ops):
        def other(op, dtypes, target):
            found = lookup(op, dtypes, target)
            return replace(found, status=status) if not ops or op in ops else found

        monkeypatch.setattr(looked, "lookup", other)

    return say


def numbers(model, *inputs, **options):
    return mk.rehearse(model, *inputs, **({"target": "ascend310p", "tensors": True} | options))


# --- products that the host computes --------------------------------------------------------------


@pytest.mark.parametrize("status", ["fallback", "refused"])
def test_the_operands_of_a_convolution_on_the_host_are_not_rounded(tables, status):
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 5)), values(1, 3, 6, 6)
    there = numbers(model, x)
    assert there.rounded == {"convolution": 1, "addmm": 1}
    assert there.hosted == {}
    tables(status, "aten.convolution.default")
    mixed = numbers(model, x)
    assert mixed.rounded == {"addmm": 1}
    assert mixed.hosted == {"convolution": 1}
    rows = {r.layer: r for r in mixed.diff.rows}
    assert rows["0"].rel_l2 == 0
    assert rows["2"].rel_l2 > 1e-5
    (said,) = [f for f in mixed.findings if "not run on ascend310p" in f.what]
    assert said.where == "convolution"


class Tbc(nn.Module):
    def forward(self, x, w):
        return torch.conv_tbc(x, w, torch.zeros(3))


def test_it_is_the_tables_that_decide():
    found = numbers(Tbc(), values(4, 1, 8), values(1, 8, 3), target="ascend910b")
    status = lookup("aten.conv_tbc.default", ("float32",) * 3, "ascend910b").status
    away, here = (
        ({"conv_tbc": 1}, {}) if status in ("fallback", "refused") else ({}, {"conv_tbc": 1})
    )
    assert (found.hosted, found.rounded) == (away, here)


class Products(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x, w):
        x = self.linear(x)
        return torch.relu(x @ w)


def test_a_product_that_the_npu_has_whole_is_followed_into_its_parts(tables):
    x, w = values(4, 8), values(8, 8)
    assert numbers(Products(), x, w).rounded == {"addmm": 1, "mm": 1}
    tables("fallback", "aten.matmul.default")
    found = numbers(Products(), x, w)
    assert found.rounded == {"addmm": 1}
    assert found.hosted == {"mm": 1}


def test_what_shares_a_line_with_it_stays_on_the_npu(tables):
    class OneLine(nn.Module):
        def forward(self, x, w):
            return torch.addmm(w, x, w) @ w

    tables("fallback", "aten.matmul.default")
    found = numbers(OneLine(), values(8, 8), values(8, 8))
    assert found.rounded == {"addmm": 1}
    assert found.hosted == {"mm": 1}


def test_a_recurrent_layer_on_the_host_is_the_plain_one(tables):
    tables("fallback", "aten.lstm.input")
    found = numbers(nn.LSTM(8, 4), values(3, 2, 8))
    assert found.rounded == {}
    assert set(found.hosted) == {"addmm"}
    assert found.expected.rel_l2 < 1e-6


class Tagger(nn.Module):
    """Two recurrent layers from one line in a loop, beside the product of a linear layer."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.LSTM(8, 8), nn.LSTM(8, 8)])
        self.head = nn.Linear(8, 8)

    def forward(self, x):
        for layer in self.layers:
            x = self.head(layer(x)[0].flatten(0, 1)).view_as(x)
        return x


@pytest.mark.parametrize("grad", [False, True])
def test_every_call_of_it_on_the_host_is_followed_and_no_other(tables, grad):
    tables("fallback", "aten.lstm.input")
    found = numbers(Tagger(), values(3, 2, 8), tensors=False, backward=grad)
    assert found.rounded["addmm"] == 2
    assert found.hosted == {"addmm": 8}


def test_layers_without_a_line_of_the_users_are_told_apart_by_their_name(tables):
    tables("fallback", "aten.lstm.input")
    found = numbers(nn.Sequential(nn.Linear(8, 8), nn.LSTM(8, 4)), values(3, 8))
    assert (found.rounded, found.hosted) == ({"addmm": 1}, {"addmm": 4})


def test_another_dtype_of_the_same_operator_stays(monkeypatch):
    def other(op, dtypes, target):
        found = lookup(op, dtypes, target)
        mixed = op == "aten.convolution.default" and len(dtypes) == 2
        return replace(found, status="fallback") if mixed else found

    monkeypatch.setattr(looked, "lookup", other)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3, bias=False))
    found = numbers(model, values(1, 3, 8, 8))
    assert (found.rounded, found.hosted) == ({"convolution": 1}, {"convolution": 1})


def test_a_backward_on_the_host_is_not_rounded(tables):
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3)), values(1, 3, 6, 6)
    tables("fallback", "aten.convolution_backward.default")
    found = numbers(model, x, backward=True, tensors=False)
    assert found.rounded == {"convolution": 1}
    assert found.hosted == {"convolution_backward": 1}


def test_overflow_on_the_host_gives_inf(tables):
    class Grows(nn.Module):
        def forward(self, x):
            return (x * 1000).exp()

    assert any("saturate" in f.what for f in numbers(Grows(), torch.ones(3)).findings)
    tables("fallback", "aten.exp.default")
    found = numbers(Grows(), torch.ones(3))
    assert not any("saturate" in f.what for f in found.findings)
    assert found.hosted == {}  # it is no product


# --- where the host waits -------------------------------------------------------------------------


class Waits(nn.Module):
    def forward(self, x, i):
        boxes = x[:, :4].abs().cumsum(1)
        kept = nms(boxes, x[:, 0], 0.5)  # nms
        y = x.clone()
        y[x > 0] = 1.0  # put
        for _ in range(3):
            float(y.sum())  # item
        y = y[i]  # positions, which are known
        return kept, x.nonzero(), y[y > 0], i.unique(), x.masked_select(x > 0)  # many


def test_all_that_makes_the_host_wait_is_counted_and_named_by_line():
    found = mk.rehearse(Waits(), values(5, 4), torch.tensor([0, 1]), numbers=False)
    (said,) = [f for f in found.findings if "wait for the NPU" in f.what]
    assert said.what.startswith("9 calls make the host wait for the NPU: ")
    for kind in ("1 nms", "3 .item()", "2 a mask as index", "1 nonzero", "1 unique"):
        assert kind in said.what
    for mark, kind in (("nms", "nms"), ("put", "a mask as index"), ("item", ".item()")):
        assert f"{line_of(mark)} {kind}" in said.where
    assert sum(r.count for r in found.waits) == 9
    assert line_of("positions, which are known") not in {
        r.where.split("/")[-1] for r in found.waits
    }


def test_nothing_waits_in_a_plain_network():
    found = mk.rehearse(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), values(1, 3, 6, 6))
    assert found.waits == []
    assert not any("wait for the NPU" in f.what for f in found.findings)


# --- what is said ---------------------------------------------------------------------------------


def test_no_name_is_cut_in_two(tables):
    class Many(nn.Module):
        def forward(self, x):
            for name in (
                "sin",
                "cos",
                "tanh",
                "exp",
                "abs",
                "sinh",
                "cosh",
                "atan",
                "asinh",
                "erf",
            ):
                x = getattr(torch, name)(x)
            return x

    tables("not listed")
    found = mk.rehearse(Many(), values(3), numbers=False)
    (said,) = [f for f in found.findings if "do not decide" in f.what]
    names, _, more = said.where.partition(" and ")
    ops = [r.op for r in found.rows]
    assert names.split(", ") == ops[:8]
    assert more == "2 more"


@pytest.mark.parametrize("name", ["ascend910_93", "Ascend910_9391", "Atlas 800T A3", "910C"])
def test_a_target_that_anothers_tables_answer_for_is_said_to_be_one(name):
    found = mk.rehearse(nn.Linear(4, 4), values(2, 4), target=name)
    assert found.target == "ascend910_93"
    assert found.chip.target == "ascend910b"
    assert repr(found).startswith("Rehearsal(ascend910_93 as ascend910b, ")
    assert "ascend910_93 as ascend910b" in found._repr_html_()
    kept = found.to_dict()
    assert (kept["target"], kept["answered_by"]) == ("ascend910_93", "ascend910b")
    (said,) = [f for f in found.findings if f.level == "warning"]
    assert "answered by the tables and the arithmetic of ascend910b" in said.what


@pytest.mark.parametrize("name", ["Ascend310P3", "310p", "Atlas 300I Duo", "ascend310p"])
def test_another_name_of_the_same_chip_needs_no_word(name):
    found = mk.rehearse(nn.Linear(4, 4), values(2, 4), target=name, numbers=False)
    assert found.target == found.chip.target == "ascend310p"
    assert not [f for f in found.findings if "answered" in f.what]


@pytest.mark.parametrize("catches", [False, True])
def test_a_refusal_for_such_a_target_says_whose_it_is(catches):
    class Uses(nn.Module):
        def forward(self, x):
            try:
                return torch.relu(x.to(torch.float8_e5m2).float())
            except RuntimeError:
                if not catches:
                    raise
                return x

    with pytest.raises(
        mk.MigrateError, match="ascend910b, whose tables answer for ascend910_93, has"
    ):
        mk.rehearse(Uses(), values(3), target="ascend910_93", raise_on_unsupported=True)
