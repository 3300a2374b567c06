"""What lookup says, against the rules that the references give and against torch itself."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from migrate_kit import MigrateError
from migrate_kit.dtypes import kernels
from migrate_kit.dtypes.mapping import dtypes
from migrate_kit.dtypes.support import LOWERED, TARGETS, lookup
from migrate_kit.tables import read_table
from tests.dtypes.networks import NAMES, calls

NAMED = ("ascend910a", "ascend910b", "ascend310p", "ascend950")  # with an AI Core list
STATUSES = {"supported", "slow", "fallback", "not listed", "refused"}


def status(op, given, target):
    return lookup(op, given, target).status


# Each is what the public lists say; see the docstring of support.py for their order.
STATED = [
    # The list of every chip that has one names int64; the 310B has none.
    ("aten.add.Tensor", ("int64", "int64"), NAMED, "supported"),
    ("aten.add.Tensor", ("int64", "int64"), ("ascend310b",), "not listed"),
    ("aten.add.Tensor", ("int16", "int16"), NAMED, "slow"),
    ("aten.add.Tensor", ("float64", "float64"), NAMED, "slow"),
    ("aten.mm.default", ("float64", "float64"), NAMED, "refused"),
    ("aten.mm.default", ("int32", "int32"), NAMED, "refused"),
    ("aten.convolution.default", ("float64", "float64"), ("ascend910b", "ascend310p"), "refused"),
    ("aten.repeat_interleave.self_int", ("float64",), TARGETS, "refused"),
    ("aten.mm.default", ("bfloat16", "bfloat16"), ("ascend910a", "ascend310p"), "refused"),
    ("aten.mm.default", ("bfloat16", "bfloat16"), ("ascend910b", "ascend950"), "supported"),
    ("aten._to_copy.default", ("float32", "bfloat16"), ("ascend910a", "ascend310p"), "refused"),
    ("aten._to_copy.default", ("float32", "float8_e4m3fn"), TARGETS[:4], "refused"),
    ("aten._to_copy.default", ("float32", "float8_e4m3fn"), ("ascend950",), "supported"),
    ("aten.add.Tensor", ("float8_e5m2", "float8_e5m2"), TARGETS[:4], "refused"),
    ("aten.add.Tensor", ("float8_e4m3fnuz",) * 2, TARGETS, "refused"),
    ("aten.add.Tensor", ("quint8", "quint8"), TARGETS, "refused"),
    ("aten.cumsum.default", ("int64",), ("ascend910a", "ascend910b", "ascend310p"), "slow"),
    ("aten.cumsum.default", ("int64",), ("ascend950",), "supported"),
    ("aten.topk.default", ("int64",), ("ascend910a", "ascend910b", "ascend310p"), "slow"),
    ("aten.topk.default", ("int64",), ("ascend950",), "supported"),
    ("aten.topk.default", ("float32",), ("ascend910a",), "slow"),
    ("aten.sort.default", ("int64",), ("ascend910a", "ascend910b", "ascend310p"), "slow"),
    ("aten.sort.default", ("int64",), ("ascend950",), "supported"),
    ("aten.polar.default", ("float32", "float32"), ("ascend910b", "ascend310p"), "supported"),
    ("aten.polar.default", ("float64", "float64"), ("ascend910b", "ascend310p"), "refused"),
    ("aten.polar.default", ("float32", "float32"), ("ascend910a", "ascend310b"), "not listed"),
    ("aten.view_as_complex.default", ("float32",), ("ascend910b", "ascend950"), "supported"),
    ("aten.view_as_complex.default", ("float32",), ("ascend910a", "ascend310p"), "not listed"),
    ("aten.mul.Tensor", ("complex64", "complex64"), ("ascend910b", "ascend950"), "supported"),
    ("aten.mul.Tensor", ("complex64", "complex64"), ("ascend910a", "ascend310p"), "slow"),
    ("aten.mul.Tensor", ("complex128", "complex128"), NAMED, "slow"),
    ("aten.index.Tensor", ("complex128", "int64"), ("ascend910b",), "refused"),
    ("torchvision.nms.default", ("float32", "float32"), TARGETS, "fallback"),
    ("aten.hypot.default", ("float32", "float32"), TARGETS, "fallback"),
    ("aten.convolution.default", ("float32", "float32", "float32"), TARGETS, "supported"),
    ("aten.convolution.default", ("bfloat16", "bfloat16"), ("ascend310b",), "supported"),
]


@pytest.mark.parametrize(("op", "given", "targets", "wanted"), STATED)
def test_lookup_says_what_the_lists_say(op, given, targets, wanted):
    for target in targets:
        found = lookup(op, given, target)
        assert found.status == wanted, (target, found)
        assert found.source


def test_the_thread_about_integer_addition_is_told_and_decides_nothing():
    found = lookup("aten.add.Tensor", ("int64", "int64"), "ascend910b")
    assert found.kind == "AI Core list"
    assert "thread" in found.note
    assert "int64" in found.dtypes_ok
    assert "thread" not in lookup("aten.add.Tensor", ("int32", "int32"), "ascend910b").note


def test_a_cast_to_float64_is_said_to_give_float32():
    assert "float32" in lookup("aten._to_copy.default", ("float32", "float64"), "ascend910b").note


@pytest.mark.parametrize("target", TARGETS)
def test_what_a_cast_lowered_is_judged_as_float32_on_every_target(target):
    for op, count in [("mm", 2), ("convolution", 3), ("add.Tensor", 2), ("repeat_interleave", 1)]:
        there = lookup(f"aten.{op}", (LOWERED,) * count, target)
        plain = lookup(f"aten.{op}", ("float32",) * count, target)
        assert there.status == plain.status, op
        assert there.status != "refused", op
        assert "lowered to float32" in there.note, op
        assert "ToKernelNpu.cpp" in there.source, op
    cast = lookup("aten._to_copy.default", ("float32", LOWERED), target)
    assert cast.status == lookup("aten._to_copy.default", ("float32", "float32"), target).status


def test_what_was_not_lowered_stays_float64():
    assert status("aten.mm.default", ("float64", "float64"), "ascend910b") == "refused"
    assert status("aten.mm.default", (LOWERED, "float64"), "ascend910b") == "refused"
    assert status("aten.add.Tensor", (LOWERED, "float64"), "ascend910b") == "slow"


# What only the AI CPU takes is slow; the function may also bring a dtype to the AI Core itself.
AI_CPU = [
    ("aten._unique2.default", ("int64",), ("ascend910b", "ascend950"), "slow"),
    ("aten._unique2.default", (), ("ascend910b",), "slow"),
    ("aten.bincount.default", ("int64",), ("ascend950",), "slow"),
    ("aten.ones.default", ("int64",), NAMED, "slow"),
    ("aten.div.Tensor", ("float64", "float64"), ("ascend910b", "ascend950"), "slow"),
    ("aten.bitwise_not.default", ("int64",), ("ascend910b", "ascend310p"), "slow"),
    ("aten.bitwise_not.default", ("int64",), ("ascend950",), "supported"),
    ("aten.bitwise_not.default", ("bool",), NAMED, "supported"),
    ("aten.where.self", ("bool", "bool", "bool"), NAMED, "supported"),
    ("aten.where.self", ("bool", "int16", "int16"), NAMED, "slow"),
]


@pytest.mark.parametrize(("op", "given", "targets", "wanted"), AI_CPU)
def test_what_the_ai_core_lacks_goes_to_the_ai_cpu(op, given, targets, wanted):
    for target in targets:
        found = lookup(op, given, target)
        assert found.status == wanted, (target, found)
        assert wanted == "supported" or not {*given} & {*found.dtypes_ok}
        assert wanted == "supported" or {*given[-1:]} <= {*found.ai_cpu}


@pytest.mark.parametrize("op", ["tanh", "native_layer_norm", "index_put", "tril", "layer_norm"])
def test_what_is_not_listed_says_what_was_read(op):
    found = lookup(f"aten.{op}", ("float32",), "ascend310p")
    assert found.status == "not listed"
    assert "absent from what was read for ascend310p" in found.note
    assert "page names other products" in found.note
    assert "on ascend910b it is supported" in found.note
    assert "docs/aclnn" in found.source
    assert "op-plugin" in found.source


@pytest.mark.parametrize("target", ["ascend910a", "ascend910b", "ascend310p"])
def test_the_sum_of_int32_is_an_int64_one_unless_int32_is_asked_for(target):
    wide = lookup("aten.cumsum.default", ("int32",), target)
    narrow = lookup("aten.cumsum.default", ("int32", "int32"), target)
    assert (wide.status, narrow.status) == ("slow", "supported")
    assert "dtype=" in wide.note
    assert "dtype=" not in narrow.note


def test_integers_that_are_cast_first_are_judged_as_what_they_become():
    assert status("aten.cos.default", ("int64",), "ascend910b") == "supported"
    assert status("aten.div.Tensor", ("int64", "int64"), "ascend910b") == "supported"
    assert status("aten.logical_and.default", ("float32", "float32"), "ascend910b") == "supported"
    assert status("aten.bitwise_and.Tensor", ("bool", "bool"), "ascend910b") == "supported"
    assert status("aten.bitwise_and.Tensor", ("uint8", "uint8"), "ascend910b") == "slow"


def test_masks_and_indices_are_no_operands():
    for op, given in [
        ("aten.where.self", ("bool", "float32", "float32")),
        ("aten.masked_fill.Scalar", ("float32", "bool")),
        ("aten.embedding.default", ("float16", "int64")),
        ("aten.index_put_.default", ("float32", "int64", "float32")),
        ("aten.nll_loss_forward.default", ("float32", "int64")),
    ]:
        assert status(op, given, "ascend910b") == "supported", op


def test_mixed_operands_are_judged_by_what_they_promote_to():
    assert status("aten.add.Tensor", ("int64", "float32"), "ascend910b") == "supported"
    assert status("aten.add.Tensor", ("float32", "float64"), "ascend910b") == "slow"
    assert status("aten.copy_.default", ("float32", "float8_e5m2"), "ascend910b") == "refused"


def test_views_and_allocations_run_no_kernel():
    for op in ("aten.permute.default", "aten.view.default", "aten.empty.memory_format"):
        for target in TARGETS:
            assert status(op, ("bfloat16",), target) == "supported"


def test_composites_are_as_good_as_their_parts():
    assert "zero" in lookup("aten.zeros_like.default", ("float32",), "ascend910b").note
    assert status("aten.zeros_like.default", ("float32", "bfloat16"), "ascend310p") == "refused"
    assert status("aten.conv2d.default", ("float32", "float32"), "ascend910a") == "supported"


@pytest.mark.parametrize("target", TARGETS)
def test_what_no_table_names_is_not_listed(target):
    for op in ("aten.no_such_op.default", "mine.op.default", "torch.nope", "aclnnNope", "", "aten"):
        assert status(op, ("float32",), target) == "not listed"
        assert lookup(op, (), target).status == "not listed"


@pytest.mark.parametrize(
    "given",
    [
        ("torch.float32",) * 2,
        (torch.float32,) * 2,
        ["FLOAT", "fp32"],
        ("DT_FLOAT", "ACL_FLOAT"),
        (np.float32, np.dtype("f4")),
        "float32",
        torch.float32,
        dtypes()["float32"],
    ],
)
def test_a_dtype_may_be_spelled_in_any_way(given):
    found = lookup("aten.mm.default", given, "ascend910b")
    assert found.status == "supported"
    assert found == lookup("aten.mm.default", ("float32", "float32"), "ascend910b")
    assert lookup("aclnnAdd", given, "ascend310p").status == "supported"


@pytest.mark.parametrize("given", [("nonsense",), (1, 2), (True,), None, ("float",), (None,), [[]]])
def test_a_dtype_that_is_none_is_no_refusal(given):
    with pytest.raises(MigrateError) as error:
        lookup("aten.mm.default", given, "ascend910b")
    assert error.value.where == "lookup(dtypes=)"


def test_a_torch_dtype_that_no_framework_shares_is_looked_up_too():
    for given in ((torch.bits8,), ("bits8",), ("torch.uint3",)):
        assert lookup("aten.add.Tensor", given * 2, "ascend910b").status == "refused"


def test_an_operator_may_be_given_itself():
    named = lookup("aten.add.Tensor", ("int64", "int64"), "ascend910b")
    assert lookup(torch.ops.aten.add.Tensor, ("int64", "int64"), "Ascend910B4") == named
    assert lookup(torch.ops.aten.add, ("int64", "int64"), "ascend910b").status == named.status
    for op in (None, 5, [], torch.mm, b"aten.mm"):
        with pytest.raises(MigrateError, match="name of an operator"):
            lookup(op, ("float32",), "ascend910b")


@pytest.mark.parametrize("target", ["zz", [], None, 5, "mlu270", ""])
def test_a_target_without_tables_is_told(target):
    with pytest.raises(MigrateError, match="no tables for the target"):
        lookup("aten.mm.default", ("float32",), target)


def test_other_spellings_of_an_operator_agree():
    for op, same in [
        ("aten::add.Tensor", "aten.add.Tensor"),
        ("aten.add_.Tensor", "aten.add.Tensor"),
        ("torch.add", "aten.add.Tensor"),
        ("aclnnAdd", "aten.add.Tensor"),
        ("Add", "aten.add.Tensor"),
        ("torchvision::nms", "torchvision.nms.default"),
        ("torch.lgamma", "aten.lgamma.default"),
    ]:
        for given in (("float32",), ("float64",)):
            assert status(op, given, "ascend910b") == status(same, given, "ascend910b"), op


def test_an_unknown_target_is_refused_with_the_known_ones():
    with pytest.raises(MigrateError, match="ascend310b"):
        lookup("aten.add.Tensor", (), "ascend310")


def test_a_second_lookup_is_the_kept_one():
    one = lookup("aten.add.Tensor", ("float16", "float16"), "ascend950")
    assert lookup("aten.add.Tensor", ("float16", "float16"), "ascend950") is one


@pytest.mark.parametrize("target", TARGETS)
def test_every_answer_is_whole(target):
    """Every operator and name on every dtype: a known status, a source, and possible dtypes."""
    impossible = kernels.impossible(target)
    names = [f"aten.{n}" if not n.startswith("npu.") else n for n in kernels.operators()]
    names += [n if "." in n else f"aten.{n}" for n in kernels.fallbacks()]
    for op in names:
        for given in ((), *((d,) for d in dtypes())):
            found = lookup(op, given, target)
            assert found.status in STATUSES
            assert found.source, (op, given)
            assert found.status == "not listed" or found.kind, (op, given)
            lacks = "AI Core list has no" in found.note or "only the AI CPU" in found.note
            assert not (found.status == "supported" and lacks), (op, given, found)
            assert not impossible & {*found.dtypes_ok}, (op, given)
            assert found.status != "refused" or set(given) - {*found.dtypes_ok}, (op, given)


@pytest.mark.parametrize("target", NAMED)
def test_the_lists_of_the_chip_decide(target):
    """Every dtype of every AI Core and AI CPU list comes out as it stands there."""
    chip = kernels.products()[target].ai_core
    own = {o.ge_op for o in kernels.operators().values()}
    checked = 0
    for (ge_op, product), listed in kernels.ai_core().items():
        if product != chip or ge_op in own:
            continue  # those that an ATen operator stands for may be cast first
        for dtype in set(listed.fast or ()) - kernels.impossible(target):
            assert status(ge_op, (dtype,), target) == "supported", (ge_op, dtype)
            checked += 1
        for dtype in set(listed.ai_cpu) - kernels.impossible(target):
            assert status(ge_op, (dtype,), target) == "slow", (ge_op, dtype)
            checked += 1
    assert checked > 50


@pytest.mark.parametrize("name", NAMES)
def test_every_operator_of_common_networks_is_in_the_tables(name):
    """Forward, backward, SGD and AdamW: on the 910B each operator has an answer."""
    unknown = sorted(
        f"{op} {given}"
        for op, given in calls(name)
        if lookup(op, given, "ascend910b").status == "not listed"
    )
    assert not unknown


def test_complex_rope_needs_more_than_the_real_form():
    """What only the complex form calls is not fast everywhere; the real form is."""

    def bad(name, target):
        ops = {op for op, given in calls(name) if lookup(op, given, target).status != "supported"}
        return {o for o in ops if any(w in o for w in ("complex", "real", "polar", "mul.Tensor"))}

    assert bad("decoder with complex rope", "ascend310p") >= {
        "aten.view_as_complex.default",
        "aten.mul.Tensor",
    }
    assert not bad("decoder", "ascend310p")


def test_the_tables_are_read_when_first_asked():
    code = (
        "import sys; from migrate_kit.dtypes import support, kernels;"
        "assert not kernels.operators.cache_info().currsize; assert 'torch' not in sys.modules;"
        "assert 'numpy' not in sys.modules;"
        "support.lookup('aten.add.Tensor', (), 'ascend910b');"
        "assert kernels.operators.cache_info().currsize; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_statements_use_known_words():
    for row in read_table("dtype_ops"):
        assert row["status"] in STATUSES | {""}
        assert row["status"] or row["note"]
        assert set(row["targets"].split()) <= {*TARGETS, "*"}
