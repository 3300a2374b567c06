"""The table of pairs: what a cell accepts, and that every cell can be read."""

import pytest
from packaging.version import Version

from migrate_kit.environment import compat


@pytest.mark.parametrize(
    ("cell", "version", "answer"),
    [
        ("2.9.0", "2.9.0", True),
        ("2.9.0", "2.9.0+cpu", True),
        ("2.9.0", "2.9.1", False),
        ("3.10 3.11", "3.11", True),
        ("3.10 3.11", "3.1", False),
        (">=1.25,<2", "2.4.6", False),
        (">=7.34.1", "7.36.2", True),
        ("25.5.* 25.3.*", "25.3.RC1", True),
        ("25.5.* 25.3.*", "24.1.rc1.b060", False),
        ("8.3.RC1", "8.3.rc1", True),
        ("<8.3", "8.2.RC1.alpha003", True),
        ("<8.3", "8.3.RC1", False),
        ("*", "anything", True),
        ("8.0.0", "unknown", False),
    ],
)
def test_what_a_cell_accepts(cell, version, answer):
    assert compat.accepts(cell, version) is answer


@pytest.mark.parametrize(
    ("version", "cell", "answer"),
    [
        ("24.1.rc1", "25.5.* 25.3.* 25.0.*", True),
        ("25.0.rc1", "25.5.* 25.3.* 25.0.*", False),
        ("26.2.0", "25.5.*", False),
        ("unknown", "25.5.*", None),
    ],
)
def test_what_is_older_than_a_cell(version, cell, answer):
    assert compat.older(version, cell) is answer


def test_the_releases_of_cann_are_in_order():
    order = ["6.0.1", "6.3.RC3.1", "7.0.RC1", "7.0.0", "8.0.RC2", "8.0.0", "8.3.RC1", "8.5.0"]
    assert sorted(order, key=compat.parse) == order


def test_every_cell_can_be_read():
    for row in compat.rows():
        for partner, cell in row.cells:
            for word in cell.split():
                if word in {"same", "local", "*"}:
                    continue
                bare = word.partition(",")[0].lstrip("<>=!~").removesuffix(".*")
                assert compat.parse(bare) is not None, (row.package, row.version, partner, word)


def test_a_plug_in_is_paired_with_the_torch_in_its_name():
    odd = {"1.5.0.post3"}  # the source names torch 1.8.1, and the row says so
    for row in compat.rows_of("torch_npu"):
        if row.version not in odd:
            release = Version(row.version).release
            assert Version(row.cell("torch")).release == release, row.version


def test_rows_are_dated_and_not_repeated():
    keys = [(r.package, r.version) for r in compat.rows()]
    wanted = {("cann", "<8.3")}
    assert len(set(keys)) == len(keys) or {k for k in keys if keys.count(k) > 1} <= wanted
    assert all(row.checked >= "2026-12-01" for row in compat.rows())


def test_the_pairs_that_users_ask_for():
    (row,) = compat.rows_of("torch-npu", "2.9.0.post2")
    assert (row.cell("torch"), row.cell("cann")) == ("2.9.0", "9.0.0")
    (row,) = compat.rows_of("mindspore", "2.10.0")
    assert not compat.accepts(row.cell("numpy"), "2.0.0")
    assert not compat.accepts(row.cell("protobuf"), "3.20.3")
