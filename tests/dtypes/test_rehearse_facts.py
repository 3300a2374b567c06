"""The problems that people had on real NPUs, met on the CPU: reference cases C7 to C10 and more."""

import pytest
import torch
from torch import nn

import migrate_kit as mk
from migrate_kit.dtypes.fixes import fix_for


class AddsIntegers(nn.Module):
    def forward(self, i):
        return i + i


class CumulativeSum(nn.Module):
    def forward(self, i):
        return i.cumsum(0)


class Largest(nn.Module):
    def forward(self, i):
        return i.topk(2).values


class Sorts(nn.Module):
    def forward(self, i):
        return i.sort().values


class Float64Table(nn.Module):
    def forward(self, x):
        return x + torch.linspace(0, 1, 4, dtype=torch.float64)


class ComplexRope(nn.Module):
    """Rotary positions with complex numbers, as several language models have them."""

    def forward(self, q):
        angles = torch.outer(torch.arange(4.0).double(), torch.tensor([1.0, 0.5]).double())
        table = torch.polar(torch.ones_like(angles), angles)
        chosen = table[torch.tensor([0, 1, 2, 3])]
        turned = torch.view_as_complex(q.double().reshape(4, 2, 2)) * chosen
        return torch.view_as_real(turned).flatten(1).float()


class RealRope(nn.Module):
    """The same rotation with real numbers, as the fix says."""

    def forward(self, q):
        angles = torch.outer(torch.arange(4, dtype=torch.float32), torch.tensor([1.0, 0.5]))
        cos, sin = angles.cos(), angles.sin()
        pairs = q.reshape(4, 2, 2)
        even, odd = pairs[..., 0], pairs[..., 1]
        turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1)
        return turned.flatten(1)


class Fp8Weights(nn.Module):
    def forward(self, x):
        return x.to(torch.float8_e4m3fn).to(torch.float32)


class Boxes(nn.Module):
    def forward(self, boxes):
        from torchvision.ops import nms

        return nms(boxes, boxes[:, 0], 0.5)


WHOLE = torch.tensor([3, 1, 2])
# As NumPy brings it in: a cast on the device would give float32.
REAL64 = torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64)


def rows(model, x, target, op, dtype):
    rehearsal = mk.rehearse(model, x, target=target, numbers=False)
    found = [r for r in rehearsal.rows if r.op.startswith(op) and dtype in r.dtypes.split()]
    assert found, [(r.op, r.dtypes) for r in rehearsal.rows]
    return found


@pytest.mark.parametrize(
    ("model", "x", "op", "dtype", "target", "status", "fix"),
    [
        (AddsIntegers(), WHOLE, "aten.add", "int64", "ascend910b", "supported", ""),
        (AddsIntegers(), WHOLE.short(), "aten.add", "int16", "ascend910b", "slow", "torch.int32"),
        (CumulativeSum(), WHOLE, "aten.cumsum", "int64", "ascend910b", "slow", "torch.int32"),
        (CumulativeSum(), WHOLE, "aten.cumsum", "int64", "ascend910a", "slow", "torch.int32"),
        (CumulativeSum(), WHOLE, "aten.cumsum", "int64", "ascend950", "supported", ""),
        (CumulativeSum(), WHOLE.int(), "aten.cumsum", "int32", "ascend910b", "slow", "dtype="),
        # A mask is what is summed most, and a cast of the mask alone would change nothing.
        (CumulativeSum(), WHOLE.bool(), "aten.cumsum", "bool", "ascend910b", "slow", "dtype="),
        (Largest(), WHOLE, "aten.topk", "int64", "ascend910b", "slow", "torch.float32"),
        (Largest(), WHOLE.float(), "aten.topk", "float32", "ascend910b", "supported", ""),
        (Sorts(), WHOLE, "aten.sort", "int64", "ascend910b", "slow", "torch.float32"),
        (Sorts(), WHOLE.float(), "aten.sort", "float32", "ascend910b", "supported", ""),
        (Sorts(), WHOLE.float(), "aten.sort", "float32", "ascend910a", "slow", ""),
        (
            Float64Table(),
            torch.ones(4),
            "aten.add",
            "float64",
            "ascend910b",
            "slow",
            "torch.float32",
        ),
        (
            Boxes(),
            torch.rand(3, 4),
            "torchvision.nms",
            "float32",
            "ascend910b",
            "fallback",
            "torchvision_npu",
        ),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, nn.Module) else None,
)
def test_it_is_reported_as_the_tables_say(model, x, op, dtype, target, status, fix):
    for row in rows(model, x, target, op, dtype):
        assert row.status == status
        assert row.source
        assert fix in row.fix
        assert (row.fix == "") == (status == "supported")


@pytest.mark.parametrize("target", ["ascend910a", "ascend310p"])
def test_bfloat16_is_refused_by_the_chips_that_have_none(target):
    model, x = nn.Linear(4, 4).bfloat16(), torch.ones(2, 4).bfloat16()
    (row,) = rows(model, x, target, "aten.addmm", "bfloat16")
    assert row.status == "refused"
    assert "float16" in row.fix
    (row,) = rows(model, x, "ascend910b", "aten.addmm", "bfloat16")
    assert row.status == "supported"


@pytest.mark.parametrize(
    ("status", "op", "dtypes", "ok", "said"),
    [
        ("supported", "aten.add.Tensor", ("float64",), (), ""),
        ("slow", "aten.mul.Tensor", ("int64", "int64"), None, "torch.int32"),
        # Nothing fast has it on that chip: no cast helps.
        ("slow", "aten.mul.Tensor", ("int64", "int64"), (), "no dtype is faster"),
        # An index is int64 everywhere: what no table lists is not laid to it.
        ("not listed", "aten.embedding.default", ("float32", "int64"), (), "do not decide"),
        # Nothing takes it, whatever the dtype.
        ("fallback", "aten.polygamma.default", ("float64",), (), "host CPU"),
        # The int64 among them is what the kernel takes.
        ("slow", "aten.other.default", ("int64", "int8"), ("int64",), "one of: int64"),
        ("refused", "aten.other.default", ("int8",), ("float16", "float32"), "float16, float32"),
    ],
)
def test_the_fix_is_for_what_is_the_matter(status, op, dtypes, ok, said):
    assert said in fix_for(status, op, dtypes, "ascend910b", ok)


@pytest.mark.parametrize(
    ("op", "before", "after"),
    [
        ("cumsum", lambda: WHOLE.cumsum(0), lambda: WHOLE.cumsum(0, dtype=torch.int32)),
        ("sort", WHOLE.sort, lambda: WHOLE.to(torch.float32).sort()),
        ("topk", lambda: WHOLE.topk(2), lambda: WHOLE.to(torch.float32).topk(2)),
        ("add", lambda: WHOLE.short() + 1, lambda: WHOLE.to(torch.int32) + 1),
        ("mul", lambda: REAL64 * 2, lambda: REAL64.to(torch.float32) * 2),
        (
            "repeat_interleave",
            lambda: REAL64.repeat_interleave(2),
            lambda: WHOLE.float().repeat_interleave(2),
        ),
    ],
    ids=lambda v: v if isinstance(v, str) else None,
)
def test_the_fix_that_is_named_makes_it_supported(op, before, after):
    class Calls(nn.Module):
        def __init__(self, call):
            super().__init__()
            self.call = call

        def forward(self, x):
            self.call()
            return x

    found = []
    for call in (before, after):
        rehearsal = mk.rehearse(Calls(call), torch.ones(1), numbers=False)
        found.append([r.status for r in rehearsal.rows if r.op.startswith(f"aten.{op}")])
    assert found[0] in (["slow"], ["refused"])
    assert found[1] == ["supported"]


def test_the_real_form_of_rotary_positions_is_the_same_and_supported():
    q = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(ComplexRope()(q), RealRope()(q), atol=1e-6)
    rehearsal = mk.rehearse(RealRope(), q, numbers=False)
    assert rehearsal.coverage["supported"] == sum(rehearsal.coverage.values())


def test_what_a_public_thread_says_of_adding_integers_is_passed_on():
    rehearsal = mk.rehearse(AddsIntegers(), WHOLE, numbers=False)
    assert any("aten.add.Tensor on int64" in f.what for f in rehearsal.findings)


def test_complex128_is_refused_where_an_index_meets_it():
    found = rows(ComplexRope(), torch.ones(4, 4), "ascend910b", "aten.index", "complex128")
    assert {r.status for r in found} == {"refused"}
    assert all("cos and sin" in r.fix for r in found)


def test_fp8_is_refused_before_ascend950():
    found = rows(Fp8Weights(), torch.ones(4), "ascend910b", "aten._to_copy", "float8_e4m3fn")
    assert {r.status for r in found} == {"refused"}
    assert all("fp8" in r.fix for r in found)


@pytest.mark.parametrize(
    ("model", "x", "target"),
    [
        (ComplexRope(), torch.ones(4, 4), "ascend910b"),
        (Fp8Weights(), torch.ones(4), "ascend910b"),
        (nn.Linear(4, 4).bfloat16(), torch.ones(2, 4).bfloat16(), "ascend310p"),
    ],
    ids=["complex", "fp8", "bf16"],
)
def test_a_rehearsal_can_stop_where_the_npu_would(model, x, target):
    assert not mk.rehearse(model, x, target=target, numbers=False).ok
    with pytest.raises(mk.MigrateError) as caught:
        mk.rehearse(model, x, target=target, raise_on_unsupported=True)
    assert f"{target} has no kernel for aten." in caught.value.what
    assert caught.value.fix


def test_the_line_is_said_where_it_stops():
    with pytest.raises(mk.MigrateError) as caught:
        mk.rehearse(Fp8Weights(), torch.ones(4), raise_on_unsupported=True)
    assert "return x.to(torch.float8_e4m3fn)" in caught.value.where
    assert "test_rehearse_facts.py:" in caught.value.where


def test_a_layer_of_torchs_own_is_named_where_it_stops():
    small = nn.Sequential(nn.Linear(4, 4)).bfloat16()
    for refused in (small, nn.Sequential(nn.Identity(), small)):
        with pytest.raises(mk.MigrateError) as caught:
            mk.rehearse(
                refused, torch.ones(2, 4).bfloat16(), target="ascend310p", raise_on_unsupported=True
            )
        assert caught.value.where == ("layer 0" if refused is small else "layer 1.0")


def test_a_model_that_catches_the_refusal_does_not_pass():
    class Catches(nn.Module):
        def forward(self, x):
            try:
                return x.to(torch.float8_e4m3fn).to(torch.float32)
            except Exception:  # noqa: BLE001 - as a stranger's model may
                return x

    with pytest.raises(mk.MigrateError, match="catches"):
        mk.rehearse(Catches(), torch.ones(4), raise_on_unsupported=True)


def test_absence_from_every_table_is_no_failure():
    class Rare(nn.Module):
        def forward(self, x):
            return torch.ops.aten.special_spherical_bessel_j0(x) + quiet(x)

    rehearsal = mk.rehearse(Rare(), torch.ones(3), numbers=False)
    (row,) = [r for r in rehearsal.rows if r.op.startswith("mk_test")]
    assert row.status == "not listed"
    assert rehearsal.ok
    mk.rehearse(Rare(), torch.ones(3), numbers=False, raise_on_unsupported=True)


@torch.library.custom_op("mk_test::quiet", mutates_args=())
def quiet(x: torch.Tensor) -> torch.Tensor:
    """Nobody's table knows this operator."""
    return x.clone()
