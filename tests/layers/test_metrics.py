"""Every number against NumPy in float64 or an independent formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from migrate_kit.layers import metrics


def row(n: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed)) * scale


@pytest.mark.parametrize("n", [1, 255, 256, 257, 100_000, (1 << 17) + 1, (1 << 20) + 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_statistics_equal_numpys(n: int, dtype: torch.dtype) -> None:
    t = row(n).to(dtype)
    exact = t.double().numpy()
    s = metrics.statistics(t)
    assert (s.numel, s.nan, s.inf) == (n, 0, 0)
    assert (s.min, s.max) == (exact.min(), exact.max())
    assert s.mean == pytest.approx(exact.mean(), rel=1e-4, abs=1e-6)
    assert s.norm == pytest.approx(np.linalg.norm(exact), rel=1e-4)


@pytest.mark.parametrize("scale", [1e-30, 1e25])
def test_norms_that_float32_squares_cannot_hold(scale: float) -> None:
    t = row(1000, scale=scale)
    assert metrics.statistics(t).norm == pytest.approx(np.linalg.norm(t.double().numpy()), rel=1e-6)


def test_nan_and_inf_are_counted_and_left_out() -> None:
    t = torch.tensor([1.0, math.nan, 3.0, math.inf, -math.inf])
    s = metrics.statistics(t)
    assert (s.nan, s.inf, s.min, s.max, s.mean) == (1, 2, 1.0, 3.0, 2.0)
    assert s.norm == pytest.approx(math.sqrt(10))
    empty = metrics.statistics(torch.full((3,), math.nan))
    assert empty.nan == 3
    assert math.isnan(empty.norm)


@pytest.mark.parametrize("kind", ["noise", "constant", "spike", "ramp"])
@pytest.mark.parametrize("n", [2000, 300_000, 3 << 20])
def test_sketch_estimates_the_distance(kind: str, n: int) -> None:
    a = row(n)
    d = {
        "noise": row(n, 1, 1e-3),
        "constant": torch.full((n,), 1e-3),
        "spike": torch.zeros(n).index_fill(0, torch.tensor(n // 2), 5.0),
        "ramp": torch.linspace(0, 1e-2, n),
    }[kind]
    estimate = float((metrics.sketch(a + d).double() - metrics.sketch(a).double()).norm())
    true = float(((a + d).double() - a.double()).norm())
    # 256 buckets: a standard deviation of 4.4 %, and of 8.8 % where all elements differ alike.
    assert estimate == pytest.approx(true, rel=0.3 if kind in ("constant", "ramp") else 0.2)


def test_sketch_is_golden() -> None:
    """Two machines must agree: the signs do not come from a library's random generator."""
    assert metrics._bits(0, 16, metrics.SKETCH_SEED).tolist() == GOLDEN_BITS
    ramp = torch.arange(10_000, dtype=torch.float32)
    assert metrics.sketch(ramp)[:4].tolist() == GOLDEN_SKETCH


def test_sketch_sees_what_statistics_cannot() -> None:
    a = row(10_000)
    b = a[torch.randperm(10_000, generator=torch.Generator().manual_seed(2))]
    assert metrics.statistics(a).max == metrics.statistics(b).max
    assert float((metrics.sketch(a) - metrics.sketch(b)).norm()) > float(a.norm())


@pytest.mark.parametrize("n", [1, 1000, (1 << 17) + 5])
@pytest.mark.parametrize("size", [1e-7, 1e-3, 1.0])
def test_difference_equals_numpys_in_float64(n: int, size: float) -> None:
    a = row(n)
    b = a + row(n, 3, size)
    x, y = a.double().numpy(), b.double().numpy()
    d = metrics.difference(a, b)
    assert d.rel_l2 == pytest.approx(np.linalg.norm(y - x) / np.linalg.norm(x), rel=1e-9)
    assert d.max_abs == np.abs(y - x).max()
    assert d.mean_abs == pytest.approx(np.abs(y - x).mean(), rel=1e-9)
    assert d.mse == pytest.approx(((y - x) ** 2).mean(), rel=1e-9)
    unit = x / np.linalg.norm(x) - y / np.linalg.norm(y)
    assert d.one_minus_cosine == pytest.approx(0.5 * (unit @ unit), rel=1e-3, abs=1e-30)


def test_difference_counts_masks_apart() -> None:
    a = torch.tensor([1.0, math.nan, math.inf, 4.0, math.inf])
    b = torch.tensor([1.5, math.nan, -math.inf, math.nan, math.inf])
    d = metrics.difference(a, b)
    assert (d.nan, d.inf, d.masks_differ, d.numel) == ((1, 2), (2, 2), 2, 1)
    assert d.max_abs == 0.5


def test_rows_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="3 and 4"):
        metrics.difference(torch.ones(3), torch.ones(4))


@pytest.mark.parametrize(
    ("bits", "name"),
    [(21.5, "fp32"), (12.3, "HF32"), (11.2, "TF32/fp16"), (8.1, "bf16"), (5.9, "int8"), (1, "not")],
)
def test_bits_name_the_arithmetic(bits: float, name: str) -> None:
    assert metrics.format_of_bits(bits).startswith(name)


GOLDEN_BITS = [1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1]
# Computed with Python's integers, element by element.
GOLDEN_SKETCH = [-32768.0, -17922.0, 64540.0, 5120.0]
