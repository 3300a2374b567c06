"""Conversions, and what they are said to lose, against exact arithmetic and the frameworks."""

import sys
import warnings
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import migrate_kit as mk
from migrate_kit import MigrateError
from migrate_kit.dtypes.exchange import _bfloat16_values

convert = mk.dtypes.convert
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8")


@pytest.mark.parametrize("to", [*FLOATS, *INTEGERS, "bool", "complex64", "float8_e4m3fn"])
@pytest.mark.parametrize("start", [*FLOATS, *INTEGERS, "bool", "complex64"])
def test_torch_makes_the_value(start, to):
    """The value is what torch makes of it, bit for bit, and the input is left alone."""
    value = torch.tensor([[0, 1, 2], [96, 5, 3]]).to(getattr(torch, start))
    kept = value.clone()
    found = convert(value, to)
    wanted = kept.real if value.is_complex() and "complex" not in to and to != "bool" else kept
    assert torch.equal(found.value, wanted.to(getattr(torch, to)))
    assert torch.equal(value, kept)
    assert found.ok
    assert found.lossless == (to != "bool" or start == "bool")


@pytest.mark.parametrize("start", ["float32", "float64", "int64", "uint8", "bool", "complex64"])
@pytest.mark.parametrize("to", ["float16", "float32", "int32", "bool", "bfloat16", "float8_e5m2"])
def test_numpy_makes_the_value(start, to):
    value = np.array([0, 1, 2, 3], start)
    found = convert(value, to)
    known = getattr(ml_dtypes, to, None) or np.dtype(to)
    plain = value.real if start == "complex64" and to != "bool" else value
    assert found.value.dtype == known
    assert np.array_equal(found.value, plain.astype(known))


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(np.float64, hnp.array_shapes(max_dims=2, max_side=4), elements=st.floats(width=64)),
    st.sampled_from(["float16", "float32", "bfloat16"]),
)
def test_float_losses_are_those_of_exact_arithmetic(values, to):
    """Overflow, underflow, subnormals and the largest errors, recounted with fractions."""
    found = convert(values, to)
    d = mk.dtypes.of(to)
    made = found.value.astype(np.float64)
    over = under = small = 0
    worst = Fraction(0)
    for before, after in zip(values.ravel(), made.ravel(), strict=True):
        if not np.isfinite(before):
            assert np.isnan(after) == np.isnan(before)
            continue
        over += not np.isfinite(after)
        under += before != 0 and after == 0
        small += 0 < abs(after) < d.smallest_normal
        if np.isfinite(after):
            worst = max(worst, abs(Fraction(float(after)) - Fraction(float(before))))
    assert (found.count("overflow"), found.count("underflow")) == (over, under)
    assert found.count("subnormal") == small
    assert found.max_abs == pytest.approx(float(worst), rel=1e-12)
    assert found.ok == (over == 0)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=6),
    st.sampled_from(INTEGERS),
)
def test_integer_losses_are_those_of_the_range(values, to):
    info = torch.iinfo(getattr(torch, to))
    found = convert(torch.tensor(values), to)
    out = [not info.min <= v <= info.max for v in values]
    assert found.count("overflow") + found.count("negative") == sum(out)
    assert found.lossless == (not any(out))
    if any(out):
        assert (out.index(True),) in [x.first for x in found.losses]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=6),
    st.sampled_from(["float32", "float64"]),
)
def test_integers_that_a_float_does_not_hold_are_counted(values, to):
    found = convert(values, to)
    kept = [int(Fraction(float(v))) == n for v, n in zip(found.value.tolist(), values, strict=True)]
    assert found.count("rounded integers") == kept.count(False)


def test_the_edges_of_float16():
    """65504 is the largest; what rounds to it stays, and 65520 is the first that does not."""
    found = convert(torch.tensor([65504.0, 65519.99, 65520.0, -1e30, float("inf")]), "float16")
    assert found.count("overflow") == 2
    assert found.losses[0].first == (2,)
    assert "65504" in found.findings[0].what
    assert convert([6e-8, 1e-8], "float16").count("underflow") == 1


def test_the_edges_of_integers():
    top = np.array([2.0**63, 2.0**63 - 1024, -(2.0**63)])
    assert convert(top, "int64").count("overflow") == 1
    assert convert([127.9, 128.0, -128.9, -129.0], "int8").count("overflow") == 2
    assert convert([255.5, 256.0], "uint8").count("overflow") == 1
    assert convert(np.array([2**63], np.uint64), "int64").count("overflow") == 1
    assert convert([2**24, 2**24 + 1], "float32").losses[0].first == (1,)


def test_nan_infinity_and_fractions_to_integers():
    found = convert(np.array([[1.0, np.nan], [np.inf, 2.5]]), "int32")
    assert (found.count("nan"), found.count("fraction")) == (2, 1)
    assert found.losses[0].first == (0, 1)
    assert not found.ok
    assert convert([2.5], "int32").ok


def test_negative_numbers_have_no_place_in_unsigned():
    for values in (torch.tensor([3, -1, -2]), np.array([3.0, -1.0, -2.0])):
        found = convert(values, "uint8")
        assert (found.count("negative"), found.losses[0].first) == (2, (1,))
        assert not found.ok


def test_bool_keeps_only_whether_it_is_zero():
    found = convert(np.array([0.0, 1.0, 0.5, np.nan]), "bool")
    assert found.count("truth") == 2
    assert "NaN" in found.findings[0].what
    assert found.value.tolist() == [False, True, True, True]


# --- dtypes that lack infinity, NaN, a sign or zero ---

SMALL = [d for d in mk.dtypes.table() if d.kind == "float" and d.bits <= 8 and d.numpy]
ODD_VALUES = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e9, -5e4, 1e-60, -1e-60, -1.0, 1e300)


def test_what_saturates_is_an_overflow():
    values = torch.tensor([1e9, float("inf"), -5e4, 449.0, 464.0, 464.1])
    found = convert(values, "float8_e4m3fn")
    # 449 and 464 are rounded to 448; torch made NaN of the others in some releases.
    assert (found.count("overflow"), found.count("infinity")) == (3, 1)
    assert not found.ok
    assert found.losses[0].first == (0,)
    for name, largest in (("float4_e2m1fn", 6), ("float6_e2m3fn", 7.5), ("float6_e3m2fn", 28)):
        found = convert([1e9, np.inf, np.nan, -1.0], name, framework="numpy")
        assert [x.name for x in found.losses] == ["overflow", "nan", "infinity"]
        assert found.losses[0].what == f"exceed {largest:g} and become {largest:g}"
        assert found.count("underflow") == 0


def test_a_dtype_without_a_sign_or_a_zero():
    found = convert([-1.0, 0.0, 4.0], "float8_e8m0fnu")
    assert found.count("negative") == 1
    assert found.count("underflow") == 1
    assert "no 0" in next(x.what for x in found.losses if x.name == "underflow")
    assert not found.ok
    assert convert([1.0, 2.0, 0.5], "float8_e8m0fnu").lossless
    nan = convert([0.0, 4.0], "float8_e8m0fnu", framework="numpy")  # where ml_dtypes makes NaN
    assert (nan.count("underflow"), nan.count("overflow"), nan.ok) == (1, 0, False)


@pytest.mark.parametrize("d", SMALL, ids=lambda d: d.name)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_nothing_is_lost_in_silence(d, data):
    """Every value that is not the nearest number of the dtype is in some loss."""
    some = st.floats(-1e300, 1e300) | st.sampled_from(ODD_VALUES) | st.floats(-500, 500)
    value = data.draw(some)
    codes = np.arange(256 if d.bits == 8 else 2**d.bits, dtype=np.uint8)
    held = codes.view(getattr(ml_dtypes, d.numpy.split(".")[-1])).astype(np.float64)
    for framework in ("torch", "numpy") if d.torch and d.bits == 8 else ("numpy",):
        found = convert([value], d.name, framework)
        made = float(np.asarray(mk.dtypes.convert(found.value, "float64", "numpy").value)[0])
        finite = held[np.isfinite(held)]
        nearest = np.abs(finite - value).min() if np.isfinite(value) else 0.0
        fine = np.isnan(made) if np.isnan(value) else made == value
        # Double rounding on the way to 8 bits may miss the nearest by a little.
        fine |= bool(np.isfinite(value)) and bool(abs(made - value) <= nearest * (1 + 1e-6))
        beyond = np.isfinite(value) and abs(value) > d.maximum and made != value
        told = [x for x in found.losses if x.level != "info"]
        if not fine:
            assert told, (value, made)
        if np.isfinite(value) and np.isnan(made):
            assert not found.ok
        if beyond and abs(value) > 1.2 * d.maximum:
            assert found.count("overflow") + found.count("negative") == 1


def test_a_complex_number_is_true_unless_it_is_zero():
    found = convert([2j, 0j, 1 + 0j], "bool")
    assert found.value.tolist() == [True, False, True]
    assert [(x.name, x.count, x.first) for x in found.losses] == [("truth", 1, (0,))]


@pytest.mark.parametrize(
    "value",
    [
        [2**53 + 1, 1.0],
        [2**63 + 1, -1],
        [[2**53 + 1], [1.0]],
        [2**53 + 1, 1j],
        (np.int64(2**53 + 1), 1.0),
        [torch.tensor(2**53 + 1), torch.tensor(1.0)],
        [float("nan"), 2**60 + 1],
    ],
)
def test_integers_that_numpy_rounds_before_anybody_looks_are_refused(value):
    with pytest.raises(MigrateError, match="is rounded to"):
        convert(value, "float64")


def test_integers_beside_floats_that_fit_are_taken():
    assert convert([2**53, 1.5, 2**60], "float64").value.tolist() == [2.0**53, 1.5, 2.0**60]
    assert convert([2**63, -1], "float64").lossless
    assert convert([2**63 + 1, 1], "uint64", framework="numpy").value.tolist() == [2**63 + 1, 1]


def test_imaginary_parts():
    found = convert(torch.tensor([1 + 0j, 1 + 2j]), "float32")
    assert (found.count("imaginary"), found.ok) == (1, False)
    assert convert(torch.tensor([1 + 0j]), "float32").ok
    both = convert(np.array([1e300 + 1e300j]), "complex64")
    assert both.count("overflow") == 2


def test_float64_on_an_npu_is_float32():
    value = torch.tensor([1 / 3, 1e300], dtype=torch.float64)
    found = convert(value.float(), torch.float64, framework="torch_npu")
    assert found.value.dtype == torch.float32
    assert (found.asked.name, found.after.name) == ("float64", "float32")
    assert "float32" in found.findings[0].what
    lost = convert(value, "double", framework="torch_npu")
    assert lost.count("overflow") == 1
    assert lost.max_rel == pytest.approx(abs(np.float64(np.float32(1 / 3)) * 3 - 1), rel=1e-6)


def test_bfloat16_through_numpy():
    value = torch.randn(100, generator=torch.Generator().manual_seed(0)).bfloat16()
    with pytest.raises(TypeError):
        value.numpy()
    found = convert(value, "float32", framework="numpy")
    assert "TypeError" in found.findings[0].what
    assert np.array_equal(found.value, value.float().numpy())
    assert found.lossless


def test_bfloat16_without_ml_dtypes(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    value = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    found = convert(value, "bfloat16")
    assert found.value.dtype == np.float32
    assert "float32" in found.findings[0].what
    assert np.array_equal(found.value, torch.from_numpy(value).bfloat16().float().numpy())
    with pytest.raises(MigrateError, match="float8"):
        convert(value, "float8_e5m2")


@settings(max_examples=100, deadline=None)
@given(hnp.arrays(np.float32, 8, elements=st.floats(width=32)))
def test_bfloat16_is_rounded_as_torch_rounds_it(values):
    ours, theirs = _bfloat16_values(values), torch.from_numpy(values).bfloat16().float().numpy()
    assert np.array_equal(ours, theirs, equal_nan=True)


class Duck:
    """What a MindSpore tensor can do, where MindSpore is not installed."""

    def __init__(self, array, dtype="Float32"):
        self.array, self.dtype = array, dtype

    def asnumpy(self):
        return self.array

    def astype(self, dtype):
        with np.errstate(all="ignore"):
            return Duck(self.array.astype(dtype), dtype)


def test_a_mindspore_tensor_is_known_by_what_it_can_do(monkeypatch):
    monkeypatch.delitem(sys.modules, "mindspore", raising=False)
    found = convert(Duck(np.array([1.0, 1e6], np.float32)), "mindspore.float16")
    assert isinstance(found.value, Duck)
    assert found.value.array.dtype == np.float16
    assert found.count("overflow") == 1
    assert convert(Duck(np.ones(2, np.float32)), "int32", framework="torch").value.tolist() == [
        1,
        1,
    ]


def test_mindspore_absent_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "mindspore", None)
    with pytest.raises(MigrateError, match="not installed"):
        convert([1.0], "float16", framework="mindspore")


def test_shapes_and_strides_are_kept():
    value = torch.arange(12.0).reshape(3, 4).t()
    assert convert(value, "float16").value.shape == (4, 3)
    assert convert(3, "int8").value.shape == ()
    assert convert(np.ones((0, 3)), "float16").value.shape == (0, 3)
    assert convert(np.arange(6)[::-2], "float32").value.tolist() == [5, 3, 1]
    needs = torch.ones(2, requires_grad=True)
    assert convert(needs, "float64").value.dtype == torch.float64
    assert convert(np.array([1, 258], ">i2"), "int32", framework="torch").value.tolist() == [1, 258]
    conj = torch.tensor([1 + 2j]).conj()
    assert convert(conj, "complex128").value.tolist() == [1 - 2j]


@pytest.mark.parametrize(
    "value",
    ["abc", [[1], [1, 2]], [2**70], None, object(), np.array(["a"]), {1: 2}, np.array(1, "M8[s]")],
)
def test_what_holds_no_numbers_is_refused(value):
    with pytest.raises(MigrateError, match="numbers"):
        convert(value, "float16")


@pytest.mark.parametrize("to", ["int4", "quint8", "hifloat8", "int31", "float6_e2m3fn"])
def test_what_torch_does_not_compute_in_is_refused(to):
    with pytest.raises(MigrateError, match="torch computes in no"):
        convert([1.0], to)


def test_tensors_without_plain_values_are_refused():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates them
        quantized = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
    for value in (torch.ones(2, device="meta"), quantized):
        with pytest.raises(MigrateError):
            convert(value, "float32")


class Shouts:
    """Raises where it is asked for its values."""

    dtype = "float32"

    def asnumpy(self):
        raise RuntimeError("no values here\nbut more lines")


class ShoutsToo:
    def __array__(self, *args, **kwargs):
        raise RuntimeError("no values here")


class Mine(torch.Tensor):
    """A class of the user's own."""


def nested(layout):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls them a prototype
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nested(torch.strided),
        lambda: nested(torch.jagged),
        fake,
        Shouts,
        ShoutsToo,
        torch.nn.parameter.UninitializedParameter,
        lambda: [torch.ones((), requires_grad=True)],
        lambda: torch.eye(2).to_sparse(),
    ],
)
def test_what_cannot_be_read_is_said(make):
    with pytest.raises(MigrateError) as error:
        convert(make(), "float16")
    assert len(str(error.value).splitlines()) == 3


def test_a_tensor_of_a_class_of_ones_own_is_a_tensor():
    for value in (
        torch.ones(2).as_subclass(Mine),
        torch.ones(2).as_subclass(Mine).requires_grad_(),
    ):
        found = convert(value, "float16")
        assert found.value.dtype == torch.float16
        assert found.lossless


@pytest.mark.parametrize("start", list(mk.dtypes.table()), ids=lambda d: d.name)
def test_every_dtype_goes_to_every_other(start):
    for home in ("torch", "numpy"):
        try:
            value = convert([0, 1, 0, 1], start, home).value
        except MigrateError:
            continue
        for to in mk.dtypes.table():
            for framework in ("torch", "torch_npu", "numpy"):
                if framework == "numpy" and not to.numpy:
                    continue
                if framework != "numpy" and (not to.torch or to.bits < 8 or to.kind == "quantized"):
                    continue
                assert convert(value, to, framework)._repr_html_()


def test_complex32_is_taken_exactly():
    found = convert(torch.tensor([1 + 0.5j, 1e-9 + 70000j]), "complex32")
    assert found.value.dtype == torch.complex32
    assert (found.count("overflow"), found.count("underflow")) == (1, 1)
    assert convert(found.value[:1], "complex128").lossless
    with pytest.raises(MigrateError, match="complex32"):
        convert([1j], "complex32", framework="numpy")


def test_an_unknown_framework_is_refused():
    with pytest.raises(MigrateError, match="torch_npu"):
        convert([1.0], "float16", framework="jax")


def test_the_result_reads_and_keeps():
    found = convert(torch.tensor([1.0, 1e6, 1e-9]), "float16")
    assert repr(found).startswith("1 of 3 values exceed 65504")
    frame = found.to_frame()
    assert list(frame["loss"]) == [x.name for x in found.losses]
    assert next(iter(frame["first"])) == (1,)
    kept = found.to_dict()
    assert kept["losses"] == {"overflow": 1, "underflow": 1}
    assert kept["ok"] is False
    assert "exceed 65504" in found._repr_html_()
