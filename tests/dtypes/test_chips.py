"""The chips' defaults, and the names they answer to."""

import pytest
import torch

from migrate_kit import MigrateError
from migrate_kit.dtypes.chips import chips, find_chip
from migrate_kit.dtypes.support import TARGETS
from migrate_kit.tables import read_table


def test_there_is_a_chip_for_every_target_of_the_support_tables():
    assert set(chips()) == set(TARGETS)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("ascend910b", "ascend910b"),
        (" Ascend910B ", "ascend910b"),
        ("Ascend910B4-1", "ascend910b"),
        ("Ascend910_9391", "ascend910b"),
        ("ascend910_93", "ascend910b"),
        ("Ascend910ProA", "ascend910a"),
        ("Ascend310P3", "ascend310p"),
        ("ascend310b4", "ascend310b"),
        ("Ascend950PR_9579", "ascend950"),
    ],
)
def test_a_soc_name_finds_its_chip(name, target):
    assert find_chip(name).target == target


def test_a_project_can_be_rehearsed_for_each_target_that_has_tables():
    names = [row["target"] for row in read_table("targets") if "torch_npu" in row["framework"]]
    assert {find_chip(name).target for name in names} == set(TARGETS)


@pytest.mark.parametrize("name", ["ascend311", "", "cuda", None, 910, "ascend310", "mlu370"])
def test_an_unknown_target_is_answered_with_those_there_are(name):
    with pytest.raises(MigrateError) as caught:
        find_chip(name)
    assert all(target in caught.value.fix for target in TARGETS)


def test_a_known_product_without_tables_is_said_to_have_none():
    with pytest.raises(MigrateError, match="no table of its operators"):
        find_chip("ascend310")


def test_only_chips_with_hf32_have_its_mantissa_and_those_without_bf16_saturate():
    for chip in chips().values():
        assert (chip.hf32_bits > 0) == ("HF32" in (chip.conv, chip.matmul))
        assert chip.bf16 or chip.saturates  # the first generation lacks both


@pytest.mark.parametrize("row", read_table("npu_operators"), ids=lambda row: row["op"])
def test_an_operator_that_is_renamed_for_the_npu_exists(row):
    names = [row["op"]] + [n for n in [row["npu_op"]] if n.startswith("aten.")]
    for name in names:
        _, packet, overload = name.split(".")
        found = getattr(getattr(torch.ops.aten, packet), overload)
        assert str(found) == name
