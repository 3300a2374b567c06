"""A .cfg from a stranger: each mistake is one error that names section, line and key."""

import pytest

from migrate_kit.checkpoints.formats.darknet_cfg import parse_cfg, read_cfg
from migrate_kit.checkpoints.formats.darknet_sections import plan_network
from migrate_kit.errors import MigrateError
from migrate_kit.tables import read_table
from tests.checkpoints.darknet_files import conv, net, section

IMAGE = net(3, 8, 8)


def test_reads_what_public_files_have_in_them():
    text = "[net]\r\n# Testing\nheight = 4\n width=6 # wide\nchannels=1\n;a\n\n[ convolutional ]\n"
    text += "size=3 #3x3\nsize=5\nfilters=2\nactivation=linear\n"
    sections = parse_cfg(text)
    assert [s.type for s in sections] == ["net", "convolutional"]
    plan = plan_network(sections)
    assert plan.image == (1, 4, 6)
    # Of two equal keys Darknet takes the first.
    assert plan.layers[0].parts[-1].shape == (2, 1, 3, 3)


@pytest.mark.parametrize(
    ("text", "what", "where"),
    [
        (IMAGE + conv(0), "filters=0", "section 0 [convolutional], line 6, filters="),
        (IMAGE + conv("9" * 30), "whole number", "filters="),
        (IMAGE + conv("many"), "'many' is no whole number", "line 6, filters="),
        (IMAGE + conv(1 << 20, 999, padding=16384), "output would be", "section 0"),
        (IMAGE + conv(8, 9), "kernel of 9", "size="),
        (IMAGE + conv(4, groups=2), "2 groups", "groups="),
        (IMAGE + conv(4, 3, dilation=2), "dilation=2", "dilation="),
        (IMAGE + conv(4, activation="sinus"), "'sinus'", "activation="),
        (IMAGE + conv(4, xnor=1), "xnor is not converted", "xnor="),
        (IMAGE + conv(4, dontload=1), "dontload", "dontload="),
        (IMAGE + section("route", layers=0), "this is layer 0", "layers="),
        (IMAGE + conv(4) + section("route", layers="-2"), "layers=-2 is layer -1", "layers="),
        (
            IMAGE + conv(4) + section("route", layers=1),
            "is layer 1, and this is layer 1",
            "layers=",
        ),
        (IMAGE + conv(4) + section("route", layers=""), "names no layer", "layers="),
        (
            IMAGE + conv(4) + conv(4, stride=2) + section("route", layers="0,1"),
            "different sizes: 4x8x8, 4x4x4",
            "layers=",
        ),
        (
            IMAGE + conv(4) + conv(4, stride=3) + section("shortcut", **{"from": 0}),
            "different",
            "from=",
        ),
        (IMAGE + conv(4) + section("shortcut", **{"from": 0}, alpha=0.5), "alpha", "alpha="),
        (IMAGE + section("reorg", stride=3), "does not divide", "stride="),
        (IMAGE + section("reorg", stride=2), "does not divide", "stride="),  # 3 channels
        (IMAGE + section("maxpool", size=2, padding=5), "window of 2", "size="),
        (IMAGE + section("upsample", stride=16384), "output would be", "section 0"),
        (IMAGE + section("local", filters=4), "'local'", "section 0 [local]"),
        (IMAGE + section("gru", output=4), "'gru'", "section 0 [gru]"),
        (IMAGE + section("yolo", classes=1, num=1, mask=1), "not below num=1", "mask="),
        (IMAGE + section("yolo", classes=1, num=1), "need 6 channels", "classes="),
        (IMAGE + section("dropout", probability="nan"), "'nan' is no number", "probability="),
        (net(0, 8, 8) + conv(4), "channels=0", "[net], line 2"),
        (net(1 << 20, 16384, 16384) + conv(4), "an image of 1048576x16384x16384", "[net]"),
        (net(3, 99999, 8) + conv(4), "height=99999", "height="),
        (IMAGE, "no layer", "[net]"),
        ("", "does not begin with [net]", ".cfg"),
        (conv(4), "does not begin with [net]", ".cfg"),
        ("<html>", "neither a [section] nor key=value", "line 1"),
        (IMAGE + "[a]\n" * 10_001, "more than 10,000 sections", "line 10004"),
        (IMAGE + section("route", layers=",".join("0" * 10_001)), "10,001 numbers", "layers="),
    ],
)
def test_a_mistake_is_named(text, what, where):
    with pytest.raises(MigrateError) as caught:
        plan_network(parse_cfg(text, "net.cfg"))
    assert what in caught.value.what
    assert where in caught.value.where
    assert caught.value.fix


def test_a_network_too_large_takes_no_memory():
    # 2^20 channels into 2^20 filters: nothing is allocated before it is refused.
    text = net(3, 1, 1) + conv(1 << 20) + conv(1 << 20)
    with pytest.raises(MigrateError, match="more than 1,073,741,824 weights"):
        plan_network(parse_cfg(text))


def test_names_are_printable(tmp_path):
    with pytest.raises(MigrateError) as caught:
        plan_network(parse_cfg(IMAGE + "[\x1b[31mx]\n", "a\x1b.cfg"))
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("content", [b"\0\0\0", b"a" * 4_000_001])
def test_what_is_no_text_is_refused(content, tmp_path):
    path = tmp_path / "a.cfg"
    path.write_bytes(content)
    with pytest.raises(MigrateError, match=r"the \.cfg"):
        read_cfg(path)
    with pytest.raises(MigrateError, match="cannot be read"):
        read_cfg(tmp_path / "b.cfg")


@pytest.mark.parametrize("name", ["yolov2", "yolov2-voc", "yolov3", "yolov3-voc", "yolov3-tiny"])
def test_public_networks_have_the_floats_of_the_table(name, cases):
    plan = plan_network(read_cfg(cases / "darknet/stock_cfg" / f"{name}.cfg"))
    rows = {row["network"]: row for row in read_table("darknet_networks")}
    assert plan.floats() == int(rows[name]["floats"])
    assert len(plan.layers) == int(rows[name]["layers"])
    assert plan.classes == int(rows[name]["classes"])


def test_the_table_has_the_known_counts():
    # Counted by others from the same files.
    known = {
        "yolov3": 62_001_757,
        "yolov3-voc": 61_678_657,
        "yolov3-tiny": 8_858_734,
        "yolov2": 50_983_561,
        "yolov2-voc": 50_676_061,
        "yolov2-tiny": 11_237_145,
        "yolov2-tiny-voc": 15_867_885,
        "yolov4-tiny": 6_062_814,
    }
    rows = {row["network"]: int(row["floats"]) for row in read_table("darknet_networks")}
    assert {name: rows[name] for name in known} == known
