"""Each emulated format against NumPy's or torch's own, and the question the table answers."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn

import migrate_kit as mk
from migrate_kit.layers.formats import round_mantissa, rounding_table

if TYPE_CHECKING:
    from pathlib import Path

X = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(6))


def test_seven_bits_are_bfloat16() -> None:
    t = torch.randn(100_000, generator=torch.Generator().manual_seed(1)) * 1e3
    t[:4] = torch.tensor([0.0, float("inf"), float("nan"), -1.5])
    expected = t.numpy().astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(round_mantissa(t, 7).numpy(), expected)


def test_ten_bits_are_float16_where_its_exponent_reaches() -> None:
    t = torch.rand(100_000, generator=torch.Generator().manual_seed(2)) + 0.5
    assert torch.equal(round_mantissa(t, 10), t.half().float())


def test_a_difference_of_1e_5_is_rounding_only_for_raw_pixels() -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
    nn.init.normal_(conv.weight, 0, 0.025)
    raw = X.sub(X.min()).div(X.max() - X.min())
    before = conv.weight.data.clone()
    table = rounding_table(conv, {"normalised": X, "0..1": raw, "0..255": (raw * 255).round()})
    assert torch.equal(conv.weight, before)
    answers = table.explain(1e-5)
    assert answers["0..255"] == "float32 rounding"
    assert "times float32 rounding; nearest HF32" in answers["normalised"]
    assert "times float32 rounding; nearest HF32" in answers["0..1"]
    frame = table.to_frame().set_index("input")
    assert (frame["fp32"] < frame["HF32"]).all()
    assert (frame["HF32"] < frame["TF32"]).all()
    assert (frame["TF32"] < frame["bf16"]).all()
    assert (frame["bf16"] < frame["int8"]).all()


def test_every_format_is_named_by_its_bits() -> None:
    torch.manual_seed(0)
    for layer, x in ((nn.Conv2d(3, 16, 5), X), (nn.Linear(256, 64), torch.randn(32, 256))):
        for row in rounding_table(layer, {"x": x}).rows:
            name = "TF32/fp16" if row.arithmetic in ("TF32", "fp16") else row.arithmetic
            if torch.tensor(row.bits).isnan():
                continue  # two float32 kernels may agree to the last bit
            assert mk.layers.metrics.format_of_bits(row.bits) == name


def test_a_layer_without_a_matrix_is_refused() -> None:
    with pytest.raises(mk.MigrateError, match="ReLU has no weight matrix"):
        rounding_table(nn.ReLU(), {"x": X})


def test_the_snippet_runs_alone() -> None:
    path = mk.snippet("first_difference").path
    done = subprocess.run(
        [sys.executable, "-I", str(path)], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.splitlines()[-1] == "first difference: 1"
    assert "migrate_kit" not in path.read_text()


def test_the_snippet_sees_inside_tuples_and_where_all_is_zero(tmp_path: Path) -> None:
    script = """
import torch
from first_difference import first_difference

class Two(torch.nn.Module):
    def __init__(self, hidden, shift):
        super().__init__()
        torch.manual_seed(0)
        self.lstm = torch.nn.LSTM(4, 3)
        self.zero = torch.nn.Linear(3, 3, bias=True)
        torch.nn.init.zeros_(self.zero.weight)
        torch.nn.init.constant_(self.zero.bias, shift)
        with torch.no_grad():
            self.lstm.weight_hh_l0.mul_(hidden)

    def forward(self, x):
        return self.zero(self.lstm(x)[0])

x = torch.randn(5, 2, 4)
print("same", first_difference(Two(1, 0), Two(1, 0), x))
print("zero", first_difference(Two(1, 0), Two(1, 1e-3), x))
print("lstm", first_difference(Two(1, 0), Two(1.01, 0), x))
"""
    (tmp_path / "first_difference.py").write_text(mk.snippet("first_difference").path.read_text())
    (tmp_path / "run.py").write_text(script)
    command = [sys.executable, str(tmp_path / "run.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    said = [line for line in done.stdout.splitlines() if " R = " not in line]
    assert said == ["same None", "zero zero", "lstm lstm[0]"]
