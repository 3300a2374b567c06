"""The .weights file: its header, and whether it belongs to a .cfg."""

import numpy as np
import pytest
import torch

from migrate_kit.checkpoints.formats import darknet
from migrate_kit.checkpoints.formats.darknet_cfg import parse_cfg, read_cfg
from migrate_kit.checkpoints.formats.darknet_sections import plan_network
from migrate_kit.checkpoints.formats.source import Source
from migrate_kit.checkpoints.load import load_checkpoint
from migrate_kit.errors import MigrateError
from tests.checkpoints import darknet_files as files

TEXT = files.net(3, 8, 8) + files.conv(4, 3, pad=1, batch_normalize=1, activation="leaky")
TEXT += files.section("maxpool", size=2, stride=2) + files.conv(18, activation="linear")
TEXT += files.section("yolo", classes=1, num=3, mask="0,1,2", anchors="1,2,3,4,5,6")
COUNT = 4 * 4 + 4 * 3 * 9 + 18 + 18 * 4


def fitted(path):
    return darknet.fit(Source(path), plan_network(read_cfg(path.with_suffix(".cfg"))))


@pytest.mark.parametrize(
    ("length", "version"), [(20, (0, 2, 5)), (20, (0, 2, 0)), (16, (0, 1, 0)), (20, (1, 0, 0))]
)
def test_the_header_is_the_one_of_its_version(length, version, tmp_path):
    path = files.write_pair(tmp_path, TEXT, head=files.header(length, version, 1000))
    found = fitted(path)
    assert found.header.length == length
    assert found.header.seen == 1000
    entries = darknet.entries(Source(path), found)
    values = np.concatenate([entry.read().numpy().ravel() for entry in entries.values()])
    assert np.array_equal(values, files.floats(TEXT))


def test_names_and_order_are_those_of_the_network(tmp_path):
    path = files.write_pair(tmp_path, TEXT)
    assert list(load_checkpoint(path).state_dict) == [
        "models.0.bn1.bias",
        "models.0.bn1.weight",
        "models.0.bn1.running_mean",
        "models.0.bn1.running_var",
        "models.0.conv1.weight",
        "models.2.conv2.bias",
        "models.2.conv2.weight",
    ]


def test_both_orders_of_a_batchnorm_section_are_read(tmp_path):
    # AlexeyAB's Darknet writes a bias first, the original none.
    text = files.net(3, 4, 4) + "[batchnorm]\n"
    plan = plan_network(parse_cfg(text))
    assert (plan.floats(), plan.floats(optional=False)) == (12, 9)
    for optional in (True, False):
        path = files.write_pair(tmp_path, text, values=files.floats(text, optional))
        names = list(load_checkpoint(path).state_dict)
        assert (names[0] == "models.0.bn.bias") == optional


@pytest.mark.parametrize("more", [1, -1, 300])
def test_floats_of_another_network_are_refused_with_both_counts(more, tmp_path):
    values = files.floats(TEXT)
    values = np.append(values, np.zeros(more, "<f4")) if more > 0 else values[:more]
    # Far from any whole file's count with the other header: 4 more bytes are one float.
    head = files.header()
    path = files.write_pair(tmp_path, TEXT, values=values, head=head)
    with pytest.raises(MigrateError) as caught:
        fitted(path)
    assert f"needs {COUNT} floats" in caught.value.what
    assert f"holds {COUNT + more} after a header of 20 bytes" in caught.value.what
    assert f"({COUNT + more + 1} after one of 16)" in caught.value.what
    # One float too few with 20 bytes is just right with 16: half of a counter would be the first.
    assert ("the file is cut" in caught.value.fix) == (more == -1)


def test_the_public_network_with_the_files_count_is_named(tmp_path, monkeypatch):
    rows = [{"network": "mynet", "floats": str(COUNT + 300), "source": "here"}]
    monkeypatch.setattr(darknet, "read_table", lambda _: rows)
    path = files.write_pair(tmp_path, TEXT, values=np.zeros(COUNT + 300, "<f4"))
    with pytest.raises(MigrateError, match=r"take the \.cfg of mynet"):
        fitted(path)


def test_another_number_of_classes_is_found_out(tmp_path):
    other = TEXT.replace("filters=18", "filters=30").replace("classes=1", "classes=5")
    path = files.write_pair(tmp_path, TEXT, values=files.floats(other))
    with pytest.raises(MigrateError) as caught:
        fitted(path)
    assert "classes=5 in every head" in caught.value.fix


def test_a_file_of_the_first_layers_stops_at_their_end(tmp_path):
    first = 4 * 4 + 4 * 3 * 9
    path = files.write_pair(tmp_path, TEXT, values=files.floats(TEXT)[:first])
    found = fitted(path)
    assert (len(found.plan.layers), found.missing) == (2, 2)
    contents = load_checkpoint(path)
    assert len(contents.state_dict) == 5
    assert "the first 2 of 4 layers" in contents.findings[0].what


def test_weights_in_rows_of_inputs_are_turned(tmp_path):
    text = files.net(1, 1, 2) + files.section("connected", output=3, activation="linear")
    values = np.arange(9, dtype="<f4")
    path = files.write_pair(tmp_path, text, values=values, head=files.header(20, (1001, 0, 0)))
    state = {k: e.read() for k, e in darknet.entries(Source(path), fitted(path)).items()}
    assert state["models.0.fc.weight"].tolist() == [[3, 6], [4, 7], [5, 8]]
    path = files.write_pair(tmp_path, text, values=values)
    state = {k: e.read() for k, e in darknet.entries(Source(path), fitted(path)).items()}
    assert state["models.0.fc.weight"].tolist() == [[3, 4], [5, 6], [7, 8]]


def test_without_a_cfg_the_floats_are_one_tensor(tmp_path):
    path = tmp_path / "a.weights"
    path.write_bytes(files.header() + files.floats(TEXT).tobytes())
    checkpoint = load_checkpoint(path)
    assert checkpoint.format == "Darknet weights"
    assert torch.equal(checkpoint.state_dict["weights"], torch.from_numpy(files.floats(TEXT)))
    assert "no public network has so many" in checkpoint.findings[0].what
    assert "a.cfg" in checkpoint.findings[0].fix
    assert checkpoint.extras == {"trained on": "64 images"}


def test_a_cfg_that_does_not_fit_is_a_warning(tmp_path):
    path = files.write_pair(tmp_path, TEXT, values=np.zeros(3, "<f4"))
    checkpoint = load_checkpoint(path)
    assert list(checkpoint.state_dict) == ["weights"]
    assert "needs" in checkpoint.findings[0].what


@pytest.mark.parametrize(
    "content",
    [
        b"\0" * 40,
        files.header(20, (0, 2, 0)),
        files.header(20, (0, 3, 0)) + b"\0" * 8,
        files.header() + b"\xff" * 8,  # NaN
        files.header() + b"\0" * 7,
    ],
)
def test_other_files_are_not_taken_for_darknets(content, tmp_path):
    path = tmp_path / "a.weights"
    path.write_bytes(content)
    assert not darknet.recognises(Source(path))


def test_real_files_are_used_up_to_the_last_float(cases):
    for name in ("yolo-fastest-1.1", "MobileNetV2-YOLO-Fastest-voc"):
        path = cases / "darknet" / f"{name}.weights"
        assert darknet.recognises(Source(path))
        found = fitted(path)
        assert (found.header.length, found.missing) == (20, 0)
        assert name in darknet.stock_networks(found.plan.floats())
        assert load_checkpoint(path).state_dict.nbytes == path.stat().st_size - 20
