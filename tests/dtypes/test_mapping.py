"""Names, numbers and ranges against the libraries that define them."""

import re

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch

import migrate_kit as mk
from migrate_kit import MigrateError
from migrate_kit.dtypes.mapping import dtypes
from migrate_kit.dtypes.support import TARGETS

ALL = tuple(dtypes().values())


@pytest.mark.parametrize("d", [d for d in ALL if d.onnx], ids=lambda d: d.name)
def test_onnx_numbers_are_those_of_onnx(d):
    assert onnx.TensorProto.DataType.Value(d.onnx) == d.onnx_number
    assert mk.dtypes.of(d.onnx_number) is d


def test_every_onnx_number_type_is_in_the_table():
    theirs = set(onnx.TensorProto.DataType.keys()) - {"UNDEFINED", "STRING"}
    assert theirs == {d.onnx for d in ALL if d.onnx}


def test_every_torch_dtype_with_arithmetic_is_in_the_table():
    theirs = {str(v) for v in vars(torch).values() if isinstance(v, torch.dtype)}
    # Bit patterns and integers of odd widths have names in torch and nothing else.
    bare = {n for n in theirs if re.fullmatch(r"torch\.(u?int[13567]|bits?.*)", n)}
    ours = {d.torch for d in ALL if d.torch}
    assert ours <= theirs
    assert theirs - ours - bare <= {"torch.bcomplex32"}


@pytest.mark.parametrize("d", [d for d in ALL if d.torch], ids=lambda d: d.name)
def test_sizes_and_ranges_are_those_of_torch(d):
    theirs = getattr(torch, d.torch.removeprefix("torch."))
    assert mk.dtypes.of(theirs) is d
    if d.kind in ("int", "uint") and d.bits >= 8:
        info = torch.iinfo(theirs)
        assert (d.bits, d.minimum, d.maximum) == (info.bits, info.min, info.max)
    if d.kind == "float" and d.bits >= 8:
        info = torch.finfo(theirs)
        assert (d.bits, d.maximum, d.smallest_normal) == (info.bits, info.max, info.tiny)
        assert d.eps == 2.0**-d.mantissa_bits
        if d.name != "float8_e5m2fnuz":  # torch 2.14 says 0.125, which the next test settles
            assert d.eps == info.eps
    if d.bits >= 8:
        assert theirs.itemsize * 8 == d.bits


@pytest.mark.parametrize("d", [d for d in ALL if d.kind == "float"], ids=lambda d: d.name)
def test_floats_are_those_of_ml_dtypes(d):
    if not d.numpy:
        assert d.name == "hifloat8"
        return
    theirs = getattr(ml_dtypes, d.numpy.split(".")[-1], None) or np.dtype(d.numpy)
    info = ml_dtypes.finfo(theirs)
    assert mk.dtypes.of(theirs) is d
    assert float(info.max) == d.maximum
    assert float(info.min) == d.minimum
    assert float(info.eps) == d.eps
    assert (info.bits, info.nmant) == (d.bits, d.mantissa_bits)
    assert float(info.smallest_normal) == d.smallest_normal


@pytest.mark.parametrize("numbers", ["onnx", "cann", "cambricon"])
def test_numbers_name_one_dtype_each(numbers):
    given = [n for d in ALL if (n := getattr(d, f"{numbers}_number")) is not None]
    assert len(given) == len(set(given)) > 10
    assert [mk.dtypes.of(n, numbers=numbers) for n in given] == [
        d for d in ALL if getattr(d, f"{numbers}_number") is not None
    ]


@pytest.mark.parametrize("d", ALL, ids=lambda d: d.name)
def test_every_name_of_a_dtype_finds_it(d):
    names = (d.name, d.torch, d.cann, d.acl, d.onnx, d.mindspore, *d.cambricon, *d.aliases)
    for name in filter(None, names):
        assert mk.dtypes.of(name) is d, name
        assert mk.dtypes.of(f" {name} ") is d
    if d.numpy and not d.numpy.startswith("ml_dtypes."):
        assert mk.dtypes.of(np.dtype(d.numpy)) is d
        assert mk.dtypes.of(np.dtype(d.numpy).str) is d


def test_case_decides_where_two_libraries_differ_by_it_alone():
    """``i8`` is eight bytes in NumPy, ``I8`` eight bits in safetensors."""
    assert mk.dtypes.of("i8").name == "int64"
    assert mk.dtypes.of("I8").name == "int8"
    assert mk.dtypes.of("Float32").name == mk.dtypes.of("FLOAT").name == "float32"


@pytest.mark.parametrize("name", ["int", "float", "complex", float, complex])
def test_a_name_of_two_dtypes_is_refused(name):
    with pytest.raises(MigrateError, match="two dtypes"):
        mk.dtypes.of(name)


@pytest.mark.parametrize("name", ["", "flot32", "x" * 10_000, "<b>", None, object(), 1.5, True, 99])
def test_what_is_no_dtype_is_refused(name):
    with pytest.raises(MigrateError) as error:
        mk.dtypes.of(name)
    assert len(str(error.value)) < 300


class Nameless:
    def __str__(self):
        raise RuntimeError("no name")


STUMBLES = (10**5000, -(10**5000), Nameless(), ",", "(,", "1f", "2i,", "[]")


@pytest.mark.parametrize("name", STUMBLES, ids=range(len(STUMBLES)))
def test_what_numpy_or_python_would_stumble_over_is_refused(name):
    with pytest.raises(MigrateError) as error:
        mk.dtypes.of(name)
    assert len(str(error.value)) < 300


def test_near_misses_are_suggested():
    with pytest.raises(MigrateError, match="float32"):
        mk.dtypes.of("flaot32")


def test_python_types_that_mean_one_dtype():
    assert mk.dtypes.of(int).name == "int64"
    assert mk.dtypes.of(bool).name == "bool"


def test_the_table_is_a_result():
    table = mk.dtypes.table()
    frame = table.to_frame()
    assert list(frame["name"]) == [d.name for d in table]
    assert {*TARGETS, "torch", "numpy", "mindspore", "onnx_number", "cann", "acl"} <= {*frame}
    assert table.ok
    assert len(table) == len(frame)
    html = table._repr_html_()
    assert html.count("<tr>") == len(table) + 1
    assert "DT_BF16 27" in html
    assert ">65504<" in html
    assert "9223372036854775807" in html
    assert repr(mk.dtypes.of("CNNL_DTYPE_INT31")) == "DType(int31: 32 bits, CNNL_DTYPE_INT31)"


def test_kernel_counts_follow_the_lists():
    table = mk.dtypes.table()
    for target in ("ascend910a", "ascend310p"):
        assert "bfloat16" not in table.kernels(target)
        assert "float8_e4m3fn" not in table.kernels(target)
    for target in ("ascend910b", "ascend950"):
        fast, slow = table.kernels(target)["float64"]
        assert fast < slow  # float64 is for the AI CPU
        assert table.kernels(target)["bfloat16"][0] > 50
    assert table.kernels("ascend950")["float8_e4m3fn"][0] > 0
    assert table.kernels("ascend310b")["float32"][1] == 0  # no AI CPU list names it


def test_kernels_are_counted_for_a_chip_of_any_name():
    table = mk.dtypes.table()
    assert table.kernels("Ascend910B4") == table.kernels("ascend910b")
    for name in ("zz", "mlu270", [], None):
        with pytest.raises(MigrateError, match="no tables for the target"):
            table.kernels(name)
