"""Verdicts, origins, formats and what a row says where nothing can be measured."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import migrate_kit as mk

from . import zoo

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 8, 3),
        nn.Flatten(),
        nn.Linear(8 * 14 * 14, 10),
    ).eval()


X = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(9))


def test_two_equal_runs_are_equal(net: nn.Module) -> None:
    diff = mk.compare(mk.capture(net, X), mk.capture(net, X))
    assert diff.ok
    assert diff.first_divergence is None
    assert [r.R for r in diff.rows] == [0.0] * len(diff.rows)
    assert repr(diff) == f"LayerDiff({len(diff.rows)} rows, all same)"


@pytest.mark.parametrize(
    ("rounding", "name"),
    [
        (zoo.hf32, "HF32"),
        (lambda t: t.half().float(), "TF32/fp16"),
        (lambda t: t.bfloat16().float(), "bf16"),
        (lambda t: (t / (s := t.abs().max() / 127)).round() * s, "int8"),
    ],
)
def test_bits_name_the_arithmetic_of_one_layer(net: nn.Module, rounding: object, name: str) -> None:
    reference = mk.capture(net, X)
    other = copy.deepcopy(net)
    conv = other[3]
    conv.weight.data = rounding(conv.weight.data)  # type: ignore[operator]
    forward = conv.forward
    conv.forward = lambda x: forward(rounding(x))  # type: ignore[operator, method-assign]
    diff = mk.compare(reference, mk.capture(other, X))
    assert diff.first_divergence is not None
    assert diff.first_divergence.layer == "3"
    assert diff.first_divergence.arithmetic == name
    assert diff.first_divergence.origin == "made here"
    rows = {r.layer: r for r in diff.rows}
    assert rows["0"].arithmetic == rows["5"].arithmetic == "fp32"
    assert rows["5"].origin == "inherited"
    assert name in diff.findings[0].fix or name == "int8"


def test_a_wrong_scale_is_not_taken_for_a_format(net: nn.Module) -> None:
    """0.1 % is about what bfloat16 loses, but rounding does not follow the output."""
    other = copy.deepcopy(net)
    other[3].weight.data *= 1.001
    other[3].bias.data *= 1.001
    diff = mk.compare(mk.capture(net, X), mk.capture(other, X))
    assert diff.made_here[0].arithmetic == "not rounding"
    assert diff.findings[0].fix == "compare this layer's weights and settings"


def test_a_layer_that_rounds_its_own_input_is_named_not_its_padding() -> None:
    class Padded(nn.Conv2d):
        def __init__(self) -> None:
            super().__init__(3, 4, 3)
            self.pad = nn.ZeroPad2d(1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(self.pad(x))

    model = nn.Sequential(Padded())
    reference = mk.capture(model, X)
    other = copy.deepcopy(model)
    forward = other[0].forward
    other[0].forward = lambda x: forward(zoo.hf32(x))  # type: ignore[method-assign]
    diff = mk.compare(reference, mk.capture(other, X))
    assert diff.first_divergence is not None
    assert (diff.first_divergence.layer, diff.first_divergence.origin) == ("0.pad", "inherited")
    assert "made in '0' around it" in diff.findings[0].what
    assert "HF32" in diff.findings[0].fix


def test_rho_separates_rounding_from_a_wrong_weight(net: nn.Module) -> None:
    reference = mk.capture(net, X)
    with torch.backends.mkldnn.flags(enabled=False, allow_tf32=None):
        clean = mk.compare(reference, mk.capture(net, X))
    n = net[0].weight[0].numel()
    assert 0 < {r.layer: r for r in clean.rows}["0"].rho < 8
    other = copy.deepcopy(net)
    other[0].weight.data[0, 0, 0, 0] += 0.01
    wrong = {r.layer: r for r in mk.compare(reference, mk.capture(other, X)).rows}["0"]
    assert wrong.rho > n
    assert "no float32 summation" in wrong.note


def test_a_lower_format_is_judged_by_its_own_yardstick(net: nn.Module) -> None:
    reference = mk.capture(net, X)
    low = mk.capture(mk.TorchRunner(net, dtype=torch.bfloat16), X)
    assert not mk.compare(reference, low).ok
    floor = mk.noise_floor(net, X, dtype=torch.bfloat16)
    diff = mk.compare(reference, low, noise=floor)
    assert diff.ok
    assert not [r for r in diff.rows if r.origin]
    other = copy.deepcopy(net)
    other[3].weight.data[2] = 0
    found = mk.compare(
        reference, mk.capture(mk.TorchRunner(other, dtype=torch.bfloat16), X), noise=floor
    )
    assert found.first_divergence is not None
    assert found.first_divergence.layer == "3"
    assert [r.layer for r in found.made_here] == ["3"]


def test_a_functional_fault_between_layers_is_inherited_by_the_next() -> None:
    class Net(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            torch.manual_seed(2)
            self.a, self.b, self.factor = nn.Linear(16, 16), nn.Linear(16, 16), factor

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(x) * self.factor)

    x = torch.randn(4, 16)
    diff = mk.compare(mk.capture(Net(1.0), x), mk.capture(Net(1.001), x))
    first = diff.first_divergence
    assert first is not None
    assert (first.layer, first.origin) == ("b", "inherited")
    assert "between this layer and the one before it" in diff.findings[0].fix


def test_shapes_that_differ_are_a_row_that_says_so(net: nn.Module) -> None:
    other = copy.deepcopy(net)
    other[0].padding = (0, 0)
    other[5] = nn.Linear(8 * 12 * 12, 10)
    diff = mk.compare(mk.capture(net, X), mk.capture(other, X))
    first = diff.first_divergence
    assert first is not None
    assert first.layer == "0"
    assert first.note == "shape 2x16x16x16 against 2x16x14x14"
    assert first.origin == "made here"
    assert math.isnan(first.R)


def test_nan_in_one_run_only(net: nn.Module) -> None:
    x = X.clone()
    x[0, 0, 0, 0] = math.nan
    diff = mk.compare(mk.capture(net, X), mk.capture(net, x))
    assert diff.first_divergence is not None
    assert diff.first_divergence.layer == "input"
    assert diff.rows[0].nan == (0, 1)
    assert mk.compare(mk.capture(net, x), mk.capture(net, x)).ok
    trace = mk.capture(net, x)
    assert trace.findings[0].where == "input"
    assert "NaN or Inf from 'input' on" in repr(trace)


@pytest.mark.parametrize("keep", ["sketch", "statistics"])
def test_less_than_tensors_still_finds_the_layer(net: nn.Module, keep: str) -> None:
    options = {"tensors": False, "sketches": keep == "sketch"}
    other = copy.deepcopy(net)
    other[3].weight.data *= 1.05
    a = mk.capture(net, X, **options)
    diff = mk.compare(a, mk.capture(other, X, **options))
    assert diff.first_divergence is not None
    assert diff.first_divergence.layer == "3"
    assert {r.source for r in diff.rows} == {keep}
    assert diff.tensors(1) == (None, None)
    assert mk.compare(a, mk.capture(net, X, **options)).ok


def test_without_a_model_the_yardstick_is_assumed_and_says_so(
    net: nn.Module, tmp_path: Path
) -> None:
    mk.capture(net, X, store=tmp_path / "a")
    with torch.backends.mkldnn.flags(enabled=False, allow_tf32=None):
        mk.capture(net, X, store=tmp_path / "b")
    diff = mk.compare(tmp_path / "a", tmp_path / "b")
    assert diff.ok
    assert "assumed" in diff.findings[0].what
    path = mk.noise_floor(net, X).to_file(tmp_path / "noise.json")
    diff = mk.compare(tmp_path / "a", tmp_path / "b", noise=mk.NoiseFloor.from_file(path))
    assert diff.findings == []
    assert 0.1 < max(r.R for r in diff.rows) < 3
    path.write_text("{}")
    with pytest.raises(mk.MigrateError, match="not a noise floor"):
        mk.NoiseFloor.from_file(path)


def test_a_network_that_cannot_run_in_float64_is_compared_all_the_same() -> None:
    class Single(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.dtype != torch.float32:
                raise TypeError("float32 only")
            return self.fc(x)

    model, x = Single(), torch.ones(1, 4)
    diff = mk.compare(mk.capture(model, x), mk.capture(model, x))
    assert diff.ok
    assert any("no float64 run was possible" in f.what for f in diff.findings)


def test_integers_are_exact(net: nn.Module) -> None:
    class Top(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.flatten(1).argmax(1)

    a = mk.capture(Top(), X)
    assert mk.compare(a, mk.capture(Top(), X)).ok
    assert not mk.compare(a, mk.capture(Top(), X.flip(3))).ok


# --- pairing --------------------------------------------------------------------------------------


def test_other_names_are_paired_by_structure(net: nn.Module) -> None:
    other = nn.Sequential()
    for i, layer in enumerate(net):
        other.add_module(f"block{i}", layer)
    a, b = mk.capture(net, X), mk.capture(other, X)
    diff = mk.compare(a, b)
    assert [r.candidate for r in diff.rows[1:-1]] == [f"block{i}" for i in range(6)]
    assert diff.ok
    mapping = {str(i): f"block{i}" for i in range(6)}
    assert [r.candidate for r in mk.compare(a, b, mapping).rows] == [r.candidate for r in diff.rows]
    with pytest.raises(mk.MigrateError, match="no layer 'block9'"):
        mk.compare(a, b, {"0": "block9"})
    with pytest.raises(mk.MigrateError, match="unknown pairing"):
        mk.compare(a, b, "guess")  # type: ignore[arg-type]


def test_what_has_no_counterpart_is_listed_on_either_side(net: nn.Module) -> None:
    shorter = copy.deepcopy(net)
    shorter[2] = nn.Identity()
    longer = nn.Sequential(*copy.deepcopy(net)[:3], nn.Hardswish(), *copy.deepcopy(net)[3:]).eval()
    a = mk.capture(net, X)
    diff = mk.compare(a, mk.capture(longer, X), "structure")
    alone = [r for r in diff.rows if r.verdict == "unpaired"]
    assert [(r.layer, r.candidate, r.note) for r in alone] == [("", "3", "only in the candidate")]
    assert diff.rows.index(alone[0]) == 4  # after input, 0, 1, 2
    back = mk.compare(mk.capture(longer, X), a, "structure")
    assert [(r.layer, r.note) for r in back.rows if r.verdict == "unpaired"] == [
        ("3", "no counterpart in the candidate")
    ]


# --- what a result has ----------------------------------------------------------------------------


def test_a_result_has_a_frame_a_page_and_a_place(net: nn.Module) -> None:
    other = copy.deepcopy(net)
    other[3].weight.data *= 1.05
    diff = mk.compare(mk.capture(net, X), mk.capture(other, X))
    frame = diff.to_frame()
    assert list(frame["layer"]) == [r.layer for r in diff.rows]
    page = diff._repr_html_()
    assert "<script" not in page
    assert "made here" in page
    ours, theirs = diff.tensors(4)
    assert ours is not None
    assert theirs is not None
    assert float((theirs - ours).abs().max()) == pytest.approx(diff.rows[4].max_abs, rel=1e-6)

    class Keeper:
        def keep(self, result: object, name: str | None = None) -> tuple[object, str | None]:
            return result, name

    assert diff.save(Keeper(), "conv") == (diff, "conv")
    kept = diff.to_dict()
    assert kept["ok"] is False
    assert kept["flagged"][0]["layer"] == "3"


def test_only_traces_are_compared(net: nn.Module) -> None:
    with pytest.raises(mk.MigrateError, match="the candidate is a Sequential, not a trace"):
        mk.compare(mk.capture(net, X), net)
    with pytest.raises(mk.MigrateError, match="noise is a float"):
        mk.compare(mk.capture(net, X), mk.capture(net, X), noise=1e-5)  # type: ignore[arg-type]
