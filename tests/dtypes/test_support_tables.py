"""The support tables: whole, consistent with each other, and with the torch that is installed."""

import pytest
import torch

from migrate_kit.dtypes import kernels
from migrate_kit.dtypes.mapping import dtypes
from migrate_kit.dtypes.promotion import promote
from migrate_kit.dtypes.support import TARGETS
from migrate_kit.tables import read_table
from migrate_kit.tables.tables import FOLDER

TABLES = (
    "aclnn_support",
    "aicore_aicpu",
    "api_support",
    "aten_ops",
    "dtype_ops",
    "dtypes",
    "fallback_ops",
    "npu_products",
    "promotion",
)
has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
COMPOSITE = ("CompositeExplicitAutograd", "CompositeImplicitAutograd")


def known(op):
    return op in ALL_OPS


ALL_OPS = set(torch._C._dispatch_get_all_op_names())


@pytest.mark.parametrize("name", TABLES)
def test_every_row_has_a_source_and_no_row_is_twice(name):
    rows = read_table(name)  # a row without a source is refused by the reader
    assert len(rows) == len({tuple(r.values()) for r in rows})


def test_the_support_tables_stay_small():
    assert sum((FOLDER / f"{n}.csv").stat().st_size for n in TABLES) < 800_000


def test_every_target_has_a_name_in_some_table():
    assert set(kernels.products()) == set(TARGETS)
    chips = {p for _, p in kernels.ai_core()}
    for product in kernels.products().values():
        assert product.ai_core in chips | {""}
        assert product.aclnn in read_table("aclnn_support")[0]
        assert product.api in (*read_table("api_support")[0], "")


def test_operators_point_at_rows_that_exist():
    rows = kernels.operators()
    ge_ops = {g for g, _ in kernels.ai_core()}
    apis = {r["api"] for r in read_table("api_support")}
    for op in rows.values():
        assert op.dispatch in ("npu", "composite", "view", "memory")
        assert bool(op.via) == (op.dispatch == "composite"), op.name
        assert all(part in rows for part in op.via), op.name
        assert op.ge_op in ge_ops | {""}, op.name
        assert op.torch_api in apis | {""}, op.name
        assert op.dtype_from in ("all", "first", "last", "each", "1+"), op.name
        assert op.cast in ("", "int:float32", "int:int64", "any:bool"), op.name


def test_nearly_every_aclnn_function_of_an_operator_has_a_page():
    names = {n for o in kernels.operators().values() for n in o.aclnn}
    without = {n for n in names if kernels.aclnn(n, "ascend910b") is None}
    assert len(without) < 0.01 * len(names), without


def test_dtypes_in_the_lists_are_dtypes():
    words = set()
    for row in read_table("aicore_aicpu"):
        words |= {*f"{row['ai_core_dtypes']} {row['ai_cpu_dtypes']}".split()}
    for row in read_table("aclnn_support"):
        words |= {*row["first_tensor_dtypes"].split()}
    for row in read_table("api_support"):
        words |= {*row["dtypes_listed"].split()}
    names = {*kernels.short_names(), "float4_e2m1fn_x2"}
    assert words - names <= {"*all", "listed", "(none)"}


def test_exceptions_of_the_pages_are_understood():
    for row in read_table("aclnn_support"):
        for part in filter(None, row["product_exceptions"].split(";")):
            products, word, *listed = part.split()
            assert word in ("NO", "ONLY", "ALSO"), row["aclnn_api"]
            assert set(products.split("/")) <= {"A2", "A3", "910v1", "310P", "310B", "950"}
            assert set(listed) <= {*kernels.short_names()}, row["aclnn_api"]


def test_no_page_takes_float32_and_float16_from_an_ordinary_operator():
    """Both missing would be a sentence about a mode, read as one about the function."""
    for op in kernels.operators().values():
        for name in () if op.name.startswith("npu.") else op.aclnn[:1]:
            for target in TARGETS:
                page = kernels.aclnn(name, target)
                if page and page[0] == "Y" and page[1].fast and "bfloat16" in page[1].fast:
                    assert {"float32", "float16"} & {*page[1].fast}, (name, target)


def test_views_are_views_for_torch():
    for op in kernels.operators().values():
        if op.dispatch != "view" or op.source.endswith("kernels"):
            continue
        packet = getattr(torch.ops.aten, op.name)
        schemas = [getattr(packet, o)._schema for o in packet.overloads()]
        assert any(
            a.alias_info is not None and not a.alias_info.is_write
            for s in schemas
            for a in s.arguments
        ), op.name


def test_what_falls_back_has_no_kernel_of_its_own_in_torch():
    """Nothing but the boxed fallback can serve these on a device that torch does not know."""
    for row in read_table("fallback_ops"):
        for overload in row["overloads"].split():
            name = f"aten::{overload}"
            if known(name):
                assert not any(has_kernel(name, key) for key in COMPOSITE), name


def test_what_is_reached_otherwise_has_a_default_kernel_in_torch():
    for row in read_table("fallback_ops"):
        for overload in row["reached_otherwise"].split():
            keys = (*COMPOSITE, "CompositeExplicitAutogradNonFunctional")
            assert any(has_kernel(f"aten::{overload}", key) for key in keys), overload


def test_operators_that_fall_back_have_no_row():
    rows = kernels.operators()
    for name, row in kernels.fallbacks().items():
        if row["coverage"] == "none" and name in rows:
            assert "an NPU has its own" in rows[name].note, name


UNSIGNED = {"uint16", "uint32", "uint64"}
NAMES = [d.name for d in dtypes().values() if d.kind in ("bool", "int", "uint", "float", "complex")]
NAMES = [n for n in NAMES if hasattr(torch, n) and not n.startswith("float8")]
NAMES = [n for n in NAMES if dtypes()[n].bits >= 8]


@pytest.mark.parametrize("a", NAMES)
def test_promotion_is_that_of_torch(a):
    for b in NAMES:
        try:
            theirs = torch.promote_types(getattr(torch, a), getattr(torch, b))
        except RuntimeError:  # torch has no rule for uint16 and wider with other integers
            assert UNSIGNED & {a, b}
            continue
        assert f"torch.{promote(a, b)}" == str(theirs), (a, b)


def operand(text):
    words = text.split()
    if words[0] == "scalar":
        return {"int": 1, "float": 1.0}[words[1]]
    return torch.ones(() if words[0] == "0-d" else (2,), dtype=getattr(torch, words[-1]))


@pytest.mark.parametrize("row", read_table("promotion"), ids=lambda r: f"{r['left']}+{r['right']}")
def test_the_promotion_table_says_what_torch_does(row):
    assert str((operand(row["left"]) + operand(row["right"])).dtype) == f"torch.{row['torch']}"
    assert row["mindspore"] in {*dtypes(), ""}
