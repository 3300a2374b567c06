"""Files from strangers: whatever is in them, an answer or one MigrateError."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrate_kit.checkpoints.conversions import ssd_mobilenet_v1
from migrate_kit.checkpoints.convert import convert_weights
from migrate_kit.checkpoints.formats.darknet_cfg import parse_cfg
from migrate_kit.checkpoints.formats.darknet_sections import plan_network
from migrate_kit.checkpoints.load import load_checkpoint
from migrate_kit.errors import MigrateError
from tests.checkpoints import darknet_files as files
from tests.checkpoints.one_thread import one_thread  # noqa: F401
from tests.checkpoints.ssd_graph import SSD

KEYS = ("filters", "size", "stride", "pad", "padding", "groups", "from", "layers", "output")
KEYS += ("batch_normalize", "activation", "classes", "num", "mask", "anchors", "height", "dilation")
KINDS = ("net", "convolutional", "maxpool", "route", "shortcut", "yolo", "region", "reorg", "sam")
KINDS += ("connected", "upsample", "batchnorm", "avgpool", "softmax", "scale_channels", "dropout")
VALUES = st.one_of(
    st.integers(-3, 20).map(str),
    st.sampled_from(["-1,-2", "0,1,2", "1e9", "99999999999", "leaky", "linear", "", "0.5", "nan"]),
    st.text(max_size=5),
)
LINES = st.one_of(
    st.sampled_from(KINDS).map("[{}]".format),
    st.tuples(st.sampled_from(KEYS), VALUES).map("=".join),
    st.text(max_size=8),
)
START = "[net]\nchannels=3\nheight=8\nwidth=8\n[convolutional]\nfilters=4\nactivation=linear\n"


@settings(max_examples=300, deadline=None)
@given(st.lists(LINES, max_size=12))
def test_any_cfg(lines):
    with contextlib.suppress(MigrateError):
        plan = plan_network(parse_cfg(START + "\n".join(lines)))
        assert plan.floats() <= 1 << 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hostile")


@settings(max_examples=60, deadline=None)
@given(st.lists(LINES, max_size=6), st.integers(0, 200))
def test_any_cfg_with_any_weights(folder, lines, count):
    text = START + "\n".join(line.replace("\r", "") for line in lines)
    (folder / "a.cfg").write_bytes(text.encode("utf-8", "replace"))
    values = np.linspace(-1, 1, count, dtype="<f4")
    (folder / "a.weights").write_bytes(files.header() + values.tobytes())
    with contextlib.suppress(MigrateError):
        load_checkpoint(folder / "a.weights")
    with contextlib.suppress(MigrateError):
        convert_weights("yolov3", folder / "a.weights", folder / "a.pth")


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=80))
def test_any_bytes_as_weights(folder, data):
    (folder / "b.weights").write_bytes(data)
    (folder / "b.cfg").write_text(START)
    with contextlib.suppress(MigrateError):
        convert_weights("yolov3", folder / "b.weights", folder / "b.pth")


@pytest.fixture(scope="module")
def quick():
    """Compare on a small image: what is tried here is the reading."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssd_mobilenet_v1, "SIZE", 40)
        yield


SMALL = SSD("fused", width=0.125, classes=2).data


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_damage_to_a_graph(folder, quick, data):
    damaged = bytearray(SMALL)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        damaged = damaged[: data.draw(st.integers(0, len(damaged)))]
    (folder / "g.pb").write_bytes(damaged)
    with contextlib.suppress(MigrateError):
        convert_weights("ssd_mobilenet_v1", folder / "g.pb", folder / "g.pth")


# Where the structure stands, and not the floats: most damage above is in those.
NAMES = [
    i for i in range(len(SMALL) - 8) if SMALL[i : i + 4] in (b"stri", b"padd", b"valu", b"Conv")
]


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(NAMES), st.integers(-12, 24), st.integers(0, 255))
def test_damage_to_a_graphs_structure(folder, quick, place, away, byte):
    damaged = bytearray(SMALL)
    damaged[min(len(damaged) - 1, max(0, place + away))] = byte
    (folder / "h.pb").write_bytes(damaged)
    with contextlib.suppress(MigrateError):
        convert_weights("ssd_mobilenet_v1", folder / "h.pb", folder / "h.pth")
